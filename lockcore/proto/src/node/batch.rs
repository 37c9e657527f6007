//! A batch: members of this node with a single hold, granted to them together.

use std::collections::{BTreeMap, VecDeque};

use crate::member::Member;
use crate::name::LockName;
use crate::node::moment::Moment;
use crate::token::FencingToken;

/// A batch's members, beside the entry of the batch hold.
#[derive(Debug, Clone)]
pub(super) struct Batch<P> {
    pub(super) lock: LockName,
    /// The member ids to release together: the batch hold's id, and the members last listed by the
    /// server.
    pub(super) members: Vec<u64>,
    /// The members listed by the server as still to be served. Empty once the batch was cut.
    pub(super) listed: Vec<u64>,
    /// The member with the lock, or with an offer of it.
    pub(super) served: Option<u64>,
    /// The members still to be served, each with a fencing token. Some may be gone.
    pub(super) rest: VecDeque<(u64, FencingToken)>,
    /// Members that have released the lock, and when, until it is known whether the server still
    /// had the hold then.
    pub(super) returned: Vec<(Moment, P)>,
    /// The member id under which the first member's attempt continues, if the caller waits.
    pub(super) of_first: Option<u64>,
    /// When the server was last notified about served members.
    pub(super) told: Moment,
    pub(super) handed_over: bool,
    /// Whether the server may still list members no longer served: the hold is then released by a
    /// leave of the other members.
    pub(super) is_cut: bool,
    /// Members waiting again since the batch was cut.
    pub(super) cut: Vec<u64>,
}

impl<P> Batch<P> {
    /// Returns how many finished members the server still counts as waiting.
    pub(super) fn counted_too_many(&self) -> usize {
        let to_serve = self.rest.len() + usize::from(self.served.is_some());
        // The server counts one listed member as the holder.
        self.listed.len() - to_serve.max(1).min(self.listed.len())
    }

    /// Removes the unserved members `waiting`: the hold belongs to the other members from now on.
    pub(super) fn cut(&mut self, waiting: &[u64]) {
        self.rest.clear();
        self.listed.clear();
        self.members.retain(|number| !waiting.contains(number));
        self.cut.extend(waiting);
        self.is_cut = true;
    }

    /// Returns the served member's id on the server.
    pub(super) fn served_as(&self) -> Option<u64> {
        let (served, first) = (self.served?, *self.members.first()?);
        Some(if self.of_first == Some(served) { first } else { served })
    }

    /// Returns the listed members no longer served, by their ids on the server.
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

/// Returns the member ids to release together: the hold's id, then the other members.
pub(super) fn members_of(first: u64, numbers: &[u64]) -> Vec<u64> {
    let others = numbers.iter().copied().filter(|number| *number != first);
    std::iter::once(first).chain(others).collect()
}

/// A batch as the server reports it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReportedBatch<'a> {
    /// The lock, and the member by which the hold is named. A message contains neither: the first
    /// id then names the hold.
    pub(super) hold: Option<(&'a LockName, &'a Member)>,
    /// The members whose acquires this reply answers.
    pub(super) answered: &'a [Member],
    /// The member ids in order.
    pub(super) numbers: &'a [u64],
    /// The first member's fencing token.
    pub(super) token: FencingToken,
    /// Milliseconds left on the lease.
    pub(super) left_ms: u64,
}

impl ReportedBatch<'_> {
    /// Returns whether this reply answers the member's acquire.
    pub(super) fn answers(&self, number: u64) -> bool {
        self.answered.iter().any(|member| member.number() == number)
    }
}

/// A node's batches. Empty while no batch is granted, so that a single member's hold costs no more.
#[derive(Debug, Clone)]
pub(super) struct Batches<P> {
    /// By batch hold id, until the server has confirmed the release.
    by_hold: BTreeMap<u64, Batch<P>>,
    /// Each lock's last batch hold, by id.
    by_lock: BTreeMap<LockName, u64>,
    /// Each member's batch hold, while the member is served or still to be served.
    holds: BTreeMap<u64, u64>,
}

impl<P> Batches<P> {
    pub(super) fn new() -> Self {
        Self { by_hold: BTreeMap::new(), by_lock: BTreeMap::new(), holds: BTreeMap::new() }
    }

    /// Asserts that the batches and their indices agree.
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
                // A leaked guard has left the hold, and ends with the batch.
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

    /// Returns whether this id is a batch hold's.
    pub(super) fn contains(&self, first: u64) -> bool {
        self.by_hold.contains_key(&first)
    }

    /// Returns the lock's last batch hold, by id.
    pub(super) fn of_lock(&self, lock: &LockName) -> Option<u64> {
        self.by_lock.get(lock).copied()
    }

    pub(super) fn insert(&mut self, first: u64, batch: Batch<P>) {
        self.by_lock.insert(batch.lock.clone(), first);
        self.by_hold.insert(first, batch);
    }

    /// Removes and returns the batch whose hold has this member id. The hold itself remains, as an
    /// ordinary hold.
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

    /// Returns the batch hold (by id) under which a member is served, or will be.
    pub(super) fn hold_of(&self, member: u64) -> Option<u64> {
        self.holds.get(&member).copied()
    }

    /// Adds the member to the batch of this hold.
    pub(super) fn join(&mut self, member: u64, first: u64) {
        self.holds.insert(member, first);
    }

    /// Removes the member from any batch.
    pub(super) fn leave(&mut self, member: u64) {
        self.holds.remove(&member);
    }
}
