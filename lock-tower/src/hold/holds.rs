//! All holds of one request.
//!
//! # Implementation notes
//!
//! **The order of mutexes** is: the list, then one hold. Guards, journals and wakers are dropped,
//! released and woken while neither is locked: they log, or are foreign code that may ask for a
//! lock.
//!
//! **A lock can be acquired while the response is on its way**, by a task that the handler has
//! spawned. So whether a scope is open, and what it holds, change in one section of the mutex. A
//! lock either comes into the list before the scope closes, which then releases it, or it is
//! refused and released at once.
//!
//! **The layer's future watches for losses.** A lock that another task acquires wakes it, so that
//! it watches that one, too.
//!
//! **What was released stays in the list until a later hold comes**, since handles look for the
//! holds before theirs. A request that acquires and releases one lock after the other so keeps two
//! entries at most: the first, and the last.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};

use lockcore::LockGuard;

use crate::config::Config;
use crate::hold::guard::Granted;
use crate::hold::held::Held;
use crate::hold::journal::Journal;

/// The list of a request's holds, in the order in which they were acquired.
///
/// There is one for each request. Its layers, handles and `RequestLocks` share it. Each layer
/// releases the holds that have its number.
#[derive(Debug, Default)]
pub struct Holds {
    /// Nearly all requests take one lock. It is in here, so that the list and the hold are one
    /// allocation.
    first: OnceLock<Held>,
    rest: Mutex<Rest>,
}

/// Where a hold is: `None` for the first one, which is in the list itself.
pub(crate) type Place = Option<Arc<Held>>;

#[derive(Debug, Default)]
struct Rest {
    later: Vec<Arc<Held>>,
    /// How many layers the request has passed.
    layers: usize,
    /// How many holds were acquired.
    taken: usize,
    scopes: Vec<Scope>,
}

/// A layer whose locks are acquired further inside, while it is open.
#[derive(Debug)]
struct Scope {
    layer: usize,
    /// From the first lock that was asked for.
    journal: Option<Journal>,
    /// Of the layer's future, while that is pending.
    waker: Option<Waker>,
    /// Locks were acquired that the layer's future does not watch yet.
    is_unwatched: bool,
}

impl Holds {
    /// The number of one more layer.
    pub(crate) fn enter(&self) -> usize {
        let mut rest = self.rest();
        rest.layers += 1;
        rest.layers
    }

    /// The number of one more layer, whose locks are acquired further inside.
    pub(crate) fn open(&self) -> usize {
        let layer = self.enter();
        let scope = Scope { layer, journal: None, waker: None, is_unwatched: false };
        self.rest().scopes.push(scope);
        layer
    }

    /// No lock is acquired for this layer from now on. The journal, if it was a scope in which one
    /// was asked for.
    pub(crate) fn close(&self, layer: usize) -> Option<Journal> {
        let mut rest = self.rest();
        let at = rest.scopes.iter().position(|scope| scope.layer == layer)?;
        let scope = rest.scopes.swap_remove(at);
        drop(rest);
        scope.journal
    }

    /// Writes into the journal of a scope; `None` if that is closed.
    pub(crate) fn journal(&self, layer: usize, write: impl FnOnce(&mut Journal)) -> Option<()> {
        let mut rest = self.rest();
        write(rest.scope(layer)?.journal.get_or_insert_with(Journal::begin));
        Some(())
    }

    /// One more hold.
    pub(crate) fn push(&self, layer: usize, taken: Granted, config: &Config) -> Place {
        self.add(&mut self.rest(), layer, taken, config)
    }

    /// More holds for a scope; `None` if that is closed.
    pub(crate) fn grow(
        &self,
        layer: usize,
        taken: impl Iterator<Item = Granted>,
        config: &Config,
    ) -> Option<Vec<Place>> {
        let mut rest = self.rest(); // unlocked before what was taken is dropped
        let scope = rest.scope(layer)?;
        scope.is_unwatched = true;
        let waker = scope.waker.take();
        let places = taken.map(|taken| self.add(&mut rest, layer, taken, config)).collect();
        drop(rest);
        waker.into_iter().for_each(Waker::wake);
        Some(places)
    }

    fn add(&self, rest: &mut Rest, layer: usize, taken: Granted, config: &Config) -> Place {
        rest.taken += 1;
        let held = Held::new((layer, rest.taken), taken, &config.locks, config.on_lost);
        let held = Arc::new(self.first.set(held).err()?);
        rest.later.retain(|held| !held.is_released());
        rest.later.push(Arc::clone(&held));
        Some(held)
    }

    /// Whether the layer has holds that its future does not watch. `is_first`: it watches none.
    pub(crate) fn is_unwatched(&self, layer: usize, is_first: bool, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let mut rest = self.rest();
        let Some(scope) = rest.scope(layer) else { return is_first };
        let (before, is_unwatched) = (scope.waker.replace(waker), scope.is_unwatched);
        scope.is_unwatched = false;
        drop(rest);
        drop(before);
        is_unwatched
    }

    /// The hold at this place.
    pub(crate) fn at<'a>(&'a self, place: &'a Place) -> &'a Held {
        match place {
            Some(held) => held,
            None => self.first.get().expect("who has its place has pushed it"),
        }
    }

    /// The places of all holds.
    pub(crate) fn places(&self) -> Vec<Place> {
        let rest = self.rest();
        let first = self.first.get().map(|_| None);
        first.into_iter().chain(rest.later.iter().cloned().map(Some)).collect()
    }

    /// How many holds of this layer are as `is` says.
    pub(crate) fn count(&self, layer: usize, is: impl Fn(&Held) -> bool) -> usize {
        let rest = self.rest();
        let all = self.first.get().into_iter().chain(rest.later.iter().map(|held| &**held));
        all.filter(|held| held.layer == layer && is(held)).count()
    }

    /// The layer keeps its holds no longer: the guards that nothing else keeps.
    pub(crate) fn let_go(&self, layer: usize) -> impl Iterator<Item = LockGuard> + use<> {
        let is_own = |held: &&Held| held.layer == layer;
        let first = self.first.get().filter(is_own).and_then(Held::let_go);
        let rest = self.rest();
        let later = rest.later.iter().map(|held| &**held).filter(is_own);
        let later: Vec<_> = later.filter_map(Held::let_go).collect();
        first.into_iter().chain(later)
    }

    /// Nothing in here panics half way.
    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rest {
    fn scope(&mut self, layer: usize) -> Option<&mut Scope> {
        self.scopes.iter_mut().find(|scope| scope.layer == layer)
    }
}
