//! The registry of one request's holds.
//!
//! # Implementation notes
//!
//! **The order of mutexes** is: the registry, then one hold. Guards, logs and wakers are dropped,
//! released and woken while neither is locked: they log, or are foreign code that may ask for a
//! lock.
//!
//! **A lock can be acquired while the response is on its way**, by a task that the handler has
//! spawned. So the state of a scope and its holds change in one section of the mutex. A lock either
//! enters the registry before the scope closes, which then releases it, or it is refused and
//! released at once.
//!
//! **The layer's future watches for losses.** A lock that another task acquires wakes that future,
//! so that it watches the new hold, too.
//!
//! **A released hold stays in the registry until a later hold enters**, since handles look for the
//! holds before theirs. So a request that acquires and releases one lock after the other keeps two
//! entries at most: the first, and the last.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};

use lockcore::LockGuard;

use crate::config::Config;
use crate::hold::guard::Granted;
use crate::hold::record::HoldRecord;
use crate::hold::request_log::RequestLog;

/// The holds of a request, in the order in which they were acquired.
///
/// Each request has one registry, which its layers, handles and `RequestLocks` share. Each layer
/// releases the holds that have its number.
#[derive(Debug, Default)]
pub struct HoldRegistry {
    /// The first hold. Nearly all requests acquire one lock, and so the registry and the hold are
    /// one allocation.
    first: OnceLock<HoldRecord>,
    inner: Mutex<RegistryState>,
}

/// The location of a hold: `None` for the first one, which is in the registry itself.
pub(crate) type Location = Option<Arc<HoldRecord>>;

#[derive(Debug, Default)]
struct RegistryState {
    later: Vec<Arc<HoldRecord>>,
    /// The number of layers that the request has passed.
    layers: usize,
    /// The number of holds that were acquired.
    acquired: usize,
    scopes: Vec<LayerScope>,
}

/// A layer whose locks are acquired further inside, while it is open.
#[derive(Debug)]
struct LayerScope {
    layer: usize,
    /// Begins with the first lock that was asked for.
    log: Option<RequestLog>,
    /// The waker of the layer's future, while that is pending.
    waker: Option<Waker>,
    /// Whether there are holds that the layer's future does not watch yet.
    is_unwatched: bool,
}

impl HoldRegistry {
    /// Adds a layer, and returns its number.
    pub(crate) fn add_layer(&self) -> usize {
        let mut inner = self.lock();
        inner.layers += 1;
        inner.layers
    }

    /// Opens a scope for one more layer, whose locks are acquired further inside, and returns the
    /// layer's number.
    pub(crate) fn open_scope(&self) -> usize {
        let layer = self.add_layer();
        let scope = LayerScope { layer, log: None, waker: None, is_unwatched: false };
        self.lock().scopes.push(scope);
        layer
    }

    /// Closes the scope of this layer: no lock is acquired for it from now on. Returns the log of a
    /// scope in which a lock was asked for.
    pub(crate) fn close_scope(&self, layer: usize) -> Option<RequestLog> {
        let mut inner = self.lock();
        let at = inner.scopes.iter().position(|scope| scope.layer == layer)?;
        let scope = inner.scopes.swap_remove(at);
        drop(inner);
        scope.log
    }

    /// Writes into the log of a scope; `None` if the scope is closed.
    pub(crate) fn log(&self, layer: usize, write: impl FnOnce(&mut RequestLog)) -> Option<()> {
        let mut inner = self.lock();
        write(inner.scope(layer)?.log.get_or_insert_with(RequestLog::begin));
        Some(())
    }

    /// Adds a hold of this layer.
    pub(crate) fn add(&self, layer: usize, granted: Granted, config: &Config) -> Location {
        self.insert(&mut self.lock(), layer, granted, config)
    }

    /// Adds holds to a scope; `None` if the scope is closed.
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
        drop(inner);
        waker.into_iter().for_each(Waker::wake);
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
        inner.later.retain(|held| !held.is_released());
        inner.later.push(Arc::clone(&held));
        Some(held)
    }

    /// Whether the layer has holds that its future does not watch. With `is_first` it watches none.
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

    /// The hold at this location.
    pub(crate) fn record_at<'a>(&'a self, location: &'a Location) -> &'a HoldRecord {
        match location {
            Some(held) => held,
            None => self.first.get().expect("a location is made with its record"),
        }
    }

    /// The locations of all holds.
    pub(crate) fn locations(&self) -> impl Iterator<Item = Location> + use<> {
        let inner = self.lock();
        let first = self.first.get().map(|_| None);
        let later = inner.later.clone();
        drop(inner);
        first.into_iter().chain(later.into_iter().map(Some))
    }

    /// The number of this layer's holds for which `is` returns true.
    pub(crate) fn count(&self, layer: usize, is: impl Fn(&HoldRecord) -> bool) -> usize {
        let inner = self.lock();
        let all = self.first.get().into_iter().chain(inner.later.iter().map(|held| &**held));
        all.filter(|held| held.layer == layer && is(held)).count()
    }

    /// Removes the layer as a keeper, and returns the guards that have no other keeper.
    pub(crate) fn remove_layer(&self, layer: usize) -> impl Iterator<Item = LockGuard> + use<> {
        let is_own = |held: &&HoldRecord| held.layer == layer;
        let first = self.first.get().filter(is_own).and_then(HoldRecord::remove_keeper);
        let inner = self.lock();
        let later = inner.later.iter().map(|held| &**held).filter(is_own);
        let later: Vec<_> = later.filter_map(HoldRecord::remove_keeper).collect();
        first.into_iter().chain(later)
    }

    /// Locks the inner state. No section panics half way, so a poisoned mutex does no harm.
    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    fn scope(&mut self, layer: usize) -> Option<&mut LayerScope> {
        self.scopes.iter_mut().find(|scope| scope.layer == layer)
    }
}
