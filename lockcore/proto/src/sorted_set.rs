//! A sorted set as Redis has it, such as the deadlines of a queue: each waiting member with the
//! time up to which it is believed alive.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// Member → score, and the same by score. Equal scores are ordered by the members' bytes, as in
/// Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedSet<M> {
    by_member: BTreeMap<M, u64>,
    in_order: BTreeSet<(u64, M)>,
}

impl<M> Default for SortedSet<M> {
    fn default() -> Self {
        Self { by_member: BTreeMap::new(), in_order: BTreeSet::new() }
    }
}

/// One half says all that the other does.
impl<M: Hash> Hash for SortedSet<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.in_order.hash(hasher);
    }
}

impl<M: Clone + Ord> SortedSet<M> {
    /// The number of members.
    pub fn len(&self) -> usize {
        self.by_member.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_member.is_empty()
    }

    /// The member's score.
    pub fn get(&self, member: &M) -> Option<u64> {
        self.by_member.get(member).copied()
    }

    /// Adds the member, or moves it to another score.
    pub fn set(&mut self, member: &M, score: u64) {
        if let Some(old) = self.by_member.insert(member.clone(), score) {
            let was_there = self.in_order.remove(&(old, member.clone()));
            debug_assert!(was_there, "a member without its score {old}");
        }
        self.in_order.insert((score, member.clone()));
        debug_assert_eq!(self.by_member.len(), self.in_order.len());
    }

    /// Removes the member; tells whether it was there.
    pub fn remove(&mut self, member: &M) -> bool {
        let Some(old) = self.by_member.remove(member) else {
            return false;
        };
        let was_there = self.in_order.remove(&(old, member.clone()));
        debug_assert!(was_there, "a member without its score {old}");
        true
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.by_member.clear();
        self.in_order.clear();
    }

    /// The member with the lowest score.
    pub fn lowest(&self) -> Option<(u64, &M)> {
        self.iter().next()
    }

    /// The member with the greatest score.
    pub fn greatest(&self) -> Option<(u64, &M)> {
        self.in_order.last().map(|(score, member)| (*score, member))
    }

    /// The members whose time has passed, the lowest first.
    pub fn passed(&self, now_ms: u64) -> impl Iterator<Item = &M> {
        self.iter().take_while(move |(at_ms, _)| *at_ms <= now_ms).map(|(_, m)| m)
    }

    /// All, the lowest score first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &M)> {
        self.in_order.iter().map(|(score, member)| (*score, member))
    }
}
