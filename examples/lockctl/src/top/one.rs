//! A single lock, inspected.

use std::time::Duration;

use lockcore::operate::LockInspection;
use lockcore::{LockError, Locks};
use tokio::time::Instant;

use super::WAITERS;
use crate::participant::Processes;

/// A lock's holders and waiters at a moment in time.
#[derive(Debug)]
pub(super) struct Look {
    name: String,
    found: Result<LockInspection, LockError>,
    processes: Processes,
    took: Duration,
    at: Instant,
}

impl Look {
    pub(super) async fn at(locks: &Locks, name: &str) -> Self {
        let began = Instant::now();
        let found = locks.inspect_part(name, 0, WAITERS).await;
        let took = began.elapsed();
        let processes = match &found {
            Ok(found) => Processes::of(locks, found).await,
            Err(_) => Processes::default(),
        };
        Self { name: name.to_owned(), found, processes, took, at: Instant::now() }
    }
}

/// A lock that the screen shows alone, with its holders and waiters.
#[derive(Debug)]
pub(super) struct One {
    pub(super) name: String,
    /// The last inspection, with time and duration.
    pub(super) last: Option<(LockInspection, Instant, Duration)>,
    pub(super) processes: Processes,
    /// The error since the last inspection, if any: why there is no later inspection.
    pub(super) trouble: Option<LockError>,
    turns: Turns,
    /// The index of the first waiter that the screen shows.
    pub(super) from: usize,
}

impl One {
    pub(super) fn new(name: String) -> Self {
        let (processes, turns) = (Processes::default(), Turns::default());
        Self { name, last: None, processes, trouble: None, turns, from: 0 }
    }

    pub(super) fn take(&mut self, look: Look) {
        if look.name != self.name {
            return; // an earlier selection's inspection
        }
        match look.found {
            Ok(found) => {
                self.turns.note(&found, look.at);
                self.last = Some((found, look.at, look.took));
                self.processes = look.processes;
                self.trouble = None;
            }
            Err(error) => self.trouble = Some(error),
        }
    }

    /// Estimates the time until the turn with `ahead` waiters ahead, at the observed rate.
    pub(super) fn turn_in(&self, ahead: usize) -> Option<Duration> {
        let turns = u32::try_from(ahead).ok()?.saturating_add(1);
        Some(self.turns.each()? * turns)
    }
}

/// How often the first waiter has changed, and over which time.
#[derive(Debug, Default)]
struct Turns {
    began: Option<Instant>,
    last: Option<Instant>,
    count: u32,
    waiters: Vec<String>,
}

impl Turns {
    /// Counts the waiters ahead of the new first waiter as turns: each had its turn, or has left.
    fn note(&mut self, found: &LockInspection, at: Instant) {
        let waiters: Vec<_> = found.waiters.iter().map(|waiter| waiter.member.clone()).collect();
        let turns = match waiters.first() {
            Some(first) => self.waiters.iter().position(|waiter| waiter == first),
            None => None,
        };
        let turns = turns.unwrap_or(self.waiters.len());
        self.began.get_or_insert(at);
        if turns > 0 {
            self.count += u32::try_from(turns).unwrap_or(u32::MAX);
            self.last = Some(at);
        }
        self.waiters = waiters;
    }

    /// Returns the mean length of a turn, after at least two turns, because the first was observed
    /// only in part.
    fn each(&self) -> Option<Duration> {
        let (began, last) = (self.began?, self.last?);
        (self.count >= 2).then(|| last.duration_since(began) / self.count)
    }
}
