//! Force release.

use lockcore::internals::{Event, Released};

use crate::asking::grant;
use crate::bench::Bench;

// Finding 10.
#[tokio::test]
async fn a_force_release_tells_the_holder_and_hands_the_lock_on() {
    let mut bench = Bench::start().await;
    let (a, b, operator) = (bench.node().await, bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let token = grant(&a.wait(&first).await).token;
    let second = b.queue(30_000).await;
    assert_eq!(operator.force_release().await.outcome, Released::Released);
    assert_eq!(a.heard(&mut bench.redis).await, [Event::Revoked { numbers: vec![first.number()] }]);
    let heard = b.heard(&mut bench.redis).await;
    let [Event::Granted { token: later, grants }] = &*heard else { panic!("{heard:?}") };
    assert!(matches!(grants[..], [(number, _)] if number == second.number()), "{grants:?}");
    assert!(*later > token);
    assert_eq!(a.release(&first).await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, Some(second));
}

#[tokio::test]
async fn a_force_release_of_a_free_lock_releases_nothing_and_tells_nobody() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    assert_eq!(a.force_release().await.outcome, Released::NotHeld);
    assert_eq!(a.heard(&mut bench.redis).await, []);
    assert_eq!(bench.redis.keys("*").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_force_release_of_a_free_lock_hands_it_to_who_waits() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(100).await;
    let waiting = b.queue(30_000).await;
    bench.until_free().await;
    assert_eq!(a.force_release().await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, Some(waiting));
}
