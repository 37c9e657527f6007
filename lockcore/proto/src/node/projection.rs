//! A view of the core's state for model checkers.

use std::collections::{BTreeMap, BTreeSet};

use super::due::DueWork;
use super::lane::Lane;
use super::{Core, MAX_AT_ONCE};
use crate::member::Member;
use crate::member::ROUND_BITS;
use crate::name::LockName;
use crate::node::entry::{Caller, Mirror, State};
use crate::node::moment::Moment;

/// The state of an attempt or a hold, without its data: see `State`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "as in the table")]
pub enum Phase {
    Unsent,
    Asking,
    Parked,
    Waiting,
    Confirming,
    ConfirmingBatch,
    Serving,
    InBatch,
    Offered,
    Missed,
    Held,
    Releasing,
    Leaving,
    Lost,
    Leaked,
    Over,
}

/// A piece of scheduled work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// The hold of the member with this id ends, or the time in which its caller can take the lock.
    End(u64),
    /// The hold of the member with this id is renewed.
    Renewal(u64),
    /// The member with this id is released, or removed from the queue by a leave.
    GiveBack(u64),
    /// All waiters of this node for this lock are touched: the request keeps them alive on the
    /// server.
    Touch(LockName),
    /// First acquires that had to wait are sent, as far as the limit on requests in flight permits.
    Turn,
    /// Attempts whose acquire failed are retried after a pause.
    Retry,
    /// Members that were released shortly before another server took over are removed there as
    /// well, because it may not know of the release.
    LeaveAgain,
    /// The renewal of all holds continues, after a reconnect or a jump of the server's clock.
    RenewAll,
    /// The recheck continues: all waiters are touched, to learn their state, after messages may
    /// have been missed.
    Recheck,
}

impl State {
    fn phase(&self) -> Phase {
        match self {
            Self::Unsent => Phase::Unsent,
            Self::Asking { .. } => Phase::Asking,
            Self::Parked { .. } => Phase::Parked,
            Self::Waiting => Phase::Waiting,
            Self::Confirming { .. } => Phase::Confirming,
            Self::ConfirmingBatch => Phase::ConfirmingBatch,
            Self::Serving(_) => Phase::Serving,
            Self::InBatch => Phase::InBatch,
            Self::Offered(_) => Phase::Offered,
            Self::Missed => Phase::Missed,
            Self::Held(_) => Phase::Held,
            Self::Releasing { .. } => Phase::Releasing,
            Self::Leaving { .. } => Phase::Leaving,
            Self::Lost { .. } => Phase::Lost,
            Self::Leaked { .. } => Phase::Leaked,
            Self::Over => Phase::Over,
        }
    }
}

impl<P: Mirror> Core<P> {
    /// Returns the member id of an attempt that has begun anew `round` times, after a lost queue
    /// position or a missed grant.
    pub fn number_of(attempt: u64, round: u64) -> u64 {
        attempt << ROUND_BITS | round
    }

    /// Splits a member id into the number of the attempt and the count of earlier ids that it has
    /// used.
    pub fn parts_of(number: u64) -> (u64, u64) {
        (number >> ROUND_BITS, number % (1 << ROUND_BITS))
    }

    /// Returns the member id under which an attempt continues now; `None` if the attempt is over.
    pub fn round(&self, attempt: u64) -> Option<u64> {
        self.current(attempt)
    }

    /// Returns the state of the member with this id; `None` if it is not in the table.
    pub fn phase(&self, number: u64) -> Option<Phase> {
        self.table.get(number).map(|entry| entry.state.phase())
    }

    /// Returns the member with this id; `None` if it is not in the table.
    pub fn member(&self, number: u64) -> Option<&Member> {
        self.table.get(number).map(|entry| &entry.member)
    }

    /// Returns when the member with this id last certainly did not hold the lock. The lease of a
    /// grant by message is counted from this time. `None` if the member is not in the table.
    pub fn anchor(&self, number: u64) -> Option<Moment> {
        self.table.get(number).map(|entry| entry.anchor)
    }

    /// Returns the time until which the server certainly keeps a hold, or a lock offered to its
    /// caller; `None` in other states.
    pub fn until(&self, number: u64) -> Option<Moment> {
        match &self.table.get(number)?.state {
            State::Held(lease) | State::Offered(lease) | State::Serving(lease) => {
                Some(lease.until())
            }
            _ => None,
        }
    }

