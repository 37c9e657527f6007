//! An acquisition's attempts in the primaries' queues.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use proto::LockName;
use tokio::time::Instant;

use super::primary::Step;
use super::{Leads, Primaries, View};
use crate::node::{Attempt, until};
use crate::types::error::LockError;

/// The attempt at each primary.
pub(super) type Queues = Vec<Option<Place>>;

/// An attempt in a primary's queue.
pub(super) struct Place {
    pub(super) attempt: Pin<Box<Attempt>>,
    /// The server number before the request was sent.
    pub(super) server: u64,
}

impl Place {
    /// Returns the number of waiters ahead, once the primary has replied.
    pub(super) fn ahead(&self) -> Option<u64> {
        self.attempt.position()
    }
}

/// A primary's error.
pub(super) struct Failure {
    pub(super) error: LockError,
    /// Whether the request had a queue position.
    pub(super) was_queued: bool,
}

/// What ends a wait.
pub(super) enum Event {
    Granted(usize, Step),
    /// The lock is busy, and the request does not wait.
    Busy,
    /// An attempt failed, queued or not.
    Failed(usize, Failure),
    /// Too few primaries are reachable, a primary with an attempt is no longer reachable, or the
    /// lock has another lead to queue at, too.
    Changed,
    Late,
}

/// Returns the next event in these queues, until `end`; a new lead of `lock` is an event, too.
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
    let told = poll_fn(|cx| {
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
        // First: outside a runtime, the attempt's panic explains the mistake, unlike a timer's.
        event = told => event,
        _ = view.wait_for(is_away) => Event::Changed,
        _ = leads.wait_for(has_moved) => Event::Changed,
        () = until(end) => Event::Late,
    }
}
