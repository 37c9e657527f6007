//! Tests of releases and leaves that get a late reply, or none.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proto::Command;
use proto::node::RequestGroup;
use tokio::time::Instant;

use super::{soon, wait_as};
use crate::api::builder::new_node;
use crate::api::locks::Locks;
use crate::node::Inbox;
use crate::store::memory::MemoryStore;
use crate::store::{Replied, Store, Then};

/// A store that keeps back the replies to the releases, force releases and leaves of the lock
/// `silent`.
#[derive(Clone, Debug)]
pub(super) struct Keeping {
    store: Arc<dyn Store>,
    pub(super) kept: Kept,
}

/// The replies that the store keeps back.
#[derive(Clone, Default)]
pub(super) struct Kept(Arc<Mutex<Vec<(Then, RequestGroup, Replied)>>>);

impl Kept {
    /// Passes on the replies kept back until now, and returns how many.
    pub(super) fn pass_on(&self) -> usize {
        let kept = std::mem::take(&mut *self.0.lock().expect("no panic"));
        kept.into_iter().map(|(then, group, replied)| then.take(group, replied)).count()
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Keeping {
    /// Creates the store of a node on `store`, and the node's `Locks`.
    pub(super) fn start(store: &MemoryStore, request_timeout: Duration) -> (Self, Locks) {
        let (node, inbox) = (new_node(), Inbox::default());
        let store = store.connect(node.clone(), Arc::new(inbox.clone()));
        let store = Self { store, kept: Kept::default() };
        let builder = Locks::builder().request_timeout(request_timeout);
        let locks = builder.build(Arc::new(store.clone()), node, &inbox);
        (store, locks)
    }
}

impl Store for Keeping {
    fn now_us(&self) -> u64 {
        self.store.now_us()
    }

    fn send(&self, group: RequestGroup, then: Then) {
        let is_end = matches!(
            group[0].command,
            Command::Release { .. } | Command::ForceRelease { .. } | Command::Leave { .. }
        );
        if !is_end || group[0].lock.as_str() != "silent" {
            return self.store.send(group, then);
        }
        let kept = self.kept.clone();
        let keep = move |group, replied| {
            kept.0.lock().expect("no panic").push((then, group, replied));
        };
        self.store.send(group, Then::call(keep));
    }

    delegate_to_store!();
}

// For example, because one primary of a Redis Cluster does not respond.
#[tokio::test(start_paused = true)]
async fn a_shutdown_releases_its_holds_in_time_although_a_leave_gets_no_reply() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
    for timeout in [Duration::ZERO, TIMEOUT] {
        let store = MemoryStore::new();
        let other = Locks::builder().on_memory(&store).expect("options");
        let (keeping, locks) = Keeping::start(&store, REQUEST_TIMEOUT);
        let _theirs = other.lock("silent").await.expect("free");
        let waiting = wait_as(1, &locks, "silent").await;
        let guard = locks.lock("key").await.expect("free");
        let start = Instant::now();
        let lost = async {
            guard.lost().await;
            start.elapsed()
        };
        let (report, lost) = soon(async { tokio::join!(locks.shutdown(timeout), lost) }).await;
        assert!(start.elapsed() <= timeout + REQUEST_TIMEOUT + Duration::from_millis(2));
        assert!(lost <= timeout.max(REQUEST_TIMEOUT / 2) + Duration::from_millis(2), "{lost:?}");
        assert_eq!((report.waiters, report.holds), (1, 1));
        assert_eq!(report.unreleased, 1, "of the leave alone is nothing known");
        assert!(soon(waiting).await.expect("no panic").is_err());
        assert!(keeping.kept.pass_on() > 0);
    }
}