    /// Returns the ids of all members in the table.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.table.entries().keys().copied()
    }

    /// Returns the ids of the members with a request in flight, whose state changes only when it
    /// gets its response.
    pub fn unanswered_numbers(&self) -> impl Iterator<Item = u64> {
        let waits = self.table.entries().iter().filter(|(_, entry)| match &entry.state {
            State::Asking { .. } | State::Confirming { .. } | State::ConfirmingBatch => true,
            State::Releasing { due, .. } | State::Leaving { due, .. } => due.is_none(),
            _ => false,
        });
        waits.map(|(number, _)| *number)
    }

    /// Returns all scheduled work with the times when it is due. A model checker can do it in any
    /// order, by [`attend`](Self::attend).
    pub fn dues(&self) -> impl Iterator<Item = (Moment, Due)> {
        DueWork::ALL.into_iter().flat_map(|work| self.each(work))
    }

    /// Returns all scheduled work of this kind.
    fn each(&self, work: DueWork) -> Vec<(Moment, Due)> {
        let numbers = |numbers: &BTreeSet<(Moment, u64)>, due: fn(u64) -> Due| {
            numbers.iter().map(|(at, number)| (*at, due(*number))).collect()
        };
        let at_once = |is_due: bool, due: Due| {
            is_due.then_some((Moment::default(), due)).into_iter().collect()
        };
        let mut lanes = self.table.lanes().iter();
        match work {
            DueWork::End => numbers(self.table.ends(), Due::End),
            DueWork::Renewal => {
                let renewals = lanes.flat_map(|lane| &lane.renewals);
                renewals.map(|(at, number)| (*at, Due::Renewal(*number))).collect()
            }
            DueWork::GiveBack => {
                let leaves = lanes.flat_map(|lane| &lane.leaves);
                let all = self.table.releases().iter().chain(leaves);
                all.map(|(at, number)| (*at, Due::GiveBack(*number))).collect()
            }
            DueWork::Touch => {
                let touches = lanes.flat_map(|lane| &lane.touches);
                touches.map(|(at, lock)| (*at, Due::Touch(lock.clone()))).collect()
            }
            DueWork::Turn => {
                let may_ask = |lane: &Lane| !lane.unsent.is_empty() && self.room_to_ask(lane) > 0;
                at_once(lanes.any(may_ask), Due::Turn)
            }
            DueWork::Retry => at_once(lanes.any(|lane| !lane.parked.is_empty()), Due::Retry),
            DueWork::LeaveAgain => {
                at_once(lanes.any(|lane| self.may_leave_again(lane)), Due::LeaveAgain)
            }
            DueWork::RenewAll => at_once(self.renew_all.is_some(), Due::RenewAll),
            DueWork::Recheck => at_once(self.recheck.is_some(), Due::Recheck),
        }
    }

    /// Does a piece of scheduled work, even before it is due.
    pub fn attend(&mut self, due: &Due) {
        match due {
            Due::End(number) => self.ended(*number),
            Due::Renewal(number) => self.renew(*number),
            Due::GiveBack(number) => {
                let mut leaving = BTreeMap::new();
                self.send(*number, &mut leaving);
                self.leave(leaving);
            }
            Due::Touch(lock) => self.touch_line(lock),
            Due::Turn => {
                self.in_each_lane(MAX_AT_ONCE, Self::send_unsent);
            }
            Due::Retry => {
                self.in_each_lane(MAX_AT_ONCE, Self::retry_parked);
            }
            Due::LeaveAgain => {
                self.in_each_lane(MAX_AT_ONCE, Self::leave_again);
            }
            Due::RenewAll => {
                self.renew_on(MAX_AT_ONCE);
            }
            Due::Recheck => {
                self.recheck_on(MAX_AT_ONCE);
            }
        }
    }

    /// Appends numbers to `print` that identify the state of the core, so that a model checker
    /// recognizes states that it has seen. Most values that influence only timing, such as
    /// counters, are left out.
    pub fn print(&self, print: &mut Vec<u64>) {
        for (number, entry) in self.table.entries() {
            let caller = match entry.caller {
                Caller::Waits => 0,
                Caller::Refused(_) => 1,
                Caller::Gone => 2,
            };
            let (until, is_due) = match &entry.state {
                State::Held(lease) | State::Serving(lease) => {
                    (lease.until(), lease.renew_at.is_some())
                }
                State::Offered(lease) => (lease.until(), true),
                State::Releasing { due, .. } | State::Leaving { due, .. } => {
                    (Moment::default(), due.is_some())
                }
                State::Leaked { until } => (*until, false),
                _ => (entry.anchor, false),
            };
            let doubts = u64::from(entry.ambiguous)
                | u64::from(entry.unanswered) << 4
                | u64::from(entry.unheard) << 5;
            let of_fence = u64::from(entry.is_fenced) << 6 | u64::from(entry.may_hold) << 7;
            let flags = doubts | of_fence | u64::from(is_due) << 1 | caller << 2;
            let phase = entry.state.phase() as u64;
            print.extend([*number, phase << 8 | flags, until.as_micros()]);
            print.extend(self.batches.hold_of(*number).map(|batch| u64::MAX / 4 - batch));
            // An absent value adds no number.
            print.extend(self.busy.has(&entry.lock).then_some(u64::MAX - 1));
            print.extend(entry.revoked.map(|revoked| u64::MAX - 1 - revoked.as_micros()));
            print.extend(entry.answered.map(|answered| u64::MAX / 2 - answered.as_micros()));
        }
        for (first, batch) in self.batches.iter() {
            let (rest, returned) = (batch.rest.iter(), batch.returned.iter());
            print.extend([*first, batch.served.unwrap_or(0), batch.returned.len() as u64]);
            print.extend(&batch.members);
            print.extend(rest.flat_map(|(number, token)| [*number, token.get()]));
            print.extend(returned.map(|(at, _)| at.as_micros()));
        }
        print.push(u64::MAX); // no number
        for (number, heard) in self.recent_releases.iter() {
            print.extend([number, heard.as_micros()]);
        }
        print.extend([self.next_attempt, u64::from(self.is_up())]);
    }
}
