//! The turns of queues, as they were seen: they tell how long a waiter has still to wait, if its
//! queue goes on so.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockcore::operate::Participant;
use tokio::time::Instant;

/// The time after which a queue that nobody has looked at is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(30);

/// The queues that are looked at, by the name of the lock and the first place that is shown.
#[derive(Debug, Default)]
pub(super) struct Queues(Mutex<HashMap<(String, u32), Turns>>);

impl Queues {
    /// Notes the waiters from this place on. Returns the length of a turn, once two were seen: the
    /// first of them was seen in part.
    pub(super) fn note(&self, name: &str, from: u32, waiters: &[Participant]) -> Option<Duration> {
        let now = Instant::now();
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        }
        let turns = queues.entry(queue).or_insert_with(|| Turns::new(now));
        turns.note(waiters.iter().map(|waiter| waiter.member.clone()).collect(), now);
        turns.each()
    }
}

#[derive(Debug)]
struct Turns {
    began: Instant,
    /// The last turn, and the last look.
    last: Instant,
    seen: Instant,
    count: u32,
    waiters: Vec<String>,
}

impl Turns {
    fn new(now: Instant) -> Self {
        Self { began: now, last: now, seen: now, count: 0, waiters: Vec::new() }
    }

    /// The waiters in front of the first that still waits have had their turns, or have left.
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

    fn each(&self) -> Option<Duration> {
        (self.count >= 2).then(|| self.last.duration_since(self.began) / self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
