//! The locks that a request acquires while an acquire of the same request waits.

use std::sync::Arc;
use std::task::Context;

use crate::hold::handle::LockHandle;
use crate::hold::registry::HoldRegistry;

/// The locks of a request at which one of its acquires has not looked yet, so that each acquire
/// looks at each lock once. Dropping this value removes the acquire's waker from the registry.
#[derive(Debug)]
pub(crate) struct NewHolds {
    holds: Arc<HoldRegistry>,
    /// The number of the last lock at which the acquire has looked; 0 if there is none.
    seen: usize,
    /// The number under which the registry keeps the acquire's waker; `None` before the first wait.
    acquire: Option<u64>,
}

impl NewHolds {
    pub(crate) fn new(holds: Arc<HoldRegistry>) -> Self {
        Self { holds, seen: 0, acquire: None }
    }

    pub(crate) fn registry(&self) -> &Arc<HoldRegistry> {
        &self.holds
    }

    /// Returns handles to all locks of the request, for an acquire that begins.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = LockHandle> + use<> {
        self.seen = 0;
        self.added()
    }

    /// Returns handles to the locks that were added since the last call of this method or of
    /// [`all`](Self::all).
    pub(crate) fn added(&mut self) -> impl Iterator<Item = LockHandle> + use<> {
        let holds = Arc::clone(&self.holds);
        let locations = holds.locations_after(&mut self.seen);
        locations.map(move |location| LockHandle::new(&holds, location))
    }

    /// Wakes the task of `cx` when a lock is added. Returns false instead if there are locks at
    /// which the acquire has not looked.
    pub(crate) fn wakes(&mut self, cx: &Context<'_>) -> bool {
        self.holds.wakes(&mut self.acquire, self.seen, cx)
    }
}

impl Drop for NewHolds {
    fn drop(&mut self) {
        self.acquire.into_iter().for_each(|acquire| self.holds.forget_waker(acquire));
    }
}

#[cfg(test)]
mod tests {
    use lockcore::{Demand, LockKey, Locks};

    use super::*;
    use crate::config::Config;
    use crate::hold::guard::Granted;
    use crate::key::KeyDemand;

    #[tokio::test]
    async fn an_acquire_looks_at_each_lock_once() {
        let locks = Locks::in_memory();
        let config = Config::new(locks.clone());
        let holds = Arc::new(HoldRegistry::default());
        let layer = holds.open_scope();
        let mut new = NewHolds::new(Arc::clone(&holds));
        let mut seen = Vec::new();
        for names in [&["first"][..], &[], &["second", "third"], &["fourth"]] {
            for name in names {
                let key = LockKey::new(*name).expect("a name");
                let want = KeyDemand { key, demand: Demand::EXCLUSIVE };
                let guard = locks.lock(*name).await.expect("granted");
                holds.add(layer, Granted { want, guard }, &config);
            }
            seen.push(new.added().map(|lock| lock.key().into_owned()).collect::<Vec<_>>());
        }
        assert_eq!(seen, [vec!["first"], vec![], vec!["second", "third"], vec!["fourth"]]);
        assert_eq!(new.all().count(), 4);
        assert_eq!(new.added().count(), 0);
    }
}
