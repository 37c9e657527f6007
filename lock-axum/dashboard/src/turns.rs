//! Observed turns in queues. They estimate how long a waiter still has to wait if the queue keeps
//! moving at the same rate.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockcore::operate::Participant;
use tokio::time::Instant;

/// How long a queue's observed turns are kept after the last observation of this queue.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// The observed turns of each queue, by lock name and first position shown. A turn is a change of
/// the first waiter. The rate of turns is used to estimate how long waiters still have to wait.
#[derive(Debug)]
pub(super) struct Queues {
    seen: Mutex<HashMap<(String, u32), Turns>>,
    /// The maximum number of entries in `seen`. A further entry replaces the entry whose queue has
    /// not been observed for longest.
    most: usize,
}

impl Queues {
    /// Returns an empty record for at most `most` queues, or parts of queues.
    pub(super) fn new(most: usize) -> Self {
        Self { seen: Mutex::default(), most }
    }

    /// Records a queue's waiters from position `from` on, as observed now. Returns the average
    /// duration of a turn, a change of the first waiter. Returns `None` before the second turn,
    /// because the first was observed only in part.
    pub(super) fn note(&self, name: &str, from: u32, waiters: &[Participant]) -> Option<Duration> {
        let now = Instant::now();
        let mut queues = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |turns: &Turns| now.duration_since(turns.seen) >= FORGOTTEN;
        let queue = (name.to_owned(), from);
        if waiters.is_empty() || queues.get(&queue).is_some_and(is_old) {
            queues.remove(&queue);
        }
        if waiters.is_empty() {
            return None;
        }
        if !queues.contains_key(&queue) {
            queues.retain(|_, turns| !is_old(turns));
            if queues.len() >= self.most {
                let oldest = queues.iter().min_by_key(|(_, turns)| turns.seen);
                let oldest = oldest.map(|(queue, _)| queue.clone());
                oldest.and_then(|queue| queues.remove(&queue));
            }
        }
        let turns = queues.entry(queue).or_insert_with(|| Turns::new(now));
        turns.note(waiters.iter().map(|waiter| waiter.member.clone()).collect(), now);
        turns.each()
    }
}

/// The turns of a queue: how often, and over what time, the first waiter was seen to change.
#[derive(Debug)]
struct Turns {
    /// When the queue was first observed.
    began: Instant,
    /// When the last turn was observed.
    last: Instant,
    /// When the queue was last observed.
    seen: Instant,
    /// The number of turns since `began`.
    count: u32,
    /// The waiters at the last observation, by their texts in the store; the next to be granted is
    /// first.
    waiters: Vec<String>,
}

impl Turns {
    fn new(now: Instant) -> Self {
        Self { began: now, last: now, seen: now, count: 0, waiters: Vec::new() }
    }

    /// Records the present queue. Each waiter that was ahead of the new first waiter counts as a
    /// turn, because it was granted the lock or has left the queue.
    fn note(&mut self, waiters: Vec<String>, now: Instant) {
        let first = waiters.first();
        let still = self.waiters.iter().position(|waiter| Some(waiter) == first);
        let turns = still.unwrap_or(self.waiters.len());
        if turns > 0 {
            self.count = self.count.saturating_add(u32::try_from(turns).unwrap_or(u32::MAX));
            self.last = now;
        }
        self.seen = now;
        self.waiters = waiters;
    }

    /// Returns the average duration of a turn; `None` before the second turn.
    fn each(&self) -> Option<Duration> {
        (self.count >= 2).then(|| self.last.duration_since(self.began) / self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded_and_the_queue_seen_last_is_kept() {
        let locks = lockcore::Locks::in_memory();
        let _guard = locks.lock("key").await.expect("free");
        let mut waiting = Box::pin(locks.lock("key"));
        let mut waiters = Vec::new();
        while waiters.is_empty() {
            assert!(futures_util::poll!(waiting.as_mut()).is_pending());
            waiters = locks.inspect("key").await.expect("in memory").waiters;
        }
        let queues = Queues::new(3);
        for from in 0..100 {
            queues.note("key", from, &waiters);
            tokio::time::advance(Duration::from_millis(1)).await;
            queues.note("watched", 0, &waiters);
        }
        let seen = queues.seen.lock().expect("no panic");
        let mut kept: Vec<_> = seen.keys().map(|(name, from)| (name.as_str(), *from)).collect();
        kept.sort_unstable();
        assert_eq!(kept, [("key", 98), ("key", 99), ("watched", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_as_long_as_those_that_were_seen_and_one_alone_tells_nothing() {
        let mut turns = Turns::new(Instant::now());
        let waiters = |from: u32| (from..from + 5).map(|number| number.to_string()).collect();
        for (from, each) in [(0, None), (1, None), (2, Some(1_000)), (6, Some(500))] {
            turns.note(waiters(from), Instant::now());
            assert_eq!(turns.each(), each.map(Duration::from_millis), "{from}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }
}
