//! Force release.

use proto::{Command, Demand, Event, Released};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;

facts! {
    both: [
        a_force_release_tells_the_holder_and_hands_the_lock_on,
        a_force_release_of_a_free_lock_releases_nothing_and_tells_nobody,
        a_force_release_of_a_free_lock_hands_it_to_who_waits,
    ],
    queue: [
        a_force_release_of_one_part_tells_its_holder_alone_and_of_all_tells_each_node_once,
        a_force_release_of_thousands_of_lapsed_parts_hands_the_lock_on,
    ],
}

// Finding 10.
async fn a_force_release_tells_the_holder_and_hands_the_lock_on(mut bench: Bench) {
    let (a, b, operator) = (bench.node().await, bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let token = grant(&a.wait(&first).await).token;
    let second = b.queue(30_000).await;
    assert_eq!(operator.force_release().await.outcome, Released::Released);
    assert_eq!(a.heard().await, [Event::Revoked { numbers: vec![first.number()] }]);
    let heard = b.heard().await;
    let [Event::Granted { token: later, grants }] = &*heard else { panic!("{heard:?}") };
    assert!(matches!(grants[..], [(number, _)] if number == second.number()), "{grants:?}");
    assert!(*later > token);
    assert_eq!(a.release(&first).await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, Some(second));
}

async fn a_force_release_of_a_free_lock_releases_nothing_and_tells_nobody(mut bench: Bench) {
    let a = bench.node().await;
    assert_eq!(a.force_release().await.outcome, Released::NotHeld);
    assert_eq!(a.heard().await, []);
    assert!(bench.is_empty().await);
}

async fn a_force_release_of_a_free_lock_hands_it_to_who_waits(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    bench.end_lease().await;
    assert_eq!(a.force_release().await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, Some(waiting));
}

async fn a_force_release_of_one_part_tells_its_holder_alone_and_of_all_tells_each_node_once(
    mut bench: Bench,
) {
    let (a, b, operator) = (bench.node().await, bench.node().await, bench.node().await);
    let two = Demand::permits(2, 10).expect("two of ten");
    let parts = [a.hold_for(two, 30_000).await, a.hold_for(two, 30_000).await];
    let other = b.hold_for(two, 30_000).await;
    let one = Command::ForceRelease { member: Some(parts[0].clone()) };
    operator.run(one).await.expect("answered");
    let numbers = vec![parts[0].number()];
    assert_eq!(a.heard().await, [Event::Revoked { numbers }]);
    assert_eq!(b.heard().await, []);
    assert_eq!(bench.parts().await.len(), 2);
    assert_eq!(operator.force_release().await.outcome, Released::Released);
    for (node, member) in [(&a, &parts[1]), (&b, &other)] {
        let numbers = vec![member.number()];
        assert_eq!(node.heard().await, [Event::Revoked { numbers }]);
    }
    assert!(bench.is_empty().await);
}

// A script that reads as many members at once fails: Lua has room for 8 000 values.
async fn a_force_release_of_thousands_of_lapsed_parts_hands_the_lock_on(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    for _ in 0..43 {
        let reads: Vec<_> = (0..200).map(|_| a.member_for(Demand::READ, 30_000)).collect();
        a.wait_all(&reads.iter().collect::<Vec<_>>()).await;
    }
    bench.pass(31_000).await;
    let lock = b.queue(30_000).await;
    assert_eq!(a.force_release().await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(lock));
}
