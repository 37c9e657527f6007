//! Batches: waiters of one node granted a lock together.

use futures_util::future::join_all;
use lockcore::{LockErrorKind, LockGuard, LockOptions, Locks, LocksBuilder};

use crate::backend::{
    Backend, LONG, Waiting, granted, ms, soon, until_nothing_is_left, until_waiting, wait_as,
};

on_every_store!(
    ;
    not_by_a_quorum:
    grants_follow_the_order_of_arrival_across_nodes_that_form_batches,
    members_of_a_batch_that_are_cancelled_are_skipped,
    a_release_in_mid_batch_tells_whether_the_hold_was_there,
    a_guard_in_mid_batch_that_is_dropped_lets_the_next_have_the_lock,
    a_shutdown_in_mid_batch_leaves_nothing_behind,
    a_downgrade_in_mid_batch_lets_the_others_wait_again,
    a_hold_with_an_end_of_its_own_is_granted_alone_and_ends_when_it_says,
    a_force_release_in_mid_batch_frees_the_lock_for_others_at_once,
    as_many_wait_as_the_queue_limit_allows_and_are_served_also_while_a_batch_is,
);

fn batches() -> LocksBuilder {
    Locks::builder().defaults(LockOptions::new().lease(LONG)).batch_limit(8)
}

async fn nodes<const N: usize>(backend: &Backend) -> [Locks; N] {
    let mut nodes = Vec::with_capacity(N);
    for _ in 0..N {
        nodes.push(backend.build(batches()).await);
    }
    nodes.try_into().unwrap_or_else(|_| unreachable!("so many"))
}

/// A lock held by `a`, with attempts of `b` waiting for it.
struct Queue {
    a: Locks,
    b: Locks,
    guard: LockGuard,
    waiting: Vec<Waiting>,
}

async fn queue(backend: &Backend, length: usize) -> Queue {
    let [a, b] = nodes(backend).await;
    let guard = a.lock("key").await.expect("free");
    let mut waiting = Vec::new();
    for length in 1..=length {
        waiting.push(wait_as(length, &b, "key").await);
    }
    Queue { a, b, guard, waiting }
}

async fn grants_follow_the_order_of_arrival_across_nodes_that_form_batches(backend: &Backend) {
    let nodes = nodes::<3>(backend).await;
    let mut guard = nodes[0].lock("key").await.expect("free");
    let mut tokens = vec![guard.fencing_token()];
    let mut waiting = Vec::new();
    for (length, node) in [1, 1, 1, 0, 0, 2, 1, 1, 2, 2, 2, 0, 1, 1].into_iter().enumerate() {
        waiting.push(wait_as(length + 1, &nodes[node], "key").await);
    }
    while !waiting.is_empty() {
        soon(guard.release()).await.expect("held until now");
        guard = granted(waiting.remove(0)).await;
        assert!(!guard.is_lost());
        tokens.push(guard.fencing_token());
        assert!(waiting.iter().all(|other| !other.is_finished()), "one at a time");
    }
    guard.release().await.expect("held until now");
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    until_nothing_is_left(&nodes[1], "key").await;
}

