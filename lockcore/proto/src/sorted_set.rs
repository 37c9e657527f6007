//! A sorted set as in Redis, for example the waiting members with their scores.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

/// Maps members to scores, and is ordered by score. Equal scores are ordered by the members' bytes,
/// as in Redis.
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

/// Hashes only one map: the other has the same content.
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

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.by_member.is_empty()
    }

    /// The member's score.
    pub fn get(&self, member: &M) -> Option<u64> {
        self.by_member.get(member).copied()
    }

    /// Adds the member, or changes the score.
    pub fn set(&mut self, member: &M, score: u64) {
        if let Some(old) = self.by_member.insert(member.clone(), score) {
            let was_there = self.in_order.remove(&(old, member.clone()));
            debug_assert!(was_there, "a member without its score {old}");
        }
        self.in_order.insert((score, member.clone()));
        debug_assert_eq!(self.by_member.len(), self.in_order.len());
    }

    /// Removes the member; returns whether it was present.
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

    /// The member with the lowest score.
    pub fn lowest(&self) -> Option<(u64, &M)> {
        self.iter().next()
    }

    /// The member with the highest score.
    pub fn greatest(&self) -> Option<(u64, &M)> {
        self.in_order.last().map(|(score, member)| (*score, member))
    }

    /// The members with a score up to `now_ms`, the lowest first.
    pub fn passed(&self, now_ms: u64) -> impl Iterator<Item = &M> {
        self.iter().take_while(move |(at_ms, _)| *at_ms <= now_ms).map(|(_, m)| m)
    }

    /// All members, the lowest score first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &M)> {
        self.in_order.iter().map(|(score, member)| (*score, member))
    }
}
