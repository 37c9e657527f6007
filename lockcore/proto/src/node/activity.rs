//! A view of the waits and holds of a node for people.

use super::{Core, MAX_AT_ONCE};
use crate::member::Member;
use crate::name::LockName;
use crate::node::entry::{Caller, Mirror, State};
use crate::node::moment::Moment;

/// One wait or hold.
#[derive(Debug)]
pub struct Activity<'a, P> {
    /// The lock.
    pub lock: &'a LockName,
    /// The member, with its label and demand.
    pub member: &'a Member,
    /// Whether it waits or holds.
    pub stage: Stage,
    /// The moment at which the wait or the hold began.
    pub since: Moment,
    /// The driver's own part of the entry.
    pub mirror: &'a P,
}

/// The stage of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits.
    Waiting,
    /// It holds, or is offered the lock.
    Holding,
    /// Its hold is lost, and its guard is still there.
    Lost,
}

impl<P: Mirror> Core<P> {
    /// Shows the waits and holds from this number on, in the order in which their attempts began: a
    /// bounded part of them. Returns where to go on.
    pub fn each_from(&self, from: u64, mut show: impl FnMut(Activity<'_, P>)) -> Option<u64> {
        let mut shown = 0;
        // Looking costs something, too.
        for (looked, (number, entry)) in self.table.entries().range(from..).enumerate() {
            if shown == MAX_AT_ONCE || looked == 4 * MAX_AT_ONCE {
                return Some(*number);
            }
            let (stage, since) = match &entry.state {
                State::Held(lease) | State::Offered(lease) => (Stage::Holding, lease.since),
                // That of a run is no guard's.
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
