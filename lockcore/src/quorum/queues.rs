//! The places of one climb in the queues of the primaries.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use proto::LockName;
use tokio::time::Instant;

use super::primary::Step;
use super::{Leads, Primaries, View};
use crate::node::{Attempt, until};
use crate::types::error::LockError;

/// The place at each primary.
pub(super) type Queues = Vec<Option<Place>>;

/// A place in the queue of one primary.
pub(super) struct Place {
    pub(super) attempt: Pin<Box<Attempt>>,
    /// The number of the server, as it was before it was asked.
    pub(super) server: u64,
}

impl Place {
    /// The number of those ahead, once the primary has answered.
    pub(super) fn ahead(&self) -> Option<u64> {
        self.attempt.position()
    }
}

/// The error of one primary.
pub(super) struct Failure {
    pub(super) error: LockError,
    /// Whether it had a place in the queue.
    pub(super) was_queued: bool,
}

/// What ends a wait.
pub(super) enum Event {
    Granted(usize, Step),
    /// Taken, and the climb is not to wait.
    Busy,
    /// The end of a place, or of a request that had none yet.
    Failed(usize, Failure),
    /// Too few primaries are reached, a primary of the climb is no longer reached, or the climb is
    /// to queue at another primary, too.
    Changed,
    Late,
}

/// The next event in these queues, until this end; also that this lock has another lead.
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
        // First: an attempt says where it cannot be polled, and a timer would not.
        event = told => event,
        _ = view.wait_for(is_away) => Event::Changed,
        _ = leads.wait_for(has_moved) => Event::Changed,
        () = until(end) => Event::Late,
    }
}
