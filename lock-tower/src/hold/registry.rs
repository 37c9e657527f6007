//! The registry of a request's locks.
//!
//! # Implementation notes
//!
//! **Mutex order**: first the registry's mutex, then the mutex of one record. Guards, logs and
//! wakers are dropped, released and woken while neither is locked, because they write logs, or call
//! foreign code that may request a lock.
//!
//! **A lock can be acquired while the response is being sent**, by a task spawned by the handler.
//! So a scope (a layer open for such locks) and its locks change in one critical section. A lock
//! either enters the registry before the scope closes and releases it, or is refused and released
//! at once.
//!
//! **The layer's future watches for losses.** A lock acquired by another task wakes this future, so
//! that it also watches the new lock.
//!
//! **A lock that is added wakes the request's pending acquires**, so that they share it. Otherwise
//! two concurrent acquires of a name would wait for each other: the second is queued behind the
//! first, whose lock is released with the response. Each acquire has one waker here, and looks only
//! at the locks that are new to it, because a request may have many of both.
//!
//! **A released lock stays in the registry until a later lock enters**, because handles look up
//! earlier locks. So a request that acquires and releases one lock after the other keeps at most
//! two entries: the first and the last. But a lock whose loss has stopped work stays, so that the
//! layer stops, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};

use lockcore::LockGuard;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::hold::guard::Granted;
use crate::hold::record::HoldRecord;
use crate::hold::request_log::RequestLog;

/// A request's locks, in the order in which they were added: call by call, and the locks of a
/// call by demand, so that the last is the lock that protects writes.
///
/// Each request has one registry, shared by its layers, handles and `RequestLocks`. Each layer
/// releases the locks that are marked with the layer's number.
#[derive(Debug, Default)]
pub struct HoldRegistry {
    /// The first lock. Stored inline, so that a request with a single lock, as nearly all have,
    /// needs no further allocation.
    first: OnceLock<HoldRecord>,
    inner: Mutex<RegistryState>,
}

/// Where a [`HoldRegistry`] stores the record of a lock: `None` for the first lock, whose record is
/// inside the registry itself.
pub(crate) type Location = Option<Arc<HoldRecord>>;

#[derive(Debug, Default)]
struct RegistryState {
    /// All locks after the first, in order. When another lock is added, released locks are removed,
    /// except for locks whose loss has stopped work.
    later: Vec<Arc<HoldRecord>>,
    /// The number of layers that have registered for the request so far. The latest layer has this
    /// number.
    layers: usize,
    /// The number of locks that the request has acquired so far, including released locks.
    acquired: usize,
    /// The `LockScopeLayer`s of the request whose response is not ready yet. Extractors and
    /// handlers can acquire locks only for these layers.
    scopes: Vec<LayerScope>,
    /// The wakers of the request's pending acquires, by the number of the acquire. Taken out and
    /// woken when a lock is added.
    acquires: BTreeMap<u64, Waker>,
    /// The number of the latest acquire that has waited; 0 if there is none.
    last_acquire: u64,
}

/// A `LockScopeLayer` whose response is not ready yet, so that extractors and handlers can still
/// acquire locks for it.
#[derive(Debug)]
struct LayerScope {
    layer: usize,
    /// The data for the request's log event; `None` until a lock is requested.
    log: Option<RequestLog>,
    /// Wakes the layer's future when a lock is added, so that the future also watches the new lock;
    /// `None` if the future does not watch for losses, and after it was woken.
    waker: Option<Waker>,
    /// True if a lock was added that the layer's future does not watch yet.
    is_unwatched: bool,
    /// Cancelled when the scope closes, to end the waits for its locks; `None` until a wait.
    closed: Option<CancellationToken>,
}

impl HoldRegistry {
    /// Registers another layer of the request, and returns the number of this layer: 1 for the
    /// first.
    pub(crate) fn add_layer(&self) -> usize {
        let mut inner = self.lock();
        inner.layers += 1;
        inner.layers
    }

