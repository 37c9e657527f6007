//! The order of grants.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use lockcore::FencingToken;

use crate::backend::{Backend, granted, soon, until_nothing_is_left, until_waiting, wait_as};

on_every_store!(
    grants_follow_the_order_of_arrival_across_nodes_and_within_one,
    futures_of_one_task_are_served_in_the_order_in_which_they_were_polled,
    a_try_takes_a_free_lock_and_never_passes_a_queue,
    a_newcomer_never_passes_a_queue_however_often_the_lock_changes_hands,
);

// F1, S3.
async fn grants_follow_the_order_of_arrival_across_nodes_and_within_one(backend: &Backend) {
    let nodes = backend.nodes::<3>().await;
    let guard = nodes[0].lock("key").await.expect("free");
    let mut tokens = vec![guard.fencing_token()];
    let mut waiting = Vec::new();
    for (length, node) in [1, 0, 0, 2, 1, 2, 2, 0, 1, 1].into_iter().enumerate() {
        waiting.push(wait_as(length + 1, &nodes[node], "key").await);
    }
    let mut guard = guard;
    while !waiting.is_empty() {
        guard.release().await.expect("held until now");
        guard = granted(waiting.remove(0)).await;
        tokens.push(guard.fencing_token());
        assert!(waiting.iter().all(|other| !other.is_finished()), "one at a time");
    }
    guard.release().await.expect("held until now");
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
    until_nothing_is_left(&nodes[1], "key").await;
}

// F1.
async fn futures_of_one_task_are_served_in_the_order_in_which_they_were_polled(backend: &Backend) {
    let locks = backend.node().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let sections = (0..20).map(|number| {
        let locks = locks.clone();
        let order = Arc::clone(&order);
        async move {
            let guard = locks.lock("key").await.expect("granted");
            let token: FencingToken = guard.fencing_token();
            order.lock().unwrap_or_else(PoisonError::into_inner).push((number, token));
            guard.release().await.expect("held until now");
        }
    });
    soon(join_all(sections)).await;
    let order = order.lock().unwrap_or_else(PoisonError::into_inner);
    let numbers: Vec<_> = order.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert!(order.is_sorted_by(|earlier, later| earlier.1 < later.1), "{order:?}");
}

async fn a_try_takes_a_free_lock_and_never_passes_a_queue(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.try_lock("key").await.expect("an answer").expect("free");
    assert!(b.try_lock("key").await.expect("an answer").is_none());
    assert!(a.try_lock("key").await.expect("an answer").is_none(), "not re-entrant by itself");
    let waiting = wait_as(1, &b, "key").await;
    guard.release().await.expect("held until now");
    assert!(a.try_lock("key").await.expect("an answer").is_none());
    granted(waiting).await.release().await.expect("held until now");
    let guard = a.try_lock("key").await.expect("an answer").expect("free again");
    guard.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
}

async fn a_newcomer_never_passes_a_queue_however_often_the_lock_changes_hands(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    for _ in 0..20 {
        let guard = a.lock("key").await.expect("free");
        let first = wait_as(1, &b, "key").await;
        let newcomer = async {
            let second = tokio::spawn(a.lock("key"));
            until_waiting(1, &a, "key").await;
            [second]
        };
        let (released, [second]) = tokio::join!(guard.release(), newcomer);
        released.expect("held until now");
        let first = granted(first).await;
        assert!(!second.is_finished());
        first.release().await.expect("held until now");
        granted(second).await.release().await.expect("held until now");
    }
}
