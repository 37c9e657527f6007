//! Tests of waits that end while their lock's server is away.

use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use proto::node::RequestGroup;
use proto::{LockName, StoreError};
use tokio::time::{Instant, advance};

use super::soon;
use crate::LockErrorKind;
use crate::api::builder::new_node;
use crate::api::locks::Locks;
use crate::node::Inbox;
use crate::store::memory::MemoryStore;
use crate::store::{Outage, Store, Then};

/// A store with two servers, as on a Redis Cluster. The lock `away` has a disconnected server.
#[derive(Debug)]
struct Half {
    store: Arc<dyn Store>,
}

/// The disconnected server's error.
const WHY: &str = "connection refused";

impl Store for Half {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        self.store.send(group, then);
    }

    fn why_down(&self, lock: &LockName) -> Option<StoreError> {
        let is_away = lock.as_str() == "away";
        is_away.then(|| StoreError::refused(LockErrorKind::Unavailable, WHY))
    }

    delegate_to_store!();
}

// Under `fail_open`, the first request would otherwise be refused for the whole outage.
#[tokio::test(start_paused = true)]
async fn a_queued_wait_that_ends_while_its_own_server_is_away_is_an_outage() {
    let (node, inbox) = (new_node(), Inbox::default());
    let store = MemoryStore::new().connect(node.clone(), Arc::new(inbox.clone()));
    let locks = Locks::builder().build(Arc::new(Half { store }), node, &inbox);
    for (name, kind) in [("away", LockErrorKind::Unavailable), ("here", LockErrorKind::Timeout)] {
        let held = soon(locks.lock(name)).await.expect("free");
        let wait = locks.key(name).wait(Duration::from_secs(1)).lock();
        let error = soon(wait).await.expect_err("held");
        assert_eq!((error.kind(), error.is_outage()), (kind, name == "away"), "{error}");
        drop(held);
    }
}

/// A store with an outage. Time passes while a caller asks for the outage.
#[derive(Debug)]
struct Passing {
    store: Arc<dyn Store>,
    away_since: Instant,
}

impl Store for Passing {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        self.store.send(group, then);
    }

    fn outage(&self, _: &LockName, _: bool) -> Option<Outage> {
        let since = self.away_since;
        if since > Instant::now() {
            return None;
        }
        // The first poll moves the clock.
        let passing = pin!(advance(Duration::from_secs(1)));
        let _ = passing.poll(&mut Context::from_waker(Waker::noop()));
        Some(Outage { since, error: StoreError::refused(LockErrorKind::Unavailable, WHY) })
    }

    delegate_to_store!();
}

// It ended by the limit of its wait, a minute before it was reached: without an outage.
#[tokio::test(start_paused = true)]
async fn a_wait_whose_store_wait_ends_between_two_looks_at_the_clock_is_an_outage() {
    let (node, inbox) = (new_node(), Inbox::default());
    let store = MemoryStore::new().connect(node.clone(), Arc::new(inbox.clone()));
    let away_since = Instant::now() + Duration::from_millis(500);
    let locks = Locks::builder().build(Arc::new(Passing { store, away_since }), node, &inbox);
    let _held = soon(locks.lock("key")).await.expect("free");
    let wait = locks.key("key").wait(Duration::from_secs(60)).leave_in_outage(true);
    let wait = wait.store_wait(Duration::from_secs(1));
    let error = soon(wait.lock()).await.expect_err("held");
    assert_eq!((error.kind(), error.is_outage()), (LockErrorKind::Unavailable, true), "{error}");
}
