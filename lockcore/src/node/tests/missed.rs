//! Tests of grants that the caller does not take in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::poll;
use proto::node::RequestGroup;
use proto::{Command, LockErrorKind};
use tokio::time::sleep;

use super::{SOON, soon};
use crate::api::builder::new_node;
use crate::api::locks::Locks;
use crate::node::Inbox;
use crate::store::memory::MemoryStore;
use crate::store::{Store, Then};

/// A store that counts the acquires.
#[derive(Debug)]
struct Counting {
    store: Arc<dyn Store>,
    acquires: Arc<AtomicUsize>,
}

impl Store for Counting {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        let acquires = group.iter().filter(|one| matches!(one.command, Command::Acquire { .. }));
        self.acquires.fetch_add(acquires.count(), Ordering::Relaxed);
        self.store.send(group, then);
    }

    delegate_to_store!();
}

// Where a process polls late, each wait that has timed out would cost two more requests.
#[tokio::test(start_paused = true)]
async fn a_wait_polled_after_its_end_does_not_request_the_lock_again_that_it_has_missed() {
    let memory = MemoryStore::new();
    let other = Locks::builder().on_memory(&memory).expect("options");
    let (node, inbox) = (new_node(), Inbox::default());
    let store = memory.connect(node.clone(), Arc::new(inbox.clone()));
    let acquires = Arc::new(AtomicUsize::new(0));
    let counting = Counting { store, acquires: Arc::clone(&acquires) };
    let locks = Locks::builder().build(Arc::new(counting), node, &inbox);
    let held = other.lock("key").await.expect("free");
    let mut wait = Box::pin(locks.key("key").wait(Duration::from_secs(1)).lock());
    assert!(poll!(wait.as_mut()).is_pending());
    held.release().await.expect("held until now");
    // Longer than a claim.
    sleep(SOON).await;
    assert_eq!(locks.status().positions_lost, 1, "the lock was granted and released");
    let error = soon(wait).await.expect_err("its wait is over");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    sleep(SOON).await;
    assert_eq!(acquires.load(Ordering::Relaxed), 1);
}

// No request had succeeded meanwhile, because none was sent.
#[tokio::test(start_paused = true)]
async fn a_wait_without_a_limit_that_is_polled_late_requests_the_lock_again() {
    let memory = MemoryStore::new();
    let [a, b] = [(); 2].map(|()| Locks::builder().on_memory(&memory).expect("options"));
    let held = a.lock("key").await.expect("free");
    let mut wait = Box::pin(b.lock("key"));
    assert!(poll!(wait.as_mut()).is_pending());
    held.release().await.expect("held until now");
    sleep(Duration::from_secs(3_600)).await;
    drop(soon(wait).await.expect("free"));
}
