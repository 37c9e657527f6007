//! Peaks since `top` started: the list itself shows only the current state.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::busy::{self, Look};

/// Maximum number of remembered locks, by the longest queues.
const MOST: usize = 1_000;

/// Locks seen with waiters, by name.
#[derive(Debug, Default)]
pub(super) struct Peaks(HashMap<String, Peak>);

/// A lock's longest queue, and the longest wait of any next waiter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peak {
    pub(super) waiting: u64,
    pub(super) wait: Duration,
    /// When the lock last had waiters.
    pub(super) at: Instant,
}

impl Peak {
    fn heat(&self) -> (u64, Duration) {
        (self.waiting, self.wait)
    }
}

impl Peaks {
    pub(super) fn note(&mut self, look: &Look) {
        let Self(peaks) = self;
        for lock in look.locks.iter().filter(|lock| lock.inspection.waiting > 0) {
            let found = &lock.inspection;
            let wait = found.waiters.first().and_then(|next| next.age).unwrap_or_default();
            let new = Peak { waiting: found.waiting, wait, at: look.at };
            let peak = peaks.entry(busy::name(lock).to_owned()).or_insert(new);
            peak.waiting = peak.waiting.max(new.waiting);
            peak.wait = peak.wait.max(new.wait);
            peak.at = new.at;
        }
        if peaks.len() > MOST {
            let coolest = self.sorted().into_iter().skip(MOST);
            let coolest: Vec<_> = coolest.map(|(name, _)| name.to_owned()).collect();
            for name in coolest {
                self.0.remove(&name);
            }
        }
    }

    /// Returns the peaks, hottest first.
    pub(super) fn sorted(&self) -> Vec<(&str, Peak)> {
        let mut sorted: Vec<_> = self.0.iter().map(|(name, peak)| (name.as_str(), *peak)).collect();
        sorted.sort_by_key(|(name, peak)| (Reverse(peak.heat()), *name));
        sorted
    }
}
