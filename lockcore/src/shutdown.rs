//! Ending a node in good order.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::LockErrorKind;

/// What a shutdown did; made by [`Locks::shutdown`](crate::Locks::shutdown).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Attempts that were waiting and were ended with [`Closed`](LockErrorKind::Closed).
    pub ended: usize,
    /// Holds that were taken away from guards that still lived.
    pub taken: usize,
    /// Holds and places that could not be given back: they end by themselves, with their lease or after 15 s.
    pub unreleased: usize,
}

impl Engine {
    pub(crate) async fn shut_down(self: &Arc<Self>, timeout: Duration) -> Shutdown {
        let deadline = Instant::now() + timeout;
        // What is given back at the last moment has the time of one request.
        let end = deadline + self.settings.request_timeout;
        let failed_before = self.reaper.failed();
        self.close();
        // Queues first: the other way round, a released lock would be handed to one of our own leaving waiters.
        let ended = self.cancel_all(LockErrorKind::Closed);
        self.given_back(end).await;
        while self.holds().len() > 0 {
            let ended = self.hold_ended.notified();
            if self.holds().len() == 0 || tokio::time::timeout_at(deadline, ended).await.is_err() {
                break;
            }
        }
        let remaining = self.holds().all();
        for hold in &remaining {
            self.lost(hold, "the node was shut down");
            self.give_back(hold);
        }
        self.given_back(end).await;
        let unreleased = self.reaper.outstanding() + self.reaper.failed() - failed_before;
        if self.reaper.outstanding() == 0 {
            self.store.close();
        }
        Shutdown { ended, taken: remaining.len(), unreleased }
    }

    async fn given_back(&self, end: Instant) {
        let _ = tokio::time::timeout_at(end, self.reaper.idle()).await;
    }
}
