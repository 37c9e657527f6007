//! Ending a node in good order.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::LockErrorKind;
use crate::schedule::later;

/// What a shutdown did; made by [`Locks::shutdown`](crate::Locks::shutdown).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Waiters that were ended with [`Closed`](LockErrorKind::Closed).
    pub ended: usize,
    /// Holds that were ended although a guard of them still lived; these guards are lost.
    pub taken: usize,
    /// Holds and places that could not be released: holds expire with their lease, places after 15
    /// s.
    pub unreleased: usize,
}

impl Engine {
    pub(crate) async fn shut_down(self: &Arc<Self>, timeout: Duration) -> Shutdown {
        let deadline = later(Instant::now(), timeout);
        // What is on its way or given back at the last moment has the time of one request.
        let end = deadline + self.settings.request_timeout;
        let failed_before = self.reaper.failed();
        self.close();
        // Queues first: the other way round, a released lock would be handed to one of our own leaving waiters.
        let ended = self.cancel_all(LockErrorKind::Closed);
        until(end, || self.waiters().len() == 0).await;
        self.given_back(end).await;
        until(deadline, || self.holds().len() == 0).await;
        let remaining = self.holds().all();
        for hold in &remaining {
            self.lost(hold, "the node was shut down");
            self.give_back(hold);
        }
        until(end, || self.holds().ending() == 0).await;
        self.given_back(end).await;
        let unanswered = self.waiters().len() + self.holds().ending() + self.reaper.outstanding();
        let unreleased = unanswered + self.reaper.failed() - failed_before;
        if unanswered == 0 {
            self.store.close();
        }
        Shutdown { ended, taken: remaining.len(), unreleased }
    }

    async fn given_back(&self, end: Instant) {
        let _ = tokio::time::timeout_at(end, self.reaper.idle()).await;
    }
}

/// Waits until `is_so`, at most until `end`. What it waits for ends in many places, and nobody is
/// in a hurry any more: so it looks from time to time.
async fn until(end: Instant, is_so: impl Fn() -> bool) {
    while !is_so() && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
