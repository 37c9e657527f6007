//! Lists the attempts and holds of a node for people.

use super::{Core, MAX_AT_ONCE};
use crate::member::Member;
use crate::name::LockName;
use crate::node::entry::{Caller, Mirror, State};
use crate::node::moment::Moment;

/// A waiting attempt or a hold, as shown to people.
#[derive(Debug)]
pub struct Activity<'a, P> {
    /// The lock for which the member waits, or which it holds.
    pub lock: &'a LockName,
    /// The member that waits or holds, with its label and demand.
    pub member: &'a Member,
    /// Whether the member waits, holds, or has lost its hold.
    pub stage: Stage,
    /// The time when the wait or the hold began.
    pub since: Moment,
    /// The driver's own data for the attempt.
    pub mirror: &'a P,
}

/// How far an attempt has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The attempt waits for the lock.
    Waiting,
    /// The attempt holds the lock, or the lock is granted and the caller has not taken it yet.
    Holding,
    /// The hold is lost, but its guard still exists.
    Lost,
}

impl<P: Mirror> Core<P> {
    /// Calls `show` for a bounded number of waiting attempts and holds, in the order in which the
    /// attempts began, from the member id `from` on. Returns the id from which to continue; `None`
    /// at the end.
    pub fn each_from(&self, from: u64, mut show: impl FnMut(Activity<'_, P>)) -> Option<u64> {
        let mut shown = 0;
        // The scan is bounded as well, because entries that are not shown also cost time.
        for (looked, (number, entry)) in self.table.entries().range(from..).enumerate() {
            if shown == MAX_AT_ONCE || looked == 4 * MAX_AT_ONCE {
                return Some(*number);
            }
            let (stage, since) = match &entry.state {
                State::Held(lease) | State::Offered(lease) => (Stage::Holding, lease.since),
                // A lost batch hold is not shown, because it belongs to no guard.
                State::Lost { since } if !self.batches.contains(*number) => (Stage::Lost, *since),
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
