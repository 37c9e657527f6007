//! Orderly shutdown: ends the waits of a node and releases its held locks.

use std::sync::Arc;
use std::time::Duration;

use proto::LockErrorKind;
use proto::node::{Core, Counts};
use tokio::time::Instant;

use crate::node::{Driver, HoldCell, later};

/// How many waits and holds a shutdown had to end, and how many releases the server has not
/// confirmed. Returned by [`Locks::shutdown`](crate::Locks::shutdown).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// The number of acquisitions that were still waiting; each failed with
    /// [`Closed`](LockErrorKind::Closed).
    pub waiters: usize,
    /// The number of held locks that the shutdown released although a guard was still alive; these
    /// guards are lost.
    pub holds: usize,
    /// The number of held locks and queue entries whose release the server has not confirmed: the
    /// locks expire with their leases, the queue entries after 15 s. On a quorum, a majority of the
    /// primaries has not confirmed it.
    pub unreleased: usize,
}

impl Driver {
    pub(crate) async fn shut_down(self: &Arc<Self>, timeout: Duration) -> Shutdown {
        let (start, request_timeout) = (Instant::now(), self.settings.request_timeout);
        let deadline = later(start, timeout);
        // The releases sent at the deadline still have a full request timeout.
        let end = later(deadline, request_timeout);
        let failed_before = self.read(Core::counts).failed;
        self.with(|core| core.close());
        // After the runtime's end, no response arrives.
        let is_answered =
            |counts: Counts| self.has_ended() || counts.attempts + counts.given_back == 0;
        // Leave the queues first: otherwise a released lock would be granted to a waiter of this
        // node before the waiter leaves.
        let waiters =
            self.for_all(|core, from| core.end_attempts(from, LockErrorKind::Closed)).await;
        // Not until `end`: a server that does not respond must not delay the releases at others.
        // With a short timeout, the leaves have half of the request timeout.
        let left = deadline.max(later(start, request_timeout / 2));
        self.until(left, is_answered).await;
        self.until(deadline, |counts| counts.holds == 0).await;
        let holds =
            self.for_all(|core, from| core.take_holds(from, "the node was shut down")).await;
        self.until(end, is_answered).await;
        let counts = self.read(Core::counts);
        let unanswered = counts.attempts + counts.given_back;
        if unanswered == 0 {
            self.store.close();
        }
        let unreleased = unanswered + counts.failed - failed_before;
        Shutdown { waiters, holds, unreleased }
    }

    /// Ends all attempts of the node, or releases all its holds, in several steps, and returns
    /// their number. Calls `part` for each step, with the member id at which to start. `part`
    /// processes a limited number of them, and returns how many, and the member id for the next
    /// step (`None` at the end). Other tasks use the node between the steps, because a single pass
    /// over many thousands would block them for long.
    async fn for_all(
        self: &Arc<Self>,
        part: impl Fn(&mut Core<HoldCell>, u64) -> (usize, Option<u64>),
    ) -> usize {
        let mut count = 0;
        let mut from = Some(0);
        while let Some(start) = from {
            let (done, next) = self.with(|core| part(core, start));
            count += done;
            from = next;
            tokio::task::yield_now().await;
        }
        count
    }

    /// Waits until `is_so` returns true for the numbers of attempts, holds and unconfirmed releases
    /// of the node, but no longer than until `end`. The node must be closed: an open node does not
    /// notify `progress` when these numbers change.
    async fn until(&self, end: Instant, is_so: impl Fn(Counts) -> bool) {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if is_so(self.read(Core::counts)) {
                return;
            }
            if tokio::time::timeout_at(end, progress).await.is_err() {
                return;
            }
        }
    }
}
