//! The records of batches: members of this node that were granted a lock together, as a single
//! hold.

use std::collections::{BTreeMap, VecDeque};

use crate::member::Member;
use crate::name::LockName;
use crate::node::moment::Moment;
use crate::token::FencingToken;

/// A batch's members. The table has an entry for the batch hold besides.
#[derive(Debug, Clone)]
pub(super) struct Batch<P> {
    pub(super) lock: LockName,
    /// The member ids that are released together. The first is the hold's id, and the others were
    /// listed by the server.
    pub(super) members: Vec<u64>,
    /// The member ids that the server lists as still to be served. Empty once the batch was cut.
    pub(super) listed: Vec<u64>,
    /// The id of the member that has the lock, or to which it is offered; `None` in between.
    pub(super) served: Option<u64>,
    /// The ids of the members still to be served, each with its fencing token. Some may have been
    /// cancelled.
    pub(super) rest: VecDeque<(u64, FencingToken)>,
    /// Guards that have released the lock, each with the time. They wait until it is known whether
    /// the server still had the hold at that time.
    pub(super) returned: Vec<(Moment, P)>,
    /// The member id under which the first member's attempt continues; `None` if it had been
    /// cancelled.
    pub(super) of_first: Option<u64>,
    /// The time when served members were last removed from the batch on the server.
    pub(super) shown: Moment,
    pub(super) handed_over: bool,
    /// True if the batch was cut, and the server may still list members that are not in it any
    /// more. Then the hold is released by a leave of all remaining members.
    pub(super) is_cut: bool,
    /// The member ids that wait in the queue again because the batch was cut.
    pub(super) cut: Vec<u64>,
}

impl<P> Batch<P> {
    /// Returns the number of finished members that the server still counts as waiting.
    pub(super) fn counted_too_many(&self) -> usize {
        let to_serve = self.rest.len() + usize::from(self.served.is_some());
        // The server regards one listed member as the holder.
        self.listed.len() - to_serve.max(1).min(self.listed.len())
    }

    /// Ends the batch for the unserved members `waiting`. The hold belongs to the remaining members
    /// from now on.
    pub(super) fn cut(&mut self, waiting: &[u64]) {
        self.rest.clear();
        self.listed.clear();
        self.members.retain(|number| !waiting.contains(number));
        self.cut.extend(waiting);
        self.is_cut = true;
    }

    /// Returns the id under which the server knows the member that is served now; `None` if none
    /// is.
    pub(super) fn served_as(&self) -> Option<u64> {
        let (served, first) = (self.served?, *self.members.first()?);
        Some(if self.of_first == Some(served) { first } else { served })
    }

    /// Returns the member ids that the server lists although they are done, as the server knows
    /// them.
    pub(super) fn done(&self) -> impl Iterator<Item = u64> {
        let first = self.members.first().copied();
        let ours = move |number: &u64| match self.of_first {
            Some(of_first) if Some(*number) == first => of_first,
            _ => *number,
        };
        let is_done = move |number: &u64| {
            let number = ours(number);
            self.served != Some(number) && !self.rest.iter().any(|(next, _)| *next == number)
        };
        self.listed.iter().copied().filter(is_done)
    }
}

/// Returns the ids of the members to release together: the hold's id `first`, then the other ids.
pub(super) fn members_of(first: u64, numbers: &[u64]) -> Vec<u64> {
    let others = numbers.iter().copied().filter(|number| *number != first);
    std::iter::once(first).chain(others).collect()
}

/// A batch, as a reply or a message reports it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportedBatch<'a> {
    /// The lock, and the member under which the server stores the hold. A message contains neither;
    /// then the first id names the hold.
    pub(super) hold: Option<(&'a LockName, &'a Member)>,
    /// The members whose acquires are answered by the reply; empty in a message.
    pub(super) answered: &'a [Member],
    /// The ids of the batch members, in the order in which they are served.
    pub(super) numbers: &'a [u64],
    /// The first member's fencing token.
    pub(super) token: FencingToken,
    /// Milliseconds until the hold expires.
    pub(super) left_ms: u64,
}

