//! Tests of the log while a server refuses all writes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use proto::node::RequestGroup;
use proto::{Command, LockErrorKind, StoreError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

use super::foreign::ANOTHER;
use crate::api::builder::new_node;
use crate::api::guard::LockGuard;
use crate::api::locks::Locks;
use crate::node::Inbox;
use crate::store::memory::MemoryStore;
use crate::store::{Store, Then};

/// A store that refuses renewals while `is_full`, as a server with a full disk does.
#[derive(Clone, Debug)]
struct Refusing {
    store: Arc<dyn Store>,
    is_full: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
}

impl Store for Refusing {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        let is_renewal = matches!(group[0].command, Command::Renew { .. });
        if is_renewal && self.is_full.load(Ordering::Relaxed) {
            self.refused.fetch_add(group.len(), Ordering::Relaxed);
            let error = StoreError::refused(LockErrorKind::ReadOnly, "MISCONF no disk");
            return then.take(group, Err(error));
        }
        self.store.send(group, then);
    }

    delegate_to_store!();
}

/// A subscriber that counts the warnings, and adds their fields `left_out`.
#[derive(Debug, Default)]
struct Warnings {
    logged: AtomicUsize,
    left_out: AtomicUsize,
}

impl Visit for &Warnings {
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "left_out" {
            self.left_out.fetch_add(value as usize, Ordering::Relaxed);
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.logged.fetch_add(1, Ordering::Relaxed);
        event.record(&mut &*self);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn many_holds_that_are_not_renewed_cost_few_warnings_which_count_the_others() {
    const HOLDS: usize = 2_000;
    LazyLock::force(&ANOTHER);
    let warnings = Dispatch::new(Warnings::default());
    let _guard = tracing::dispatcher::set_default(&warnings);
    let (node, inbox) = (new_node(), Inbox::default());
    let store = MemoryStore::new().connect(node.clone(), Arc::new(inbox.clone()));
    let store = Refusing { store, is_full: Arc::default(), refused: Arc::default() };
    let locks = Locks::builder().build(Arc::new(store.clone()), node, &inbox);
    let mut guards = Vec::new();
    for number in 0..HOLDS {
        guards.push(locks.lock(format!("{number}")).await.expect("free"));
    }
    store.is_full.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(15)).await;
    store.is_full.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let refused = store.refused.load(Ordering::Relaxed);
    let warnings = warnings.downcast_ref::<Warnings>().expect("this subscriber");
    let logged = warnings.logged.load(Ordering::Relaxed);
    let left_out = warnings.left_out.load(Ordering::Relaxed);
    assert!(refused > HOLDS && logged < 50, "{logged} of {refused} are logged");
    assert!(
        (refused - logged..refused).contains(&left_out),
        "{left_out} of {refused} are left out"
    );
    assert!(!guards.iter().any(LockGuard::is_lost), "a hold is lost");
}
