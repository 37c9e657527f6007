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
}

impl Hold {
    pub(crate) fn new(first: LockHandle) -> Self {
        Self { top: first, own: 1 }
    }

    /// One more lock, taken after the others: its handle's outer one is the top.
    pub(crate) fn push(&mut self, next: LockHandle) {
        self.top = next;
        self.own += 1;
    }

    pub(crate) fn handle(&self) -> &LockHandle {
        &self.top
    }

    pub(crate) fn own(&self) -> impl Iterator<Item = &LockHandle> {
        std::iter::successors(Some(&self.top), |handle| handle.outer()).take(self.own)
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.own().any(LockHandle::is_lost)
    }

    /// What completes when any of the locks is lost.
    pub(crate) fn loss(&self) -> Loss {
        Loss::new(self.own().map(LockHandle::cancellation_token))
    }

    /// Begins to give all of them back.
    pub(crate) fn release(self) -> Releasing {
        Releasing::new(self.guards())
    }

    fn guards(&self) -> impl Iterator<Item = LockGuard> {
        self.own().filter_map(LockHandle::take)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.guards().for_each(drop);
    }
}
