//! Full memory: nothing new is locked, but everything can be released.

use proto::{Demand, Left, LockErrorKind, Mode, Presence, Released, Renewed};

use crate::asking::{acquire, grant};
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;

facts! {
    scripts: [
        an_acquire_of_what_is_free_is_refused_and_nothing_is_written,
        an_acquire_of_what_is_held_queues_nobody,
        an_acquire_of_a_free_lock_with_a_queue_of_the_dead_locks_nothing_for_the_newcomer,
        holds_are_renewed_and_released_and_waiters_keep_their_position_and_get_their_turn,
    ],
    queue_scripts: [
        an_acquire_of_a_part_beside_others_is_refused_and_nothing_is_written,
        parts_are_renewed_reduced_and_released_and_readers_get_their_turn,
    ],
}

async fn fill(bench: &mut Bench) {
    bench.redis().configure("maxmemory-policy", "noeviction").await;
    bench.redis().configure("maxmemory", "1").await;
}

/// The demands supported by the layout.
fn demands(bench: &Bench) -> Vec<Demand> {
    let parts = [Demand::READ, Demand::permits(2, 10).expect("two of ten")];
    let parts = parts.into_iter().filter(|_| !bench.side.has_peers());
    [Demand::EXCLUSIVE].into_iter().chain(parts).collect()
}

/// Checks that the demand is refused, and nothing is half done.
async fn is_refused(bench: &mut Bench, node: &Node, demand: Demand, modes: &[Mode]) {
    let before = bench.everything().await;
    for mode in modes {
        let member = node.member_for(demand, 30_000);
        let answer = node.run(acquire(&member, *mode, 10)).await;
        let error = answer.expect_err("memory is full");
        assert_eq!(error.kind, LockErrorKind::OutOfMemory, "{demand}: {error:?}");
        assert_eq!(bench.everything().await, before, "{demand}");
    }
}

// Finding 19.
async fn an_acquire_of_what_is_free_is_refused_and_nothing_is_written(mut bench: Bench) {
    let a = bench.node().await;
    fill(&mut bench).await;
    for demand in demands(&bench) {
        is_refused(&mut bench, &a, demand, &[Mode::Try, Mode::Wait]).await;
    }
    assert_eq!(bench.redis().keys("*").await, Vec::<String>::new());
}

async fn an_acquire_of_a_part_beside_others_is_refused_and_nothing_is_written(mut bench: Bench) {
    let a = bench.node().await;
    for demand in &demands(&bench)[1..] {
        let held = a.hold_for(*demand, 30_000).await;
        fill(&mut bench).await;
        is_refused(&mut bench, &a, *demand, &[Mode::Try, Mode::Wait]).await;
        bench.redis().configure("maxmemory", "0").await;
        a.release(&held).await;
    }
}

// Finding 19. A try has a reply because it writes nothing.
async fn an_acquire_of_what_is_held_queues_nobody(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    fill(&mut bench).await;
    for demand in demands(&bench) {
        is_refused(&mut bench, &a, demand, &[Mode::Wait]).await;
    }
    bench.redis().configure("maxmemory", "0").await;
    b.queue(30_000).await;
    fill(&mut bench).await;
    for demand in demands(&bench) {
        is_refused(&mut bench, &a, demand, &[Mode::Wait]).await;
    }
}

// Finding 19: a newcomer gets nothing, and is not queued behind dead waiters.
async fn an_acquire_of_a_free_lock_with_a_queue_of_the_dead_locks_nothing_for_the_newcomer(
    mut bench: Bench,
) {
    let a = bench.node().await;
    a.hold(30_000).await;
    bench.plant_dead(2).await;
    bench.end_lease().await;
    fill(&mut bench).await;
    for demand in demands(&bench) {
        for mode in [Mode::Try, Mode::Wait] {
            let error = a.run(acquire(&a.member_for(demand, 30_000), mode, 10)).await;
            assert_eq!(error.expect_err("full").kind, LockErrorKind::OutOfMemory, "{demand}");
            assert_eq!((bench.holder().await, bench.parts().await), (None, vec![]));
            assert_eq!(bench.queue().await.len(), 2);
        }
    }
}

// Finding 19.
async fn holds_are_renewed_and_released_and_waiters_keep_their_position_and_get_their_turn(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(20_000).await;
    let (second, third) = (b.queue(30_000).await, a.queue(30_000).await);
    let (fourth, fifth) = (b.queue(30_000).await, b.queue(30_000).await);
    bench.set_patience(&second, 9_000).await;
    fill(&mut bench).await;

    assert_eq!(a.renew(&first).await.outcome, [Renewed::Held]);
    assert!(bench.left().await > 19_000);
    let touched = b.touch(&[&second, &fourth]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
    assert!(bench.patience(&second).await > Some(14_000));

    assert_eq!(a.release(&first).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(second.clone()));
    assert_eq!(b.confirm(&second).await.outcome, [Renewed::Held]);
    assert!(bench.left().await > 29_000);
    assert_eq!(b.force_release().await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(third.clone()));
    let left = b.leave_all(&[(&fourth, true)]).await;
    assert_eq!(left.outcome, [Left::Left]);
    assert_eq!(bench.tombstones().await, [fourth]);
    assert_eq!(a.leave(&third).await.outcome, [Left::Left]);
    assert_eq!(bench.holder().await, Some(fifth.clone()));
    assert_eq!(b.release(&fifth).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, None);
    bench.everything_expires().await;
}

async fn parts_are_renewed_reduced_and_released_and_readers_get_their_turn(mut bench: Bench) {
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