    /// Registers a `LockScopeLayer`, for which extractors and handlers can acquire locks until
    /// [`close_scope`](Self::close_scope). Returns the layer's number.
    pub(crate) fn open_scope(&self) -> usize {
        let layer = self.add_layer();
        let scope = LayerScope { layer, log: None, waker: None, is_unwatched: false, closed: None };
        self.lock().scopes.push(scope);
        layer
    }

    /// Closes the scope of this layer: no more locks can be acquired for it, and waits end. Returns
    /// the scope's log; `None` if no lock was requested, or if the scope is not open.
    pub(crate) fn close_scope(&self, layer: usize) -> Option<RequestLog> {
        let mut inner = self.lock();
        let at = inner.scopes.iter().position(|scope| scope.layer == layer)?;
        let scope = inner.scopes.swap_remove(at);
        drop(inner);
        scope.closed.iter().for_each(CancellationToken::cancel);
        scope.log
    }

    /// Completes when this layer's scope closes; at once if it is closed.
    pub(crate) async fn closed(&self, layer: usize) {
        let closed =
            self.lock().scope(layer).map(|scope| scope.closed.get_or_insert_default().clone());
        if let Some(closed) = closed {
            closed.cancelled().await;
        }
    }

    /// Calls `write` with the log of this layer's scope, which is created if necessary. Returns
    /// `None`, without calling `write`, if the scope is closed.
    pub(crate) fn log(&self, layer: usize, write: impl FnOnce(&mut RequestLog)) -> Option<()> {
        let mut inner = self.lock();
        write(inner.scope(layer)?.log.get_or_insert_with(RequestLog::begin));
        Some(())
    }

    /// Adds a granted lock, to be released by the layer with the number `layer`. Returns where the
    /// lock's record is stored.
    pub(crate) fn add(&self, layer: usize, granted: Granted, config: &Config) -> Location {
        let mut inner = self.lock();
        let location = self.insert(&mut inner, layer, granted, config);
        let acquires = std::mem::take(&mut inner.acquires);
        drop(inner);
        acquires.into_values().for_each(Waker::wake);
        location
    }

    /// Wakes the task of `cx` when a lock is added. The waker replaces the one stored under the
    /// number `acquire`, which the first call sets. Returns false instead if a lock with a number
    /// above `seen` was acquired.
    pub(crate) fn wakes(&self, acquire: &mut Option<u64>, seen: usize, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let mut inner = self.lock();
        if inner.acquired > seen {
            drop(inner); // unlocked before the waker is dropped
            return false;
        }
        let number = *acquire.get_or_insert_with(|| {
            inner.last_acquire += 1;
            inner.last_acquire
        });
        let before = inner.acquires.insert(number, waker);
        drop(inner);
        drop(before);
        true
    }

    /// Removes the waker of the acquire with this number, which no longer waits.
    pub(crate) fn forget_waker(&self, acquire: u64) {
        let waker = self.lock().acquires.remove(&acquire); // dropped after the mutex is unlocked
        drop(waker);
    }

    /// Adds granted locks to this layer's scope, and wakes the layer's future to watch them.
    /// Returns where the records are stored. Returns `None` if the scope is closed: then the guards
    /// are dropped, which releases the locks.
    pub(crate) fn add_all(
        &self,
        layer: usize,
        granted: impl Iterator<Item = Granted>,
        config: &Config,
    ) -> Option<Vec<Location>> {
        let mut inner = self.lock(); // unlocked before the guards are dropped
        let scope = inner.scope(layer)?;
        scope.is_unwatched = true;
        let waker = scope.waker.take();
        let locations =
            granted.map(|granted| self.insert(&mut inner, layer, granted, config)).collect();
        let acquires = std::mem::take(&mut inner.acquires);
        drop(inner);
        waker.into_iter().chain(acquires.into_values()).for_each(Waker::wake);
        Some(locations)
    }

    fn insert(
        &self,
        inner: &mut RegistryState,
        layer: usize,
        granted: Granted,
        config: &Config,
    ) -> Location {
        inner.acquired += 1;
        let held = HoldRecord::new((layer, inner.acquired), granted, &config.locks, config.on_lost);
        let held = Arc::new(self.first.set(held).err()?);
        inner.later.retain(|held| !held.is_released() || held.is_lost());
        inner.later.push(Arc::clone(&held));
        Some(held)
    }

