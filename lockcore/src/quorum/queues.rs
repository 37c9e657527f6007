//! The queue positions of a quorum acquisition: an attempt at each primary where it waits.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use proto::LockName;
use tokio::time::Instant;

use super::primaries::Primaries;
use super::primary::Step;
use super::view::{Leads, View};
use crate::node::{Attempt, until};
use crate::types::error::LockError;

/// The attempt at each primary, in list order; `None` where the acquisition does not wait.
pub(super) type Queues = Vec<Option<Place>>;

/// The attempt of a quorum acquisition at one primary: waiting in the queue there, or not yet
/// answered.
pub(super) struct Place {
    pub(super) attempt: Pin<Box<Attempt>>,
    /// The primary's server number when the request was sent. If the primary has another number, it
    /// has restarted or lost data, and the attempt is dropped.
    pub(super) server: u64,
}

impl Place {
    /// Returns the number of waiters ahead of this attempt, or `None` until the primary has queued
    /// it.
    pub(super) fn ahead(&self) -> Option<u64> {
        self.attempt.position()
    }
}

/// The failure of an attempt at a primary.
pub(super) struct Failure {
    pub(super) error: LockError,
    /// True if the primary had queued the attempt before the failure.
    pub(super) was_queued: bool,
}

/// An event that ends a wait in the queues of the primaries.
pub(super) enum Event {
    /// The primary with this index has granted the lock.
    Granted(usize, Step),
    /// An attempt found the lock busy, and the request does not wait.
    Busy,
    /// The attempt at the primary with this index failed, before or after the primary queued it.
    Failed(usize, Failure),
    /// The reachable primaries or the lead have changed: too few primaries are reachable for a
    /// guard; a primary with an attempt is unreachable or another server; or the lead of the lock
    /// is a primary without an attempt.
    Changed,
    /// The time limit of the wait is over.
    Late,
}

/// Waits for the next event in these queues, at most until `end`, and returns it. If `lock` is set,
/// a new lead of this lock is an event, too. Removes an attempt from `queued` when it ends.
pub(super) async fn next(
    primaries: &Primaries,
    lock: Option<&LockName>,
    queued: &mut Queues,
    end: Option<Instant>,
) -> Event {
    let (mut view, mut leads) = (primaries.view.subscribe(), primaries.leads.subscribe());
    let of = |(at, place): (usize, &Option<Place>)| Some((at, place.as_ref()?.server));
    let servers: Vec<(usize, u64)> = queued.iter().enumerate().filter_map(of).collect();
    let is_away = |view: &View| {
        view.lacking.is_some()
            || servers.iter().any(|(at, server)| view.servers[*at] != Some(*server))
    };
    let stands = |at: usize| servers.iter().any(|(other, _)| *other == at);
    let has_moved = |leads: &Leads| {
        let lead = lock.and_then(|lock| leads.get(lock));
        lead.is_some_and(|at| !stands(*at) && primaries.server(*at).is_some())
    };
    let polled = poll_fn(|cx| {
        for (at, slot) in queued.iter_mut().enumerate() {
            let Some(place) = slot else { continue };
            if let Poll::Ready(outcome) = place.attempt.as_mut().poll(cx) {
                let (server, was_queued) = (place.server, place.ahead().is_some());
                *slot = None;
                return Poll::Ready(match outcome {
                    Ok(Some(guard)) => Event::Granted(at, Step::new(guard, server)),
                    Ok(None) => Event::Busy,
                    Err(error) => Event::Failed(at, Failure { error, was_queued }),
                });
            }
        }
        Poll::Pending
    });
    tokio::select! {
        biased;
        // Poll the attempts first, because outside a runtime their panic explains the mistake,
        // unlike a timer's.
        event = polled => event,
        _ = view.wait_for(is_away) => Event::Changed,
        _ = leads.wait_for(has_moved) => Event::Changed,
        () = until(end) => Event::Late,
    }
}
