//! Memory full: nothing new is locked, everything can be given back.

use lockcore::LockErrorKind;
use lockcore::internals::{Demand, Left, Mode, Presence, Released, Renewed};

use crate::asking::acquire;
use crate::bench::Bench;
use crate::node::Node;

async fn fill(bench: &mut Bench) {
    bench.redis.configure("maxmemory-policy", "noeviction").await;
    bench.redis.configure("maxmemory", "1").await;
}

async fn is_refused(node: &Node, demand: Demand, mode: Mode) {
    let member = node.member_for(demand, 30_000);
    let answer = node.run(acquire(&member, mode, 10)).await;
    let error = answer.expect_err("memory is full");
    assert_eq!((error.kind, error.may_have_run), (LockErrorKind::OutOfMemory, false), "{error:?}");
}

#[tokio::test]
async fn an_acquire_of_a_free_lock_is_refused_and_nothing_is_written() {
    for demand in [Demand::ALONE, Demand::READ] {
        let mut bench = Bench::start().await;
        let a = bench.node().await;
        fill(&mut bench).await;
        is_refused(&a, demand, Mode::Try).await;
        is_refused(&a, demand, Mode::Wait).await;
        assert_eq!(bench.redis.keys("*").await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_acquire_of_a_held_lock_queues_nobody_whether_others_wait_or_not() {
    for waits in [false, true] {
        let mut bench = Bench::start().await;
        let (a, b) = (bench.node().await, bench.node().await);
        a.hold(30_000).await;
        if waits {
            b.queue(30_000).await;
        }
        fill(&mut bench).await;
        let before = bench.everything().await;
        for demand in [Demand::ALONE, Demand::READ] {
            is_refused(&a, demand, Mode::Wait).await;
        }
        assert_eq!(bench.everything().await, before);
    }
}

#[tokio::test]
async fn holds_are_renewed_confirmed_and_released_and_waiters_get_their_turn() {
    let mut bench = Bench::start().await;
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold(30_000).await;
    let (second, third) = (b.queue(30_000).await, a.queue(30_000).await);
    let (fourth, fifth) = (b.queue(30_000).await, a.queue(30_000).await);
    fill(&mut bench).await;
    assert_eq!(a.renew(&first).await.outcome, [Renewed::Held]);
    assert_eq!(a.confirm(&first).await.outcome, [Renewed::Held]);
    let touched = b.touch(&[&second, &fourth]).await;
    assert_eq!(touched.outcome.members, [Presence::Waiting; 2]);
    assert_eq!(a.release(&first).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(second));
    assert_eq!(b.force_release().await.outcome, Released::Released);
    assert_eq!(bench.holder().await, Some(third.clone()));
    assert_eq!(b.leave_ambiguous(&fourth).await.outcome, [Left::Left]);
    assert_eq!(a.leave(&third).await.outcome, [Left::Left]);
    assert_eq!(bench.holder().await, Some(fifth.clone()));
    assert_eq!(a.release(&fifth).await.outcome, Released::Released);
    assert_eq!(bench.holder().await, None);
    bench.everything_expires().await;
}

#[tokio::test]
async fn reads_are_renewed_confirmed_and_released() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let members = [(); 2].map(|()| a.member_for(Demand::READ, 30_000));
    for member in &members {
        a.wait(member).await;
    }
    fill(&mut bench).await;
    for member in &members {
        assert_eq!(a.renew(member).await.outcome, [Renewed::Held]);
        assert_eq!(a.confirm(member).await.outcome, [Renewed::Held]);
        assert_eq!(a.release(member).await.outcome, Released::Released);
    }
    bench.everything_expires().await;
}
