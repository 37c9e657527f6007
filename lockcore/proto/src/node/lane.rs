//! Lanes: the servers of a Redis Cluster, as the table tells them apart. Each lock is in the lane
//! of the server that has its slot; without a Cluster all are in one.
//!
//! # Implementation notes
//!
//! - A server that stands still keeps the places of its requests until they time out. So each lane
//!   has its own bounds for requests on their way there, and its own orders of the work that is
//!   due: a lane that is full hides nothing of another one, and no bound is common to two.
//! - A lane is *silent* from the time-out of a request that none of its answers came after, until
//!   its next answer. While it is, few requests of each kind are on their way there.
//! - Releases are in no order and have no bound: see `give_back_what_is_due`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::attempts::FIRST_RETRY;
use crate::name::LockName;
use crate::node::entry::IndexKeys;
use crate::node::moment::Moment;
use crate::node::recent_release::RecentRelease;

/// The most requests of each kind on their way to a server that is silent.
const SILENT: usize = 32;

/// Numbers by the time at which something of them is due.
pub(super) type ByTime<T = u64> = BTreeSet<(Moment, T)>;

/// The lanes of all slots of a Cluster, by slot.
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

/// The requests on their way to the server of a lane, and the times that its answers decide.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    /// Callers' acquires.
    pub(super) asking: usize,
    /// Acquires that the background sent.
    pub(super) repeating: usize,
    /// Leaves, and releases that are repeated.
    pub(super) leaving: usize,
    /// Holds that are renewed.
    pub(super) renewing: usize,
    /// The weight of the touches.
    pub(super) touching: usize,
    pub(super) last_success: Moment,
    pub(super) is_silent: bool,
    /// The moment at which parked attempts are asked for again.
    pub(super) retry_at: Option<Moment>,
    pub(super) pause: Duration,
    /// The releases whose members are to leave once more.
    pub(super) again: VecDeque<RecentRelease>,
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
            pause: FIRST_RETRY,
            again: VecDeque::new(),
        }
    }
}

impl Traffic {
    /// A bound, lower while the lane is silent.
    pub(super) fn bound(&self, most: usize) -> usize {
        if self.is_silent { most.min(SILENT) } else { most }
    }
}

impl Lane {
    /// Moves an entry in all that is kept in order.
    #[inline]
    pub(super) fn reorder(&mut self, number: u64, before: &IndexKeys, after: &IndexKeys) {
        move_in_time(&mut self.renewals, number, before.renew, after.renew);
        move_in_time(&mut self.leaves, number, before.leave, after.leave);
        move_in(&mut self.unsent, number, before.is_unsent, after.is_unsent);
        move_in(&mut self.parked, number, before.is_parked, after.is_parked);
    }
}

/// Moves a number to the time after a change. Most changes of an entry change no time, and pay for
/// the comparison alone.
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