async fn members_of_a_batch_that_are_cancelled_are_skipped(backend: &Backend) {
    let Queue { a, b: _b, guard, waiting } = queue(backend, 5).await;
    let [first, second, third, fourth, fifth] = waiting.try_into().expect("five");
    first.abort();
    until_waiting(4, &a, "key").await;
    guard.release().await.expect("held until now");
    let guard = granted(second).await;
    third.abort();
    assert!(third.await.is_err());
    guard.release().await.expect("held until now");
    let guard = granted(fourth).await;
    fifth.abort();
    assert!(fifth.await.is_err());
    guard.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_release_in_mid_batch_tells_whether_the_hold_was_there(backend: &Backend) {
    let Queue { a, b: _b, guard, mut waiting } = queue(backend, 3).await;
    guard.release().await.expect("held until now");
    let guard = granted(waiting.remove(0)).await;
    soon(guard.release()).await.expect("held until now");
    let guard = granted(waiting.remove(0)).await;
    assert!(a.force_release("key").await.expect("answered"));
    // Until its node is notified, the next member would be served, and lost at once.
    soon(guard.lost()).await;
    let error = soon(guard.release()).await.expect_err("the hold was force-released");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    // The last attempt has lost its turn, and requests the lock again.
    let guard = granted(waiting.remove(0)).await;
    soon(guard.release()).await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_guard_in_mid_batch_that_is_dropped_lets_the_next_have_the_lock(backend: &Backend) {
    let Queue { a, b: _b, guard, waiting } = queue(backend, 3).await;
    drop(guard);
    for one in waiting {
        drop(granted(one).await);
    }
    until_nothing_is_left(&a, "key").await;
}

async fn a_shutdown_in_mid_batch_leaves_nothing_behind(backend: &Backend) {
    let Queue { a, b, guard, mut waiting } = queue(backend, 3).await;
    guard.release().await.expect("held until now");
    let guard = granted(waiting.remove(0)).await;
    let shutdown = b.shutdown(ms(50)).await;
    assert_eq!((shutdown.waiters, shutdown.holds, shutdown.unreleased), (2, 1, 0));
    assert!(guard.is_lost());
    for ended in join_all(waiting).await {
        let error = ended.expect("no panic").expect_err("it was ended");
        assert_eq!(error.kind(), LockErrorKind::Closed);
    }
    drop(guard);
    until_nothing_is_left(&a, "key").await;
}

async fn a_downgrade_in_mid_batch_lets_the_others_wait_again(backend: &Backend) {
    let Queue { a, b: _b, guard, mut waiting } = queue(backend, 2).await;
    guard.release().await.expect("held until now");
    let guard = granted(waiting.remove(0)).await;
    let read = guard.downgrade().await.expect("held until now");
    until_waiting(1, &a, "key").await;
    assert!(!read.is_lost());
    soon(read.release()).await.expect("held until now");
    let guard = granted(waiting.remove(0)).await;
    guard.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_hold_with_an_end_of_its_own_is_granted_alone_and_ends_when_it_says(backend: &Backend) {
    let Queue { a, b, guard, mut waiting } = queue(backend, 2).await;
    let own = [
        LockOptions::new().fixed_lease(ms(400)),
        LockOptions::new().lease(ms(400)).max_hold(ms(400)),
    ];
    for (options, length) in own.into_iter().zip([3, 4]) {
        waiting.push(tokio::spawn(b.key("key").options(options).lock()));
        until_waiting(length, &a, "key").await;
    }
    waiting.push(wait_as(5, &b, "key").await);
    guard.release().await.expect("held until now");
    until_waiting(4, &a, "key").await;
    for _ in 0..2 {
        let guard = granted(waiting.remove(0)).await;
        soon(guard.release()).await.expect("held until now");
    }
    for left in [2, 1] {
        let guard = granted(waiting.remove(0)).await;
        until_waiting(left, &a, "key").await;
        soon(guard.lost()).await;
    }
    let guard = granted(waiting.remove(0)).await;
    assert!(!guard.is_lost());
    soon(guard.release()).await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_force_release_in_mid_batch_frees_the_lock_for_others_at_once(backend: &Backend) {
    let Queue { a, b: _b, guard, mut waiting } = queue(backend, 3).await;
    guard.release().await.expect("held until now");
    let guard = granted(waiting.remove(0)).await;
    let other = wait_as(3, &a, "key").await;
    assert!(a.force_release("key").await.expect("answered"));
    // The unserved members of the batch request again, behind it.
    let others = granted(other).await;
    soon(guard.lost()).await;
    until_waiting(2, &a, "key").await;
    assert!(others.fencing_token() > guard.fencing_token());
    drop(guard);
    soon(others.release()).await.expect("held until now");
    for one in waiting {
        soon(granted(one).await.release()).await.expect("held until now");
    }
    until_nothing_is_left(&a, "key").await;
}

#[tokio::test]
async fn a_batch_has_at_least_one_member_and_at_most_64() {
    for members in [0, 65] {
        let store = lockcore::MemoryStore::new();
        let error = Locks::builder().batch_limit(members).on_memory(&store).expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        let expected = format!("batch_limit is {members}: it must be 1 to 64");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

async fn as_many_wait_as_the_queue_limit_allows_and_are_served_also_while_a_batch_is(
    backend: &Backend,
) {
    let [a, b] = nodes(backend).await;
    let guard = a.lock("key").await.expect("free");
    let (sender, mut guards) = tokio::sync::mpsc::unbounded_channel();
    // This many are refused.
    let ask = async |node: &Locks| {
        let outcomes = (0..15).map(|_| {
            let (request, sender) = (node.key("key").queue_limit(10).lock(), sender.clone());
            tokio::spawn(async move {
                match request.await {
                    Ok(guard) => sender.send(Ok(guard)).expect("the test goes on"),
                    Err(error) => sender.send(Err(error.kind())).expect("the test goes on"),
                }
            })
        });
        outcomes.collect::<Vec<_>>()
    };
    let mut tasks = ask(&b).await;
    let refused = |outcome| assert_eq!(outcome, Some(LockErrorKind::QueueFull));
    for _ in 0..5 {
        refused(soon(guards.recv()).await.expect("an outcome").err());
    }
    until_waiting(10, &a, "key").await;
    guard.release().await.expect("held until now");
    let mut held = soon(guards.recv()).await.expect("an outcome").expect("the first is served");
    // One attempt has gone on, so there is room for another.
    tasks.extend(ask(&b).await);
    for _ in 0..14 {
        refused(soon(guards.recv()).await.expect("an outcome").err());
    }
    until_waiting(10, &a, "key").await;
    for _ in 0..10 {
        held.release().await.expect("held until now");
        held = soon(guards.recv()).await.expect("an outcome").expect("each that waits is served");
    }
    held.release().await.expect("held until now");
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    until_nothing_is_left(&a, "key").await;
}
