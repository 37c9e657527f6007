//! The records of batches: members of this node that were granted a lock together, as a single
//! hold.

use std::collections::{BTreeMap, VecDeque};

use crate::member::Member;
use crate::name::LockName;
use crate::node::moment::Moment;
use crate::token::FencingToken;

/// A batch: waiters of this node that were granted a lock as a single hold, and have it in turn.
/// The table has an entry for each member, and a further one for the hold.
#[derive(Debug, Clone)]
pub(super) struct Batch<P> {
    pub(super) lock: LockName,
    /// The ids of the members that share the hold on the server, and are removed there when it is
    /// released. The first is the id of the hold.
    pub(super) members: Vec<u64>,
    /// The ids of the batch members as the server lists them: the holder first, then the waiting
    /// members. Includes members whose turn is over, until `show_batch` removes them from the
    /// server. Empty after a cut.
    pub(super) listed: Vec<u64>,
    /// The id of the member whose turn it is: it has the lock, or was offered it. `None` between
    /// two turns.
    pub(super) served: Option<u64>,
    /// The ids of the members that still wait for their turn, in order, each with its fencing
    /// token. Some may have been cancelled.
    pub(super) rest: VecDeque<(u64, FencingToken)>,
    /// The mirrors of guards that released the lock before the end of the batch, each with the
    /// time. They get the outcome once a response shows whether the server still had the hold at
    /// that time, and an error if no response does so while the batch has a record.
    pub(super) returned: Vec<(Moment, P)>,
    /// The id under which the first member's attempt continues, because the hold has taken over its
    /// original id. `None` if the attempt was cancelled before the batch began.
    pub(super) of_first: Option<u64>,
    /// When members whose turn is over were last removed from the batch on the server, or when the
    /// batch began.
    pub(super) shown: Moment,
    pub(super) handed_over: bool,
    /// True if the batch was cut here, and the server may not know this yet. The unserved members
    /// may then still share the hold on the server, and a release would end it for all. So the
    /// other members leave instead.
    pub(super) is_cut: bool,
    /// The ids of the members that were put back into the queue when the batch was cut. Empty once
    /// the server knows the cut.
    pub(super) cut: Vec<u64>,
}

impl<P> Batch<P> {
    /// Returns the number of members whose turn is over, but which the server still counts as
    /// waiting.
    pub(super) fn counted_too_many(&self) -> usize {
        let to_serve = self.rest.len() + usize::from(self.served.is_some());
        // The server regards one listed member as the holder.
        self.listed.len() - to_serve.max(1).min(self.listed.len())
    }

    /// Cuts the batch: removes the unserved members `waiting`, which are in the queue again. The
    /// remaining members keep the hold.
    pub(super) fn cut(&mut self, waiting: &[u64]) {
        self.rest.clear();
        self.listed.clear();
        self.members.retain(|number| !waiting.contains(number));
        self.cut.extend(waiting);
        self.is_cut = true;
    }

    /// Returns the id by which the server knows the member that has the lock now; `None` if none
    /// has. For the first member this is its original id, although its attempt continues under
    /// another id here.
    pub(super) fn served_as(&self) -> Option<u64> {
        let (served, first) = (self.served?, *self.members.first()?);
        Some(if self.of_first == Some(served) { first } else { served })
    }

    /// Returns the members in `listed` whose turn is over, by the ids that the server knows.
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

/// Returns the id `first` of a batch hold, followed by the other ids in `numbers`.
pub(super) fn members_of(first: u64, numbers: &[u64]) -> Vec<u64> {
    let others = numbers.iter().copied().filter(|number| *number != first);
    std::iter::once(first).chain(others).collect()
}

/// A batch, as the server reports it in a reply or in a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportedBatch<'a> {
    /// The lock, and the member under which the server stores the hold. `None` if the report does
    /// not contain them, as in a message. Then the first id in `numbers` is the id of the hold.
    pub(super) hold: Option<(&'a LockName, &'a Member)>,
    /// The members of the acquire whose response reports the batch. Empty for a message, or for the
    /// response to another command.
    pub(super) answered: &'a [Member],
    /// The ids of the batch members, in the order in which they are served.
    pub(super) numbers: &'a [u64],
    /// The first member's fencing token. Each further member has the next higher token.
    pub(super) token: FencingToken,
    /// Milliseconds until the hold expires.
    pub(super) left_ms: u64,
}

impl ReportedBatch<'_> {
    /// Returns true if the reply answers the acquire of the member with this id.
    pub(super) fn answers(&self, number: u64) -> bool {
        self.answered.iter().any(|member| member.number() == number)
    }
}

/// All batches of a node, with their indices. Nothing is allocated before the first batch is
/// granted.
#[derive(Debug, Clone)]
pub(super) struct Batches<P> {
    /// The batches, by the id of their holds, which is the id of the first member. A released batch
    /// stays until the server has acknowledged the release.
    by_hold: BTreeMap<u64, Batch<P>>,
    /// The id of the latest batch hold for each lock.
    by_lock: BTreeMap<LockName, u64>,
    /// Each batch member whose turn is not over, with the id of its batch hold.
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

    /// Returns true if this is the id of a batch hold, and so of the batch's first member.
    pub(super) fn contains(&self, first: u64) -> bool {
        self.by_hold.contains_key(&first)
    }

    /// Returns the id of this lock's latest batch hold; `None` if there is no batch.
    pub(super) fn of_lock(&self, lock: &LockName) -> Option<u64> {
        self.by_lock.get(lock).copied()
    }

    pub(super) fn insert(&mut self, first: u64, batch: Batch<P>) {
        self.by_lock.insert(batch.lock.clone(), first);
        self.by_hold.insert(first, batch);
    }

    /// Removes and returns the record of a batch. The entry of the hold stays in the table.
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

    /// Returns the id of the batch hold that this member shares; `None` if it is in no batch, or
    /// its turn is over.
    pub(super) fn hold_of(&self, member: u64) -> Option<u64> {
        self.holds.get(&member).copied()
    }

    /// Records that `member` shares the batch hold with the id `first`.
    pub(super) fn join(&mut self, member: u64, first: u64) {
        self.holds.insert(member, first);
    }

    /// Records that `member` shares no batch hold any more, because its turn is over or its batch
    /// has ended.
    pub(super) fn leave(&mut self, member: u64) {
        self.holds.remove(&member);
    }
}
