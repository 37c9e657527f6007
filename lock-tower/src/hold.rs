//! The layer's side of a hold: who gives it back.

use lockcore::LockGuard;

use crate::handle::LockHandle;
use crate::loss::Loss;
use crate::release::Releasing;

/// The locks that one layer holds for one request. Dropping it gives them back in the background, also while
/// unwinding.
#[derive(Debug)]
pub(crate) struct Hold {
    top: LockHandle,
    /// How many of the handles, from the top, are this layer's own.
    own: usize,
    /// What was taken later and not on top of these: the same two of each.
    more: Vec<(LockHandle, usize)>,
    /// Each is let go once.
    is_let_go: bool,
}

impl Hold {
    pub(crate) fn new(first: LockHandle) -> Self {
        Self { top: first, own: 1, more: Vec::new(), is_let_go: false }
    }

    /// One more lock, taken after the others: its handle's outer one is the top.
    pub(crate) fn push(&mut self, next: LockHandle) {
        self.top = next;
        self.own += 1;
    }

    /// Holds of their own, to be given back together with these.
    pub(crate) fn join(&mut self, mut other: Self) {
        // A handler that takes and gives back one lock after the other leaves nothing behind.
        self.more.retain(|(top, own)| stack(top, *own).any(|handle| !handle.is_given_back()));
        self.more.push((other.top.clone(), std::mem::take(&mut other.own)));
        self.more.append(&mut other.more);
    }

    pub(crate) fn handle(&self) -> &LockHandle {
        &self.top
    }

    pub(crate) fn own(&self) -> impl Iterator<Item = &LockHandle> {
        let more = self.more.iter().flat_map(|(top, own)| stack(top, *own));
        stack(&self.top, self.own).chain(more)
    }

    /// Not, if it was given back early.
    pub(crate) fn is_lost(&self) -> bool {
        self.own().any(|handle| !handle.is_given_back() && handle.is_lost())
    }

    /// What completes when any of the locks is lost.
    pub(crate) fn loss(&self) -> Loss {
        Loss::new(self.own())
    }

    /// All are in reach of these.
    #[cfg(feature = "http")]
    pub(crate) fn tops(&self) -> impl Iterator<Item = &LockHandle> {
        std::iter::once(&self.top).chain(self.more.iter().map(|(top, _)| top))
    }

    /// Begins to give all of them back.
    pub(crate) fn release(mut self) -> Releasing {
        Releasing::new(self.guards())
    }

    /// What nobody else keeps; none the second time.
    pub(crate) fn guards(&mut self) -> impl Iterator<Item = LockGuard> {
        let is_first = !std::mem::replace(&mut self.is_let_go, true);
        self.own().filter(move |_| is_first).filter_map(LockHandle::let_go)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.guards().for_each(drop);
    }
}

/// As many handles, from the top.
fn stack(top: &LockHandle, own: usize) -> impl Iterator<Item = &LockHandle> {
    std::iter::successors(Some(top), |handle| handle.outer()).take(own)
}
