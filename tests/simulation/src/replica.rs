//! The server's replica: its copies by time, and the part of them that it has acknowledged.

use std::collections::VecDeque;

use crate::resource::Resource;
use crate::world::MS;

/// The time between two copies of all locks; a lock whose copy is to be acknowledged is copied at
/// once.
const COPIED_US: u64 = 500 * MS;
/// The longest time by which a replica is behind when it takes over.
const BEHIND_US: u64 = 3_000 * MS;
/// The longest time that a process waits for replicas to acknowledge.
const WAIT_US: u64 = 300 * MS;

/// The counter of tokens of each hash slot.
pub(crate) type Counters = Vec<Option<u64>>;

#[derive(Default)]
pub(crate) struct Replica {
    /// The copies of each lock with their times, oldest first.
    copies: Vec<VecDeque<(u64, Resource)>>,
    /// The values of the counters of tokens and their times, oldest first.
    counters: VecDeque<(u64, Counters)>,
    copied_at: Option<u64>,
    /// The time at which it had everything for the first time.
    follows_since: u64,
    /// The times at which the primary learned of an acknowledgement, and the times that it covers.
    acknowledged: Vec<(u64, u64)>,
    pub(crate) behind_until: u64,
}

impl Replica {
    /// Copies all locks if that is due.
    pub(crate) fn follow(&mut self, now: u64, locks: &[Resource], counters: &Counters) {
        if self.copied_at.is_some_and(|at| now <= at + COPIED_US) {
            return;
        }
        if self.copied_at.replace(now).is_none() {
            self.follows_since = now;
        }
        self.counters.push_back((now, counters.clone()));
        forget(&mut self.counters, now);
        self.copies.resize_with(locks.len(), VecDeque::new);
        for (copies, lock) in self.copies.iter_mut().zip(locks) {
            copies.push_back((now, lock.clone()));
            forget(copies, now);
        }
        self.acknowledged.retain(|(_, upto)| upto + BEHIND_US > now);
    }

    /// Waits for the replica to have the last write to this lock. Returns the time at which the
    /// process goes on, and the number of replicas that have it by then.
    pub(crate) fn wait_for(
        &mut self,
        [now, arrives]: [u64; 2],
        lock: usize,
        (is, counters): (&Resource, &Counters),
    ) -> (u64, u32) {
        let acknowledged_at = arrives.max(self.behind_until);
        if let Some(copies) = self.copies.get_mut(lock) {
            copies.push_back((now, is.clone()));
            self.counters.push_back((now, counters.clone()));
        }
        self.acknowledged.push((acknowledged_at, now));
        match acknowledged_at > now + WAIT_US {
            true => (now + WAIT_US, 0),
            false => (acknowledged_at, 1),
        }
    }

    /// The earliest time of a copy with everything that the replica has acknowledged, or that was
    /// there when it began to follow.
    pub(crate) fn acknowledged(&self, now: u64) -> u64 {
        let known = self.acknowledged.iter().filter(|(at, _)| *at <= now);
        known.map(|(_, upto)| *upto).fold(self.follows_since, u64::max)
    }

    /// The earliest time of a copy at all.
    pub(crate) fn earliest(now: u64) -> u64 {
        now.saturating_sub(BEHIND_US)
    }

    /// The state of the replica, if it has received everything up to this time; nothing before it
    /// has followed at all.
    pub(crate) fn known(&self, upto: u64) -> Option<(Vec<Resource>, Counters)> {
        self.copied_at?;
        let none =
            || self.counters.iter().next().map_or(Vec::new(), |(_, is)| vec![None; is.len()]);
        let locks = self.copies.iter().map(|copies| last(copies, upto).unwrap_or_default());
        Some((locks.collect(), last(&self.counters, upto).unwrap_or_else(none)))
    }
}

/// The last copy up to this time.
fn last<T: Clone>(copies: &VecDeque<(u64, T)>, upto: u64) -> Option<T> {
    copies.iter().rev().find(|(at, _)| *at <= upto).map(|(_, copy)| copy.clone())
}

/// Drops old copies: the first one that is kept is that of the earliest time that may be asked for.
fn forget<T>(copies: &mut VecDeque<(u64, T)>, now: u64) {
    while copies.get(1).is_some_and(|(at, _)| at + BEHIND_US < now) {
        copies.pop_front();
    }
}
