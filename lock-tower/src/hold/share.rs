//! One layer's part in the holds of a request.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use crate::config::{Config, OnLost};
use crate::hold::claim::Taken;
use crate::hold::handle::LockHandle;
use crate::hold::held::Held;
use crate::hold::holds::Holds;
use crate::hold::journal::Journal;
use crate::hold::loss::Loss;
use crate::hold::release::Releasing;
use crate::refusal::LockError;

/// The holds that a layer keeps for a request, and the request's journal; neither where it passes
/// without a lock.
///
/// Dropping it releases the holds in the background, also while unwinding.
#[derive(Default)]
pub(crate) struct Share {
    config: Option<Arc<Config>>,
    holds: Option<Arc<Holds>>,
    /// The layer's number among those of the request.
    layer: usize,
    journal: Option<Journal>,
}

impl Share {
    /// Of the layer with this number.
    pub(crate) fn new(config: &Arc<Config>, holds: &Arc<Holds>, layer: usize) -> Self {
        let (config, holds) = (Some(Arc::clone(config)), Some(Arc::clone(holds)));
        Self { config, holds, layer, journal: None }
    }

    /// One more layer keeps what was taken. The handle of the last hold.
    pub(crate) fn keep(
        &mut self,
        taken: Taken,
        config: &Arc<Config>,
        holds: &Arc<Holds>,
    ) -> LockHandle {
        let layer = holds.enter();
        let handles = taken.map(|taken| LockHandle::new(holds, holds.push(layer, taken, config)));
        let handle = handles.last().expect("there is at least one key");
        (self.config, self.holds) = (Some(Arc::clone(config)), Some(Arc::clone(holds)));
        self.layer = layer;
        self.journal().granted(handle.fencing_token().get());
        handle
    }

    /// No lock comes to it from now on.
    pub(crate) fn close(mut self) -> Self {
        let journal = self.holds.as_ref().and_then(|holds| holds.close(self.layer));
        self.journal = self.journal.take().or(journal);
        self
    }

    /// The journal, from the first lock that is asked for.
    pub(crate) fn journal(&mut self) -> &mut Journal {
        self.journal.get_or_insert_with(Journal::begin)
    }

    /// How long the request has waited for its locks; `None` if it asked for none.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.journal.as_ref().map(Journal::waited)
    }

    /// The request was served, or refused for this error. It is logged when the share is dropped.
    pub(crate) fn end(&mut self, refusal: Option<&LockError>) {
        self.journal.iter_mut().for_each(|journal| journal.end(refusal));
    }

    pub(crate) fn has_holds(&self) -> bool {
        self.any(|held| !held.is_released())
    }

    /// Whether a hold was lost under which no work may go on.
    pub(crate) fn stops(&self) -> bool {
        self.may_stop() && self.any(Held::is_lost)
    }

    /// Whether work stops when a hold is lost.
    pub(crate) fn may_stop(&self) -> bool {
        self.config.as_ref().is_some_and(|config| config.on_lost == OnLost::Stop)
    }

    fn any(&self, is: impl Fn(&Held) -> bool) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.count(self.layer, is) > 0)
    }

    /// The loss of any hold, if that is to be watched and is not watched yet. `is_first`: none is
    /// watched.
    pub(crate) fn watch(&self, is_first: bool, cx: &Context<'_>) -> Option<Loss> {
        let holds = self.holds.as_ref().filter(|_| self.may_stop())?;
        let is_unwatched = holds.is_unwatched(self.layer, is_first, cx);
        is_unwatched.then(|| Loss::of_layer(holds, self.layer))
    }

    /// Begins to release all holds; `None` if the answer does not wait for that.
    pub(crate) fn release(&mut self) -> Option<Releasing> {
        let guards = self.holds.take()?.let_go(self.layer);
        let is_awaited = !self.config.as_ref()?.release_in_background;
        is_awaited.then(|| Releasing::new(guards))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(holds) = self.holds.take() {
            drop(holds.close(self.layer));
            holds.let_go(self.layer).for_each(drop);
        }
    }
}