    /// Returns true if this layer has locks that the layer's future does not watch yet. The caller
    /// is this future, and watches them from now on. Stores the task's waker, which is woken when
    /// another lock is added.
    ///
    /// A layer without a scope (`HttpLockLayer`) adds all locks before the future watches any. For
    /// such a layer the method returns `is_first`, which is true if the future watches no lock yet.
    pub(crate) fn is_unwatched(&self, layer: usize, is_first: bool, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let mut inner = self.lock();
        let Some(scope) = inner.scope(layer) else { return is_first };
        let before = scope.waker.replace(waker);
        let is_unwatched = scope.is_unwatched;
        scope.is_unwatched = false;
        drop(inner);
        drop(before);
        is_unwatched
    }

    pub(crate) fn record_at<'a>(&'a self, location: &'a Location) -> &'a HoldRecord {
        match location {
            Some(held) => held,
            None => self.first.get().expect("a location is created with its record"),
        }
    }

    /// Returns the locations of all locks, in order.
    pub(crate) fn locations(&self) -> impl Iterator<Item = Location> + use<> {
        self.locations_after(&mut 0)
    }

    /// Returns the locations of the locks with a number above `seen`, in order. Sets `seen` to the
    /// number of the latest lock.
    pub(crate) fn locations_after(
        &self,
        seen: &mut usize,
    ) -> impl Iterator<Item = Location> + use<> {
        let inner = self.lock();
        let first = self.first.get().filter(|held| held.number > *seen).map(|_| None);
        let new = inner.later.partition_point(|held| held.number <= *seen);
        let later = inner.later[new..].to_vec();
        *seen = inner.acquired;
        drop(inner);
        first.into_iter().chain(later.into_iter().map(Some))
    }

    /// Counts the locks of this layer for which `is` returns true.
    pub(crate) fn count(&self, layer: usize, is: impl Fn(&HoldRecord) -> bool) -> usize {
        let inner = self.lock();
        let all = self.first.get().into_iter().chain(inner.later.iter().map(|held| &**held));
        all.filter(|held| held.layer == layer && is(held)).count()
    }

    /// Removes this layer from the keepers of each of its locks. Returns the guards of the locks
    /// that have no other keeper, for the caller to release. The other locks stay held for detached
    /// work.
    pub(crate) fn remove_layer(&self, layer: usize) -> impl Iterator<Item = LockGuard> + use<> {
        let is_own = |held: &&HoldRecord| held.layer == layer;
        let first = self.first.get().filter(is_own).and_then(HoldRecord::remove_keeper);
        let inner = self.lock();
        let later = inner.later.iter().map(|held| &**held).filter(is_own);
        let later: Vec<_> = later.filter_map(HoldRecord::remove_keeper).collect();
        first.into_iter().chain(later)
    }

    /// Locks the mutex, even if poisoned, because no critical section panics half way.
    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    fn scope(&mut self, layer: usize) -> Option<&mut LayerScope> {
        self.scopes.iter_mut().find(|scope| scope.layer == layer)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use lockcore::{Demand, LockKey, Locks};

    use super::*;
    use crate::hold::handle::LockHandle;
    use crate::hold::loss::Loss;
    use crate::key::KeyDemand;

    #[tokio::test]
    async fn a_lock_whose_loss_has_stopped_work_counts_although_it_is_released_and_another_enters()
    {
        let locks = Locks::in_memory();
        let config = Config::new(locks.clone());
        let holds = Arc::new(HoldRegistry::default());
        let layer = holds.open_scope();
        let add = async |name: &str| {
            let key = LockKey::new(name).expect("a name");
            let want = KeyDemand { key, demand: Demand::EXCLUSIVE };
            let guard = locks.lock(name).await.expect("granted");
            LockHandle::new(&holds, holds.add(layer, Granted { want, guard }, &config))
        };
        add("first").await;
        let lost = add("lost").await;
        assert!(lost.held().stops_work());
        lost.held().release().await.expect("held");
        add("last").await;
        assert!(Loss::of_layer(&holds, layer).now_or_never().is_some());
    }
}
