//! What is due when, for one sleeping task: a heap whose outdated entries are skipped instead of searched for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// `at` plus `by`, or as far ahead as matters where that cannot be said.
pub(crate) fn later(at: Instant, by: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    at.checked_add(by).unwrap_or_else(|| at + FAR)
}

/// Keys with the instant at which each is due.
///
/// Setting and removing cost no search and, once warm, no allocation: a lock that is taken and given
/// back passes through here twice.
#[derive(Debug)]
pub(crate) struct Schedule<K> {
    /// The truth.
    due: HashMap<K, Instant>,
    /// In order, with entries that `due` no longer confirms.
    heap: BinaryHeap<Reverse<(Instant, K)>>,
    /// When the task will wake by itself.
    armed: Option<Instant>,
}

impl<K: Clone + Eq + Hash + Ord> Schedule<K> {
    pub(crate) fn new() -> Self {
        Self { due: HashMap::new(), heap: BinaryHeap::new(), armed: None }
    }

    /// Sets when `key` is due. Returns whether the task must be woken to sleep less long.
    #[must_use]
    pub(crate) fn set(&mut self, key: K, at: Instant) -> bool {
        if self.due.insert(key.clone(), at) != Some(at) {
            self.heap.push(Reverse((at, key)));
            self.compact();
        }
        let sooner = self.armed.is_none_or(|armed| at < armed);
        if sooner {
            // One wake-up is enough for all that is set before the task gets to run.
            self.armed = Some(at);
        }
        sooner
    }

    pub(crate) fn get(&self, key: &K) -> Option<Instant> {
        self.due.get(key).copied()
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.due.remove(key);
    }

    /// The next key that is due by `now`; it leaves the schedule.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        if self.first()? > now {
            return None;
        }
        let Reverse((_, key)) = self.heap.pop()?;
        self.due.remove(&key);
        Some(key)
    }

    /// When the task has to wake; it will sleep until then unless [`set`](Self::set) says otherwise.
    pub(crate) fn arm(&mut self) -> Option<Instant> {
        self.armed = self.first();
        self.armed
    }

    /// When the earliest key is due.
    fn first(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, key))) = self.heap.peek() {
            if self.due.get(key) == Some(at) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }

    /// Keeps the heap within a constant factor of what is really due.
    fn compact(&mut self) {
        if self.heap.len() > 64 + 2 * self.due.len() {
            let due = &self.due;
            self.heap.retain(|Reverse((at, key))| due.get(key) == Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ms: u64) -> impl Fn(Instant) -> Instant {
        move |start| start + Duration::from_millis(ms)
    }

    #[test]
    fn keys_come_out_when_they_are_due_and_in_order() {
        let start = Instant::now();
        let mut schedule = Schedule::new();
        let _ = schedule.set('b', after(20)(start));
        let _ = schedule.set('a', after(10)(start));
        assert_eq!(schedule.pop(start), None);
        assert_eq!(schedule.arm(), Some(after(10)(start)));
        assert_eq!(schedule.pop(after(30)(start)), Some('a'));
        assert_eq!(schedule.pop(after(30)(start)), Some('b'));
        assert_eq!(schedule.pop(after(30)(start)), None);
        assert_eq!(schedule.arm(), None);
    }

    #[test]
    fn the_last_setting_of_a_key_counts() {
        let start = Instant::now();
        let mut schedule = Schedule::new();
        let _ = schedule.set('a', after(10)(start));
        let _ = schedule.set('a', after(30)(start));
        assert_eq!(schedule.pop(after(20)(start)), None);
        schedule.remove(&'a');
        assert_eq!(schedule.pop(after(40)(start)), None);
    }

    #[test]
    fn the_task_is_woken_only_to_sleep_less_long() {
        let start = Instant::now();
        let mut schedule = Schedule::new();
        assert!(schedule.set('a', after(50)(start)), "the first entry wakes the task");
        assert_eq!(schedule.arm(), Some(after(50)(start)));
        schedule.remove(&'a');
        assert!(!schedule.set('b', after(60)(start)), "it wakes before that by itself");
        assert!(schedule.set('c', after(40)(start)));
        assert!(!schedule.set('d', after(45)(start)), "it was woken already");
    }

    #[test]
    fn entries_that_come_and_go_do_not_pile_up() {
        let start = Instant::now();
        let mut schedule = Schedule::new();
        for key in 0..100_000_u64 {
            let _ = schedule.set(key, after(10_000 + key)(start));
            schedule.remove(&key);
        }
        assert!(schedule.heap.len() <= 66);
    }
}
