//! The layer's side of a hold: who gives it back.

use lockcore::LockGuard;
use tokio_util::sync::CancellationToken;

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
}

impl Hold {
    pub(crate) fn new(first: LockHandle) -> Self {
        Self { top: first, own: 1, more: Vec::new() }
    }

    /// One more lock, taken after the others: its handle's outer one is the top.
    pub(crate) fn push(&mut self, next: LockHandle) {
        self.top = next;
        self.own += 1;
    }

    /// Holds of their own, to be given back together with these.
    pub(crate) fn join(&mut self, mut other: Self) {
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
        Loss::new(self.losses())
    }

    fn losses(&self) -> impl Iterator<Item = CancellationToken> {
        self.own().filter_map(LockHandle::loss)
    }

    /// Begins to give all of them back.
    pub(crate) fn release(self) -> Releasing {
        Releasing::new(self.guards())
    }

    pub(crate) fn guards(&self) -> impl Iterator<Item = LockGuard> {
        self.own().filter_map(LockHandle::take)
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
