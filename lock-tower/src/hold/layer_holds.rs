//! The holds of a request that belong to one layer.

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

/// The holds kept by a layer for a request, and the request's log; empty for a request that passes
/// without a lock.
///
/// Dropping it releases the holds in the background, also while unwinding.
#[derive(Default)]
pub(crate) struct LayerHolds {
    config: Option<Arc<Config>>,
    holds: Option<Arc<HoldRegistry>>,
    /// The number of the layer within the request.
    layer: usize,
    log: Option<RequestLog>,
}

impl LayerHolds {
    /// The holds of the layer with this number.
    pub(crate) fn new(config: &Arc<Config>, holds: &Arc<HoldRegistry>, layer: usize) -> Self {
        let config = Some(Arc::clone(config));
        let holds = Some(Arc::clone(holds));
        Self { config, holds, layer, log: None }
    }

    /// Adds the acquired holds under a new layer number. Returns the handle of the last hold.
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

    /// Closes the layer's scope: no more holds are added.
    pub(crate) fn close(mut self) -> Self {
        let log = self.holds.as_ref().and_then(|holds| holds.close_scope(self.layer));
        self.log = self.log.take().or(log);
        self
    }

    /// Returns the log, which begins with the first requested lock.
    pub(crate) fn log(&mut self) -> &mut RequestLog {
        self.log.get_or_insert_with(RequestLog::begin)
    }

    /// Returns how long the request has waited for locks, and the number of waiters ahead; `None`
    /// if it requested no lock.
    pub(crate) fn waited(&self) -> Option<(Duration, Option<u64>)> {
        self.log.as_ref().map(|log| (log.waited(), log.position()))
    }

    /// Records that the request was served, or refused with this error. Dropping the holds logs it.
    pub(crate) fn end(&mut self, refusal: Option<&LockError>) {
        self.log.iter_mut().for_each(|log| log.end(refusal));
    }

    pub(crate) fn has_holds(&self) -> bool {
        self.any(|held| !held.is_released())
    }

    /// Whether any hold ends with this layer.
    pub(crate) fn is_only_keeper(&self) -> bool {
        self.any(HoldRecord::ends_with_its_layer)
    }

    /// Whether a hold was lost, and the loss stops work.
    pub(crate) fn stops(&self) -> bool {
        self.stops_on_loss() && self.any(HoldRecord::is_lost)
    }

    /// Whether work stops when a hold is lost.
    pub(crate) fn stops_on_loss(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.on_lost == OnLost::Stop)
    }

    fn any(&self, is: impl Fn(&HoldRecord) -> bool) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.count(self.layer, is) > 0)
    }

    /// Returns a future for the loss of any hold, if losses stop work and some holds are not
    /// watched yet. With `is_first`, none is watched yet.
    pub(crate) fn watch(&self, is_first: bool, cx: &Context<'_>) -> Option<Loss> {
        let holds = self.holds.as_ref().filter(|_| self.stops_on_loss())?;
        let is_unwatched = holds.is_unwatched(self.layer, is_first, cx);
        is_unwatched.then(|| Loss::of_layer(holds, self.layer))
    }

    /// Begins to release all holds; `None` if the response does not wait for the release.
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
