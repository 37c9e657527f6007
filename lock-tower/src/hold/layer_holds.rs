//! The locks of a request that one layer keeps and releases.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use crate::config::{Config, OnLost};
use crate::hold::acquire::AcquiredKeys;
use crate::hold::handle::LockHandle;
use crate::hold::loss::Loss;
use crate::hold::record::HoldRecord;
use crate::hold::registry::HoldRegistry;
use crate::hold::release::Releasing;
use crate::hold::request_log::RequestLog;
use crate::refusal::LockError;

/// The locks that a layer keeps for a single request, and the request's log. Both are empty for a
/// request that passes without a lock.
///
/// Dropping this value releases the locks in the background, also while unwinding.
#[derive(Default)]
pub(crate) struct LayerHolds {
    config: Option<Arc<Config>>,
    holds: Option<Arc<HoldRegistry>>,
    /// The number of this layer among the layers of the request. Each lock in `holds` is marked
    /// with the number of the layer that releases it.
    layer: usize,
    log: Option<RequestLog>,
}

impl LayerHolds {
    /// Creates the value for a `LockScopeLayer` with the number `layer`, still without locks.
    /// Extractors and handlers add locks for this layer to `holds` later.
    pub(crate) fn new(config: &Arc<Config>, holds: &Arc<HoldRegistry>, layer: usize) -> Self {
        let config = Some(Arc::clone(config));
        let holds = Some(Arc::clone(holds));
        Self { config, holds, layer, log: None }
    }

    /// Adds the acquired locks to the request's registry, and returns the handle of the last lock.
    /// In the registry, each layer of the request has a number, so that the returned value releases
    /// only the locks of its own layer.
    pub(crate) fn add(
        &mut self,
        acquired: AcquiredKeys,
        config: &Arc<Config>,
        holds: &Arc<HoldRegistry>,
    ) -> LockHandle {
        let layer = holds.add_layer();
        let handles =
            acquired.map(|granted| LockHandle::new(holds, holds.add(layer, granted, config)));
        let handle = handles.last().expect("there is at least one key");
        self.config = Some(Arc::clone(config));
        self.holds = Some(Arc::clone(holds));
        self.layer = layer;
        self.log().granted(handle.fencing_token().get());
        handle
    }

    /// Closes the scope of a `LockScopeLayer`, so that extractors and handlers can no longer
    /// acquire locks for this layer. Takes over the scope's log from the registry. Does nothing for
    /// other layers.
    pub(crate) fn close(mut self) -> Self {
        let log = self.holds.as_ref().and_then(|holds| holds.close_scope(self.layer));
        self.log = self.log.take().or(log);
        self
    }

    /// Returns the log of the request. The first call creates the log, and the request's wait is
    /// measured from then on.
    pub(crate) fn log(&mut self) -> &mut RequestLog {
        self.log.get_or_insert_with(RequestLog::begin)
    }

    /// Records in the log, if there is one, the number of waiters ahead when the request was
    /// queued.
    pub(crate) fn queued(&mut self, position: Option<u64>) {
        if let Some(log) = &mut self.log {
            log.queued(position);
        }
    }

    /// Returns how long the request has waited for locks, and, if it was queued, the number of
    /// waiters ahead at that moment. Returns `None` if the request needed no lock.
    pub(crate) fn waited(&self) -> Option<(Duration, Option<u64>)> {
        self.log.as_ref().map(|log| (log.waited(), log.position()))
    }

    /// Records in the log that the request was served if `refusal` is `None`, and otherwise that it
    /// was refused with this error. The log event is emitted when this value is dropped.
    pub(crate) fn end(&mut self, refusal: Option<&LockError>) {
        self.log.iter_mut().for_each(|log| log.end(refusal));
    }

    /// Returns true if at least one lock of this layer has not been released.
    pub(crate) fn has_holds(&self) -> bool {
        self.any(|held| !held.is_released())
    }

    /// Returns true if at least one lock of this layer is kept by the layer alone, without another
    /// guard or detached work. Such a lock becomes free when the layer releases it.
    pub(crate) fn is_only_keeper(&self) -> bool {
        self.any(HoldRecord::ends_with_its_layer)
    }

    /// Returns true if the layer must stop the work: a lock of this layer was lost, and the layer
    /// is set to [`OnLost::Stop`].
    pub(crate) fn stops(&self) -> bool {
        self.stops_on_loss() && self.any(HoldRecord::is_lost)
    }

    /// Returns true if the layer is set to [`OnLost::Stop`].
    pub(crate) fn stops_on_loss(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.on_lost == OnLost::Stop)
    }

    fn any(&self, is: impl Fn(&HoldRecord) -> bool) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.count(self.layer, is) > 0)
    }

    /// Returns a future that completes when a lock of this layer is lost. Called whenever the work
    /// is pending; `is_first` is true if the caller has no such future yet. Returns `None` if the
    /// caller's future already watches all locks, or if the layer continues after a loss. Also
    /// arranges that a lock added later wakes the task of `cx`.
    pub(crate) fn watch(&self, is_first: bool, cx: &Context<'_>) -> Option<Loss> {
        let holds = self.holds.as_ref().filter(|_| self.stops_on_loss())?;
        let is_unwatched = holds.is_unwatched(self.layer, is_first, cx);
        is_unwatched.then(|| Loss::of_layer(holds, self.layer))
    }

    /// Begins to release all locks of this layer, and returns a future that completes once they are
    /// released. Returns `None` if the response does not wait for this: under
    /// `release_in_background`, or if the request passed without a lock.
    pub(crate) fn release(&mut self) -> Option<Releasing> {
        let guards = self.holds.take()?.remove_layer(self.layer);
        let is_awaited = !self.config.as_ref()?.release_in_background;
        is_awaited.then(|| Releasing::new(guards))
    }
}

impl Drop for LayerHolds {
    fn drop(&mut self) {
        if let Some(holds) = self.holds.take() {
            drop(holds.close_scope(self.layer));
            holds.remove_layer(self.layer).for_each(drop);
        }
    }
}
