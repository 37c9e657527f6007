//! A server that takes no writes: nothing may be said that did not happen.

use lockcore::LockErrorKind;
use lockcore::internals::{Command, Mode, Presence};

use crate::asking::{acquire, grant, leave, touch};
use crate::bench::Bench;

// Finding 5.
#[tokio::test]
async fn without_enough_replicas_nobody_is_told_of_a_grant_that_was_not_written() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(300).await;
    let waiting = b.queue(30_000).await;
    let behind = a.queue(30_000).await;
    bench.until_free().await;
    bench.redis.configure("min-replicas-to-write", "1").await;
    let before = bench.everything().await;

    let newcomer = a.member(30_000);
    let refused = [
        acquire(&newcomer, Mode::Try, 10),
        acquire(&newcomer, Mode::Wait, 10),
        Command::Release { member: holder },
        touch(&[&behind]),
        leave(&[(&behind, true)]),
        Command::ForceRelease { member: None },
    ];
    for command in refused {
        let error = a.run(command).await.expect_err("no replica");
        assert_eq!((error.kind, error.may_have_run), (LockErrorKind::ReadOnly, false), "{error:?}");
    }
    assert_eq!(b.heard(&mut bench.redis).await, []);
    assert_eq!(bench.everything().await, before);

    bench.redis.configure("min-replicas-to-write", "0").await;
    let touched = b.touch(&[&waiting]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting]);
    assert_eq!(grant(&touched).member, waiting);
}

// Finding 5, with somebody to be told off.
#[tokio::test]
async fn without_enough_replicas_a_force_release_revokes_nothing() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    b.queue(30_000).await;
    bench.redis.configure("min-replicas-to-write", "1").await;
    let refused = b.run(Command::ForceRelease { member: None }).await.expect_err("no replica");
    assert_eq!(refused.kind, LockErrorKind::ReadOnly);
    let refused = a.run(Command::Release { member: holder.clone() }).await.expect_err("no replica");
    assert_eq!(refused.kind, LockErrorKind::ReadOnly);
    assert_eq!(a.heard(&mut bench.redis).await, []);
    assert_eq!(b.heard(&mut bench.redis).await, []);
    assert_eq!(bench.holder().await, Some(holder));
}
