//! Tests of grants whose message is lost, or that go to a node that receives no messages.

use std::time::Duration;

use super::{granted, soon, wait_as};
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;
use crate::types::options::LockOptions;

fn two_nodes(store: &MemoryStore) -> [Locks; 2] {
    let options = LockOptions::new().lease(Duration::from_millis(1_500));
    [(); 2].map(|()| Locks::builder().defaults(options).on_memory(store).expect("options"))
}

// L1, F2: touches find the grant, while most of the claim is left.
#[tokio::test(start_paused = true)]
async fn a_grant_whose_message_is_lost_is_found_by_a_touch() {
    let store = MemoryStore::new();
    let [a, b] = two_nodes(&store);
    store.set_lossy(b.node(), true);
    for _ in 0..3 {
        let guard = a.lock("key").await.expect("free");
        let first = wait_as(1, &b, "key").await;
        let second = wait_as(2, &b, "key").await;
        guard.release().await.expect("held until now");
        granted(first).await.release().await.expect("held until now");
        granted(second).await.release().await.expect("held until now");
    }
    assert_eq!(b.status().positions_lost, 0);
}

// Finding 14, L1: a node that the store does not count is skipped, and still gets its turn.
#[tokio::test(start_paused = true)]
async fn a_deaf_node_takes_a_free_lock_by_its_touches() {
    let store = MemoryStore::new();
    let [a, b] = two_nodes(&store);
    let guard = a.lock("key").await.expect("free");
    let deaf = wait_as(1, &b, "key").await;
    let hearing = wait_as(2, &a, "key").await;
    store.set_deaf(b.node(), true);
    guard.release().await.expect("held until now");
    granted(hearing).await.release().await.expect("held until now");
    let guard = granted(deaf).await;
    store.set_deaf(b.node(), false);
    soon(guard.release()).await.expect("held until now");
}
