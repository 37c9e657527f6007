//! The sorted set of a queue: each waiting member with the time up to which it is believed alive.

use std::collections::{BTreeMap, BTreeSet};

use crate::member::Member;

/// Member → deadline, and the same by deadline. Equal deadlines are ordered by the members' bytes,
/// as in Redis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Deadlines {
    by_member: BTreeMap<Member, u64>,
    in_order: BTreeSet<(u64, Member)>,
}

impl Deadlines {
    /// How many members have a deadline.
    pub fn len(&self) -> usize {
        self.by_member.len()
    }

    /// Whether nobody has one.
    pub fn is_empty(&self) -> bool {
        self.by_member.is_empty()
    }

    /// The member's deadline, ms since the epoch.
    pub fn get(&self, member: &Member) -> Option<u64> {
        self.by_member.get(member).copied()
    }

    /// Adds the member, or moves it to another deadline.
    pub fn set(&mut self, member: &Member, deadline_ms: u64) {
        if let Some(old_ms) = self.by_member.insert(member.clone(), deadline_ms) {
            self.in_order.remove(&(old_ms, member.clone()));
        }
        self.in_order.insert((deadline_ms, member.clone()));
    }

    /// Removes the member; tells whether it was there.
    pub fn remove(&mut self, member: &Member) -> bool {
        let Some(old_ms) = self.by_member.remove(member) else {
            return false;
        };
        self.in_order.remove(&(old_ms, member.clone()))
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.by_member.clear();
        self.in_order.clear();
    }

    /// The member with the greatest deadline.
    pub fn greatest(&self) -> Option<(u64, &Member)> {
        self.in_order.last().map(|(deadline_ms, member)| (*deadline_ms, member))
    }

    /// The members whose deadline has passed, the lowest first.
    pub fn passed(&self, now_ms: u64) -> impl Iterator<Item = &Member> {
        self.iter().take_while(move |(deadline_ms, _)| *deadline_ms <= now_ms).map(|(_, m)| m)
    }

    /// How many deadlines have not passed.
    pub fn live(&self, now_ms: u64) -> usize {
        // Few have passed at any time: the sweep drops them.
        self.len() - self.passed(now_ms).count()
    }

    /// All, the lowest deadline first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Member)> {
        self.in_order.iter().map(|(deadline_ms, member)| (*deadline_ms, member))
    }
}
