//! Memory full: nothing new is locked, everything can be given back.

use lockcore::LockErrorKind;
use lockcore::internals::{Demand, Left, Mode, Presence, Released, Renewed};

use crate::asking::{acquire, grant};
use crate::bench::Bench;
use crate::node::Node;

async fn fill(bench: &mut Bench) {
    bench.redis.configure("maxmemory-policy", "noeviction").await;
    bench.redis.configure("maxmemory", "1").await;
}

fn demands() -> [Demand; 3] {
    [Demand::ALONE, Demand::READ, Demand::permits(2, 10).expect("two of ten")]
}

/// Whether it tries or waits: refused, and nothing is half done.
async fn is_refused(bench: &mut Bench, node: &Node, demand: Demand) {
    let before = bench.everything().await;
    for mode in [Mode::Try, Mode::Wait] {
        let member = node.member_for(demand, 30_000);
        let answer = node.run(acquire(&member, mode, 10)).await;
        let error = answer.expect_err("memory is full");
        let expected = (LockErrorKind::OutOfMemory, false);
        assert_eq!((error.kind, error.may_have_run), expected, "{demand}: {error:?}");
        assert_eq!(bench.everything().await, before, "{demand}");
    }
}

/// It would be queued: refused. A try is answered, for it writes nothing.
async fn is_not_queued(bench: &mut Bench, node: &Node, demand: Demand) {
    let before = bench.everything().await;
    let member = node.member_for(demand, 30_000);
    let answer = node.run(acquire(&member, Mode::Wait, 10)).await;
    let error = answer.expect_err("memory is full");
    let expected = (LockErrorKind::OutOfMemory, false);
    assert_eq!((error.kind, error.may_have_run), expected, "{demand}: {error:?}");
    assert_eq!(bench.everything().await, before, "{demand}");
}

// Finding 19.
#[tokio::test]
async fn an_acquire_of_what_is_free_is_refused_and_nothing_is_written() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    fill(&mut bench).await;
    for demand in demands() {
        is_refused(&mut bench, &a, demand).await;
    }
    assert_eq!(bench.redis.keys("*").await, Vec::<String>::new());
}

#[tokio::test]
async fn an_acquire_of_a_part_beside_others_is_refused_and_nothing_is_written() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    for demand in [Demand::READ, demands()[2]] {
        let held = a.hold_for(demand, 30_000).await;
        fill(&mut bench).await;
        is_refused(&mut bench, &a, demand).await;
        bench.redis.configure("maxmemory", "0").await;
        a.release(&held).await;
    }
}

// Finding 19.
#[tokio::test]
async fn an_acquire_of_what_is_held_queues_nobody() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    fill(&mut bench).await;
    for demand in demands() {
        is_not_queued(&mut bench, &a, demand).await;
    }
    bench.redis.configure("maxmemory", "0").await;
    b.queue(30_000).await;
    fill(&mut bench).await;
    for demand in demands() {
        is_not_queued(&mut bench, &a, demand).await;
    }
}

// Finding 19: a newcomer gets nothing, and is not queued behind the dead.
#[tokio::test]
async fn an_acquire_of_a_free_lock_with_a_queue_of_the_dead_locks_nothing_for_the_newcomer() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    bench.plant_dead(2).await;
    bench.end_lease().await;
    fill(&mut bench).await;
    for demand in demands() {
        is_refused(&mut bench, &a, demand).await;
        assert_eq!((bench.holder().await, bench.parts().await), (None, vec![]));
    }
}

// Finding 19.
#[tokio::test]
async fn holds_are_renewed_and_released_and_waiters_keep_their_place_and_get_their_turn() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(20_000).await;
    let (second, third) = (b.queue(30_000).await, a.queue(30_000).await);
    let (fourth, fifth) = (b.queue(30_000).await, b.queue(30_000).await);
    bench.set_patience(&b.id, 9_000).await;
    fill(&mut bench).await;

    assert_eq!(a.renew(&first).await.outcome, [Renewed::Held]);
    assert!(bench.left().await > 19_000);
    let touched = b.touch(&[&second, &fourth]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
    assert!(bench.patience(&b.id).await > 14_000);

    assert_eq!(a.release(&first).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(second.clone()));
    assert_eq!(b.confirm(&second).await.outcome, [Renewed::Held]);
    assert!(bench.left().await > 29_000);
    assert_eq!(b.force_release().await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(third.clone()));
    let left = b.leave_all(&[(&fourth, true)]).await;
    assert_eq!(left.outcome, [Left::Left]);
    assert_eq!(bench.gone().await, [fourth]);
    assert_eq!(a.leave(&third).await.outcome, [Left::Left]);
    assert_eq!(bench.holder().await, Some(fifth.clone()));
    assert_eq!(b.release(&fifth).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, None);
    bench.everything_expires().await;
}

#[tokio::test]
async fn parts_are_renewed_reduced_and_released_and_readers_get_their_turn() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    let readers =
        [b.queue_for(Demand::READ, 30_000).await, b.queue_for(Demand::READ, 30_000).await];
    let last = a.queue(30_000).await;
    fill(&mut bench).await;
    let reduced = a.reduce(&lock).await;
    assert_eq!((&reduced.outcome[..], &grant(&reduced).member), (&[Renewed::Held][..], &lock));
    let holders: Vec<_> = bench.parts().await.into_iter().map(|(member, _)| member).collect();
    assert!([&lock, &readers[0], &readers[1]].iter().all(|one| holders.contains(one)));
    assert_eq!(a.renew(&lock).await.outcome, [Renewed::Held]);
    for reader in &readers {
        assert_eq!(b.confirm(reader).await.outcome, [Renewed::Held]);
        assert_eq!(b.renew(reader).await.outcome, [Renewed::Held]);
        assert_eq!(b.release(reader).await.outcome, Released::Released);
    }
    assert_eq!(a.release(&lock).await.outcome, Released::Released);
    assert_eq!((bench.holder().await, bench.parts().await), (Some(last), vec![]));
    bench.everything_expires().await;
}
