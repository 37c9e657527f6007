//! The server's replica: what it has had when, and how much of that it has acknowledged.

use std::collections::VecDeque;

use crate::resource::Resource;
use crate::world::MS;

/// How often all locks are copied; one whose copy is to be acknowledged is copied at once.
const COPIED_US: u64 = 500 * MS;
/// How far behind a replica is at most when it takes over.
const BEHIND_US: u64 = 3_000 * MS;
/// How long a process waits until replicas have acknowledged.
const WAIT_US: u64 = 300 * MS;

#[derive(Default)]
pub(crate) struct Replica {
    /// By lock: what it was when, oldest first.
    copies: Vec<VecDeque<(u64, Resource)>>,
    /// The values of the counter of tokens and their times, oldest first.
    counters: VecDeque<(u64, Option<u64>)>,
    copied_at: Option<u64>,
    /// When it got everything for the first time.
    follows_since: u64,
    /// From when on the primary knows that it has everything up to when.
    acknowledged: Vec<(u64, u64)>,
    pub(crate) behind_until: u64,
}

impl Replica {
    /// Copies all locks if that is due.
    pub(crate) fn follow(&mut self, now: u64, locks: &[Resource], counter: Option<u64>) {
        if self.copied_at.is_some_and(|at| now <= at + COPIED_US) {
            return;
        }
        if self.copied_at.replace(now).is_none() {
            self.follows_since = now;
        }
        self.counters.push_back((now, counter));
        forget(&mut self.counters, now);
        self.copies.resize_with(locks.len(), VecDeque::new);
        for (copies, lock) in self.copies.iter_mut().zip(locks) {
            copies.push_back((now, lock.clone()));
            forget(copies, now);
        }
        self.acknowledged.retain(|(_, upto)| upto + BEHIND_US > now);
    }

    /// A process waits for what was just written to this lock. Returns when it goes on, and how
    /// many replicas have it by then.
    pub(crate) fn wait_for(
        &mut self,
        [now, arrives]: [u64; 2],
        lock: usize,
        (is, counter): (&Resource, Option<u64>),
    ) -> (u64, u32) {
        let acknowledged_at = arrives.max(self.behind_until);
        if let Some(copies) = self.copies.get_mut(lock) {
            copies.push_back((now, is.clone()));
            self.counters.push_back((now, counter));
        }
        self.acknowledged.push((acknowledged_at, now));
        match acknowledged_at > now + WAIT_US {
            true => (now + WAIT_US, 0),
            false => (acknowledged_at, 1),
        }
    }

    /// The earliest that it may be, and still have everything that it has acknowledged, or that
    /// was there when it began to follow.
    pub(crate) fn acknowledged(&self, now: u64) -> u64 {
        let known = self.acknowledged.iter().filter(|(at, _)| *at <= now);
        known.map(|(_, upto)| *upto).fold(self.follows_since, u64::max)
    }

    /// The earliest that it is at all.
    pub(crate) fn earliest(now: u64) -> u64 {
        now.saturating_sub(BEHIND_US)
    }

    /// What it knows, if it has received everything up to this time; nothing before it has followed
    /// at all.
    pub(crate) fn known(&self, upto: u64) -> Option<(Vec<Resource>, Option<u64>)> {
        self.copied_at?;
        let locks = self.copies.iter().map(|copies| last(copies, upto).unwrap_or_default());
        Some((locks.collect(), last(&self.counters, upto).flatten()))
    }
}

/// The last copy up to this time.
fn last<T: Clone>(copies: &VecDeque<(u64, T)>, upto: u64) -> Option<T> {
    copies.iter().rev().find(|(at, _)| *at <= upto).map(|(_, copy)| copy.clone())
}

/// The first that is kept is the one of the earliest time that may be asked for.
fn forget<T>(copies: &mut VecDeque<(u64, T)>, now: u64) {
    while copies.get(1).is_some_and(|(at, _)| at + BEHIND_US < now) {
        copies.pop_front();
    }
}
