//! A run: the members of this node that the server granted one hold together.

use std::collections::{BTreeMap, VecDeque};

use crate::member::Member;
use crate::name::LockName;
use crate::node::moment::Moment;
use crate::token::FencingToken;

/// The members of a run, beside the entry that is its hold.
#[derive(Debug, Clone)]
pub(super) struct Run<P> {
    pub(super) lock: LockName,
    /// The numbers that are given back together: that of the hold, and of the members that the
    /// server last told.
    pub(super) members: Vec<u64>,
    /// The members that the server lists as those to be served. None once the run was cut.
    pub(super) listed: Vec<u64>,
    /// The member that is offered the lock, or has it.
    pub(super) served: Option<u64>,
    /// The members to come, each with its token. Some may be gone.
    pub(super) rest: VecDeque<(u64, FencingToken)>,
    /// The members that have given the hold back, and when, until it is known whether the server
    /// still had it then.
    pub(super) returned: Vec<(Moment, P)>,
    /// The number under which the attempt of the first goes on, if its caller waits.
    pub(super) of_first: Option<u64>,
    /// The moment at which the server was last told which members have been served.
    pub(super) told: Moment,
    pub(super) handed_over: bool,
    /// Whether the server may still list members that are not served any more: then the hold is
    /// given back by a leave of the others.
    pub(super) is_cut: bool,
    /// The members that wait again since the run was cut.
    pub(super) cut: Vec<u64>,
}

impl<P> Run<P> {
    /// The number of members that are done, and that the server counts as waiting still.
    pub(super) fn counted_too_many(&self) -> usize {
        let to_serve = self.rest.len() + usize::from(self.served.is_some());
        // One of them the server counts as the holder.
        self.listed.len() - to_serve.max(1).min(self.listed.len())
    }

    /// Takes these members out, who are still to be served: the hold is that of the others from now
    /// on.
    pub(super) fn cut(&mut self, waiting: &[u64]) {
        self.rest.clear();
        self.listed.clear();
        self.members.retain(|number| !waiting.contains(number));
        self.cut.extend(waiting);
        self.is_cut = true;
    }

    /// The number of the served member on the server.
    pub(super) fn served_as(&self) -> Option<u64> {
        let (served, first) = (self.served?, *self.members.first()?);
        Some(if self.of_first == Some(served) { first } else { served })
    }

    /// The listed members that are not served any more, by their numbers on the server.
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

/// The numbers that are given back with the hold of this number, and these members.
pub(super) fn members_of(first: u64, numbers: &[u64]) -> Vec<u64> {
    let others = numbers.iter().copied().filter(|number| *number != first);
    std::iter::once(first).chain(others).collect()
}

/// A run, as the server tells of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToldRun<'a> {
    /// The lock, and the member whose name the hold has. A message tells neither: the name has the
    /// first of the numbers.
    pub(super) hold: Option<(&'a LockName, &'a Member)>,
    /// The members whose acquires this answers.
    pub(super) answered: &'a [Member],
    /// The numbers of the members in order.
    pub(super) numbers: &'a [u64],
    /// The token of the first of them.
    pub(super) token: FencingToken,
    /// The milliseconds left of its lease.
    pub(super) left_ms: u64,
}

impl ToldRun<'_> {
    /// Whether this answers the acquire of the member.
    pub(super) fn answers(&self, number: u64) -> bool {
        self.answered.iter().any(|member| member.number() == number)
    }
}

/// The runs of a node. Empty where none is granted, so that a hold of one member costs no more.
#[derive(Debug, Clone)]
pub(super) struct Runs<P> {
    /// By the numbers of their holds, until the server knows that these are released.
    by_hold: BTreeMap<u64, Run<P>>,
    /// The number of the last hold of each lock.
    by_lock: BTreeMap<LockName, u64>,
    /// The number of the hold of each member that is served within one, or is to be.
    holds: BTreeMap<u64, u64>,
}

impl<P> Runs<P> {
    pub(super) fn new() -> Self {
        Self { by_hold: BTreeMap::new(), by_lock: BTreeMap::new(), holds: BTreeMap::new() }
    }

    /// Asserts that the runs and their orders agree.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        for (lock, first) in &self.by_lock {
            let run = self.by_hold.get(first);
            assert!(run.is_some_and(|run| run.lock == *lock), "{first} is not a batch of {lock:?}");
        }
        for (first, run) in &self.by_hold {
            assert_eq!(run.members.first(), Some(first), "the hold is the first member");
            let served = run.served;
            let is_both = run.rest.iter().any(|(number, _)| served == Some(*number));
            assert!(!is_both, "{served:?} is served, and to be served");
            if let Some(served) = served {
                // A leaked guard has left its hold, and ends with the run.
                let hold = self.holds.get(&served);
                assert!(hold.is_none_or(|hold| hold == first), "{served} is served elsewhere");
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_hold.is_empty() && self.by_lock.is_empty() && self.holds.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&u64, &Run<P>)> {
        self.by_hold.iter()
    }

    pub(super) fn get(&self, first: u64) -> Option<&Run<P>> {
        self.by_hold.get(&first)
    }

    pub(super) fn get_mut(&mut self, first: u64) -> Option<&mut Run<P>> {
        self.by_hold.get_mut(&first)
    }

    /// Whether the hold of this number is a run's.
    pub(super) fn contains(&self, first: u64) -> bool {
        self.by_hold.contains_key(&first)
    }

    /// The number of the hold of the last run of this lock.
    pub(super) fn of_lock(&self, lock: &LockName) -> Option<u64> {
        self.by_lock.get(lock).copied()
    }

    pub(super) fn insert(&mut self, first: u64, run: Run<P>) {
        self.by_lock.insert(run.lock.clone(), first);
        self.by_hold.insert(first, run);
    }

    /// The hold of this number is no run's from now on.
    pub(super) fn remove(&mut self, first: u64) -> Option<Run<P>> {
        if self.by_hold.is_empty() {
            return None;
        }
        let run = self.by_hold.remove(&first)?;
        if self.by_lock.get(&run.lock) == Some(&first) {
            self.by_lock.remove(&run.lock);
        }
        Some(run)
    }

    /// The number of the hold within which this member is served, or is to be.
    pub(super) fn hold_of(&self, member: u64) -> Option<u64> {
        self.holds.get(&member).copied()
    }

    /// The member is served within this hold.
    pub(super) fn join(&mut self, member: u64, first: u64) {
        self.holds.insert(member, first);
    }

    /// The member is in no run any more.
    pub(super) fn leave(&mut self, member: u64) {
        self.holds.remove(&member);
    }
}
