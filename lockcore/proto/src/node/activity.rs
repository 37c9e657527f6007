//! A human-readable view of a node's attempts and holds.

use super::{Core, MAX_AT_ONCE};
use crate::member::Member;
use crate::name::LockName;
use crate::node::entry::{Caller, Mirror, State};
use crate::node::moment::Moment;

/// A waiting attempt or a hold.
#[derive(Debug)]
pub struct Activity<'a, P> {
    /// The lock.
    pub lock: &'a LockName,
    /// The member, with label and demand.
    pub member: &'a Member,
    /// Whether the member is waiting or holding.
    pub stage: Stage,
    /// When the wait or the hold began.
    pub since: Moment,
    /// The driver's part in the entry.
    pub mirror: &'a P,
}

/// An attempt's stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting.
    Waiting,
    /// Holding, or offered the lock.
    Holding,
    /// The hold is lost, but the guard still exists.
    Lost,
}

impl<P: Mirror> Core<P> {
    /// Shows a bounded number of attempts and holds from this member id on, in the order in which
    /// the attempts began. Returns where to continue.
    pub fn each_from(&self, from: u64, mut show: impl FnMut(Activity<'_, P>)) -> Option<u64> {
        let mut shown = 0;
        // Scanning costs time, too.
        for (looked, (number, entry)) in self.table.entries().range(from..).enumerate() {
            if shown == MAX_AT_ONCE || looked == 4 * MAX_AT_ONCE {
                return Some(*number);
            }
            let (stage, since) = match &entry.state {
                State::Held(lease) | State::Offered(lease) => (Stage::Holding, lease.since),
                // A lost batch hold belongs to no guard.
                State::Lost { since } if !self.runs.contains(*number) => (Stage::Lost, *since),
                _ if entry.is_attempt() && entry.caller == Caller::Waits => {
                    (Stage::Waiting, entry.started)
                }
                _ => continue,
            };
            let (lock, member, mirror) = (&entry.lock, &entry.member, &entry.mirror);
            show(Activity { lock, member, stage, since, mirror });
            shown += 1;
        }
        None
    }
}
