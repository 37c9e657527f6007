//! A sorted set as in Redis, for example the waiting members with their scores.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// A map from members to scores, ordered by score. Members with equal scores are ordered by their
/// bytes, as in Redis.
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

/// Hashes only `in_order`, because `by_member` has the same content.
impl<M: Hash> Hash for SortedSet<M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.in_order.hash(hasher);
    }
}

impl<M: Clone + Ord> SortedSet<M> {
    /// Returns the number of members in the set.
    pub fn len(&self) -> usize {
        self.by_member.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.by_member.is_empty()
    }

    /// Returns the member's score; `None` if the set does not contain it.
    pub fn get(&self, member: &M) -> Option<u64> {
        self.by_member.get(member).copied()
    }

    /// Adds the member with this score, or changes the score of a member already present.
    pub fn set(&mut self, member: &M, score: u64) {
        if let Some(old) = self.by_member.insert(member.clone(), score) {
            let was_there = self.in_order.remove(&(old, member.clone()));
            debug_assert!(was_there, "a member without its score {old}");
        }
        self.in_order.insert((score, member.clone()));
        debug_assert_eq!(self.by_member.len(), self.in_order.len());
    }

    /// Removes the member. Returns true if it was present.
    pub fn remove(&mut self, member: &M) -> bool {
        let Some(old) = self.by_member.remove(member) else {
            return false;
        };
        let was_there = self.in_order.remove(&(old, member.clone()));
        debug_assert!(was_there, "a member without its score {old}");
        true
    }

    /// Removes all members.
    pub fn clear(&mut self) {
        self.by_member.clear();
        self.in_order.clear();
    }

    /// Returns the member with the lowest score, and the score; `None` if the set is empty.
    pub fn lowest(&self) -> Option<(u64, &M)> {
        self.iter().next()
    }

    /// Returns the member with the highest score, and the score; `None` if the set is empty.
    pub fn greatest(&self) -> Option<(u64, &M)> {
        self.in_order.last().map(|(score, member)| (*score, member))
    }

    /// Returns the members with scores up to `now_ms`, the lowest first, in a set whose scores are
    /// times in ms.
    pub fn passed(&self, now_ms: u64) -> impl Iterator<Item = &M> {
        self.iter().take_while(move |(at_ms, _)| *at_ms <= now_ms).map(|(_, m)| m)
    }

    /// Returns all members with their scores, the lowest score first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &M)> {
        self.in_order.iter().map(|(score, member)| (*score, member))
    }
}
