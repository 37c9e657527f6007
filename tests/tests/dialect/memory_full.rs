//! Memory full: nothing new is locked, everything can be given back.

use lockcore::LockErrorKind;
use lockcore::internals::{Left, Mode, Presence, Released, Renewed};

use crate::asking::{acquire, now_us};
use crate::bench::Bench;
use crate::node::Node;

async fn fill(bench: &mut Bench) {
    bench.redis.configure("maxmemory-policy", "noeviction").await;
    bench.redis.configure("maxmemory", "1").await;
}

async fn is_refused(node: &Node, mode: Mode) {
    let member = node.member(30_000);
    let answer = node.run(acquire(&member, mode, 10)).await;
    let error = answer.expect_err("memory is full");
    assert_eq!((error.kind, error.may_have_run), (LockErrorKind::OutOfMemory, false), "{error:?}");
}

// Finding 19.
#[tokio::test]
async fn an_acquire_of_a_free_lock_is_refused_and_nothing_is_written() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    fill(&mut bench).await;
    is_refused(&a, Mode::Try).await;
    is_refused(&a, Mode::Wait).await;
    assert_eq!(bench.redis.keys("*").await, Vec::<String>::new());
}

// Finding 19.
#[tokio::test]
async fn an_acquire_of_a_held_lock_queues_nobody() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    a.hold(30_000).await;
    fill(&mut bench).await;
    let before = bench.everything().await;
    is_refused(&a, Mode::Wait).await;
    assert_eq!(bench.everything().await, before);
}

// Finding 19.
#[tokio::test]
async fn an_acquire_behind_others_queues_nobody() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    b.queue(30_000).await;
    fill(&mut bench).await;
    let before = bench.everything().await;
    is_refused(&a, Mode::Wait).await;
    assert_eq!(bench.everything().await, before);
}

// Finding 19: a newcomer gets nothing, the waiters get their turn.
#[tokio::test]
async fn an_acquire_of_a_free_lock_with_a_queue_locks_nothing_for_the_newcomer() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    bench.plant_dead(2).await;
    fill(&mut bench).await;
    for mode in [Mode::Try, Mode::Wait] {
        let member = a.member(30_000);
        let answer = a.run(acquire(&member, mode, 10)).await;
        let kind = answer.map_err(|error| error.kind);
        assert_eq!(kind, Err(LockErrorKind::OutOfMemory));
        assert_eq!(bench.holder().await, None);
    }
}

// Finding 19.
#[tokio::test]
async fn holds_are_renewed_and_released_and_waiters_keep_their_place_and_get_their_turn() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let (second, third) = (b.queue(30_000).await, a.queue(30_000).await);
    let (fourth, fifth) = (b.queue(30_000).await, b.queue(30_000).await);
    let now = bench.now_ms().await;
    bench.set_deadline(&second, now + 10_000).await;
    fill(&mut bench).await;

    assert_eq!(a.renew(&first).await.outcome, [Renewed::Held]);
    let touched = b.touch(&[&second, &fourth]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
    assert_eq!(bench.deadline(&second).await, Some(now_us(&touched) / 1_000 + 15_000));

    assert_eq!(a.release(&first).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(second));
    assert_eq!(b.force_release().await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(third.clone()));
    let left = b.leave_all(&[(&fourth, true)]).await;
    assert_eq!(left.outcome, [Left::Left]);
    assert!(bench.redis.exists(&bench.tombstone_key(&fourth)).await);
    assert_eq!(a.leave(&third).await.outcome, [Left::Left]);
    assert_eq!(bench.holder().await, Some(fifth.clone()));
    assert_eq!(b.release(&fifth).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, None);
    bench.everything_expires().await;
}
