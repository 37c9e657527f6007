//! The longest queues since `top` started. The list of locks shows only the current queues.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::busy::{self, Look};

/// The maximum number of locks in [`Peaks`]. The locks with the longest queues are kept.
const MOST: usize = 1_000;

/// The peaks of the locks that had waiters since `top` started, by lock name.
#[derive(Debug, Default)]
pub(super) struct Peaks(HashMap<String, Peak>);

/// The longest queue of a lock since `top` started, and the longest time that a waiter at the head
/// of the queue had waited.
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

    /// Returns all peaks, the longest queue first.
    pub(super) fn sorted(&self) -> Vec<(&str, Peak)> {
        let mut sorted: Vec<_> = self.0.iter().map(|(name, peak)| (name.as_str(), *peak)).collect();
        sorted.sort_by_key(|(name, peak)| (Reverse(peak.heat()), *name));
        sorted
    }
}
