//! Lanes: the requests in flight to a server, and the work that is due for it. A Redis Cluster has
//! a lane per server, and a lock is in the lane of the server with the lock's slot. Without a
//! Cluster there is a single lane.
//!
//! # Implementation notes
//!
//! - Requests to a frozen server stay in flight until they time out. So each lane has separate
//!   bounds for in-flight requests and separate orders of due work: a full lane hides no work of
//!   another lane, and lanes share no bound.
//! - A lane is *silent* after a request time-out, until the next response, unless a response
//!   arrived after the request was sent. A silent lane allows few in-flight requests of each kind.
//! - Lanes neither order nor bound releases: see `give_back_what_is_due`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::attempts::FIRST_RETRY;
use crate::name::LockName;
use crate::node::entry::IndexKeys;
use crate::node::moment::Moment;
use crate::node::recent_release::RecentRelease;

/// Maximum number of renewals, leaves or other requests of a kind in flight to a server that has
/// stopped responding. Other limits apply while it responds.
const SILENT: usize = 32;

/// A set of member ids or other keys, each with the time when work for it is due, ordered by this
/// time.
pub(super) type ByTime<T = u64> = BTreeSet<(Moment, T)>;

/// The lane (server) of each Cluster slot, as a number, indexed by slot.
pub type Lanes = Arc<[u16]>;

#[derive(Debug, Clone, Default)]
pub(super) struct Lane {
    pub(super) renewals: ByTime,
    pub(super) leaves: ByTime,
    pub(super) touches: ByTime<LockName>,
    pub(super) unsent: BTreeSet<u64>,
    pub(super) parked: BTreeSet<u64>,
    pub(super) traffic: Traffic,
}

/// The requests in flight in a lane (to a server), counted by kind, and the times that depend on
/// the responses.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    /// The number of first acquires in flight, as opposed to retried ones.
    pub(super) asking: usize,
    /// The number of retried acquires in flight.
    pub(super) repeating: usize,
    /// The number of leaves (requests that remove members) and repeated releases in flight.
    pub(super) leaving: usize,
    /// The number of holds whose renewals are in flight.
    pub(super) renewing: usize,
    /// The total weight of the touches in flight. A touch weighs as much as its members: see
    /// `lines::weight`.
    pub(super) touching: usize,
    pub(super) last_success: Moment,
    pub(super) is_silent: bool,
    /// When the attempts whose last acquire failed are retried; `None` if there are none, or no
    /// connection.
    pub(super) retry_at: Option<Moment>,
    /// The lowest member id that the present round of retries has not reached; 0 before a round.
    pub(super) retry_from: u64,
    pub(super) pause: Duration,
    /// Releases that the server may not know, because it took over shortly after them, or did not
    /// acknowledge them. Their members are removed there once more.
    pub(super) again: VecDeque<RecentRelease>,
    /// True from the moment when a member is given up until the server replies or a connection is
    /// opened. Meanwhile, none of the members in `again` leaves: it would fail for as long again,
    /// and keep the node from its end.
    pub(super) gave_up: bool,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            asking: 0,
            repeating: 0,
            leaving: 0,
            renewing: 0,
            touching: 0,
            last_success: Moment::default(),
            is_silent: false,
            retry_at: None,
            retry_from: 0,
            pause: FIRST_RETRY,
            again: VecDeque::new(),
            gave_up: false,
        }
    }
}

impl Traffic {
    /// Returns the maximum number of requests in flight: `most`, or less while the server does not
    /// respond to any.
    pub(super) fn bound(&self, most: usize) -> usize {
        if self.is_silent { most.min(SILENT) } else { most }
    }
}

impl Lane {
    /// Returns the next attempt to retry in this round; `None` at its end.
    pub(super) fn next_parked(&self) -> Option<u64> {
        self.parked.range(self.traffic.retry_from..).next().copied()
    }

    /// Updates the sets of due work in this lane, after the index keys of an entry have changed.
    #[inline]
    pub(super) fn reorder(&mut self, number: u64, before: &IndexKeys, after: &IndexKeys) {
        move_in_time(&mut self.renewals, number, before.renew, after.renew);
        move_in_time(&mut self.leaves, number, before.leave, after.leave);
        move_in(&mut self.unsent, number, before.is_unsent, after.is_unsent);
        move_in(&mut self.parked, number, before.is_parked, after.is_parked);
    }
}

/// Moves a member id in `set` from one due time to another; `None` if it is not in the set. Returns
/// at once if the time is the same, as after most changes of an entry.
#[inline]
pub(super) fn move_in_time(
    set: &mut ByTime,
    number: u64,
    before: Option<Moment>,
    after: Option<Moment>,
) {
    if before != after {
        replace(set, before.map(|at| (at, number)), after.map(|at| (at, number)));
    }
}

fn replace(set: &mut ByTime, before: Option<(Moment, u64)>, after: Option<(Moment, u64)>) {
    if let Some(before) = before {
        let was_there = set.remove(&before);
        debug_assert!(was_there, "{before:?} was in no order");
    }
    if let Some(after) = after {
        let is_new = set.insert(after);
        debug_assert!(is_new, "{after:?} was in this order");
    }
}

#[inline]
fn move_in(set: &mut BTreeSet<u64>, number: u64, was_in: bool, is_in: bool) {
    match (was_in, is_in) {
        (false, true) => {
            let is_new = set.insert(number);
            debug_assert!(is_new, "{number} was in this order");
        }
        (true, false) => {
            let was_there = set.remove(&number);
            debug_assert!(was_there, "{number} was in no order");
        }
        _ => {}
    }
}
