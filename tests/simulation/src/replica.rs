//! The server's replica: copies by time, and how much of them it has acknowledged.

use std::collections::VecDeque;

use crate::resource::Resource;
use crate::world::MS;

/// The interval at which all locks are copied; a lock whose copy is to be acknowledged is copied
/// immediately.
const COPIED_US: u64 = 500 * MS;
/// How far behind the primary a replica may be at most when it takes over, in µs.
const BEHIND_US: u64 = 3_000 * MS;
/// The longest time that a process waits for acknowledgements.
const WAIT_US: u64 = 300 * MS;

/// The token counters by hash slot.
pub(crate) type Counters = Vec<Option<u64>>;

#[derive(Default)]
pub(crate) struct Replica {
    /// Copies of each lock with their times, the oldest first.
    copies: Vec<VecDeque<(u64, Resource)>>,
    /// The token counters with their times, the oldest first.
    counters: VecDeque<(u64, Counters)>,
    copied_at: Option<u64>,
    /// When the replica first had everything.
    follows_since: u64,
    /// Acknowledgements: when the primary received each, and the time it covers.
    acknowledged: Vec<(u64, u64)>,
    pub(crate) behind_until: u64,
}

impl Replica {
    /// Copies all locks if a copy is due.
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

    /// Waits for the replica to receive the last write to this lock. Returns when the process
    /// continues, and how many replicas have the write by then.
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

    /// Returns the earliest time whose copy contains everything acknowledged, and everything from
    /// the start of replication.
    pub(crate) fn acknowledged(&self, now: u64) -> u64 {
        let known = self.acknowledged.iter().filter(|(at, _)| *at <= now);
        known.map(|(_, upto)| *upto).fold(self.follows_since, u64::max)
    }

    /// Returns the earliest time with a copy.
    pub(crate) fn earliest(now: u64) -> u64 {
        now.saturating_sub(BEHIND_US)
    }

    /// Returns the replica's state, if it has received everything up to `upto`; `None` before the
    /// first copy.
    pub(crate) fn known(&self, upto: u64) -> Option<(Vec<Resource>, Counters)> {
        self.copied_at?;
        let none =
            || self.counters.iter().next().map_or(Vec::new(), |(_, is)| vec![None; is.len()]);
        let locks = self.copies.iter().map(|copies| last(copies, upto).unwrap_or_default());
        Some((locks.collect(), last(&self.counters, upto).unwrap_or_else(none)))
    }
}

/// Returns the last copy up to this time.
fn last<T: Clone>(copies: &VecDeque<(u64, T)>, upto: u64) -> Option<T> {
    copies.iter().rev().find(|(at, _)| *at <= upto).map(|(_, copy)| copy.clone())
}

/// Drops old copies: the first copy kept is for the earliest time that may be requested.
fn forget<T>(copies: &mut VecDeque<(u64, T)>, now: u64) {
    while copies.get(1).is_some_and(|(at, _)| at + BEHIND_US < now) {
        copies.pop_front();
    }
}