impl ReportedBatch<'_> {
    /// Returns true if the reply answers the member's acquire with this id.
    pub(super) fn answers(&self, number: u64) -> bool {
        self.answered.iter().any(|member| member.number() == number)
    }
}

/// All batches of a node. It allocates nothing before a batch is granted, so a hold outside a batch
/// costs no more.
#[derive(Debug, Clone)]
pub(super) struct Batches<P> {
    /// The batches by the id of their holds. A batch stays until the server has acknowledged the
    /// release.
    by_hold: BTreeMap<u64, Batch<P>>,
    /// The id of the last batch hold for each lock.
    by_lock: BTreeMap<LockName, u64>,
    /// Each batch member that is served or still to be served, with the id of its batch hold.
    holds: BTreeMap<u64, u64>,
}

impl<P> Batches<P> {
    pub(super) fn new() -> Self {
        Self { by_hold: BTreeMap::new(), by_lock: BTreeMap::new(), holds: BTreeMap::new() }
    }

    /// Panics if the batches and their indices do not agree.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        for (lock, first) in &self.by_lock {
            let batch = self.by_hold.get(first);
            assert!(
                batch.is_some_and(|batch| batch.lock == *lock),
                "{first} is not a batch of {lock:?}"
            );
        }
        for (first, batch) in &self.by_hold {
            assert_eq!(batch.members.first(), Some(first), "the hold is the first member");
            let served = batch.served;
            let is_both = batch.rest.iter().any(|(number, _)| served == Some(*number));
            assert!(!is_both, "{served:?} is served, and to be served");
            if let Some(served) = served {
                // A leaked guard does not belong to the hold any more, but stays in the record
                // until the batch ends.
                let hold = self.holds.get(&served);
                assert!(hold.is_none_or(|hold| hold == first), "{served} is served elsewhere");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_hold.is_empty() && self.by_lock.is_empty() && self.holds.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u64, &Batch<P>)> {
        self.by_hold.iter()
    }

    pub(super) fn get(&self, first: u64) -> Option<&Batch<P>> {
        self.by_hold.get(&first)
    }

    pub(super) fn get_mut(&mut self, first: u64) -> Option<&mut Batch<P>> {
        self.by_hold.get_mut(&first)
    }

    /// Returns true if this member id is a batch hold's id.
    pub(super) fn contains(&self, first: u64) -> bool {
        self.by_hold.contains_key(&first)
    }

    /// Returns the id of this lock's last batch hold; `None` without a batch.
    pub(super) fn of_lock(&self, lock: &LockName) -> Option<u64> {
        self.by_lock.get(lock).copied()
    }

    pub(super) fn insert(&mut self, first: u64, batch: Batch<P>) {
        self.by_lock.insert(batch.lock.clone(), first);
        self.by_hold.insert(first, batch);
    }

    /// Removes and returns the record of a batch. The hold stays in the table, as an ordinary hold.
    pub(super) fn remove(&mut self, first: u64) -> Option<Batch<P>> {
        if self.by_hold.is_empty() {
            return None;
        }
        let batch = self.by_hold.remove(&first)?;
        if self.by_lock.get(&batch.lock) == Some(&first) {
            self.by_lock.remove(&batch.lock);
        }
        Some(batch)
    }

    /// Returns the id under which the server stores the batch that contains this member; `None` if
    /// the member is in no batch.
    pub(super) fn hold_of(&self, member: u64) -> Option<u64> {
        self.holds.get(&member).copied()
    }

    /// Records that `member` belongs to the batch whose hold has the id `first`.
    pub(super) fn join(&mut self, member: u64, first: u64) {
        self.holds.insert(member, first);
    }

    /// Records that `member` belongs to no batch any more.
    pub(super) fn leave(&mut self, member: u64) {
        self.holds.remove(&member);
    }
}
