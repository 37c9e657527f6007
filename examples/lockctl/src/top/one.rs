//! The inspections of a single lock, while the screen shows it alone.

use std::time::Duration;

use lockcore::operate::LockInspection;
use lockcore::{LockError, Locks};
use tokio::time::Instant;

use super::WAITERS;
use crate::participant::Processes;

/// The result of an inspection: a lock's holders and waiters at a moment in time, or an error.
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

/// The lock that the user has opened: the screen shows it alone, with the holders and waiters.
#[derive(Debug)]
pub(super) struct One {
    pub(super) name: String,
    /// The last successful inspection, with the time when it ended and the duration.
    pub(super) last: Option<(LockInspection, Instant, Duration)>,
    pub(super) processes: Processes,
    /// The error of the latest inspection, because of which `last` is outdated. `None` if the
    /// latest inspection was successful.
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

    /// Estimates how long a waiter with `ahead` waiters ahead still has to wait, if the queue
    /// continues at the observed rate of turns. `None` before two turns were observed.
    pub(super) fn turn_in(&self, ahead: usize) -> Option<Duration> {
        let turns = u32::try_from(ahead).ok()?.saturating_add(1);
        Some(self.turns.each()? * turns)
    }
}

/// The turns of a queue: how often, and over what time, the first waiter was seen to change.
#[derive(Debug, Default)]
struct Turns {
    began: Option<Instant>,
    last: Option<Instant>,
    count: u32,
    waiters: Vec<String>,
}

impl Turns {
    /// Records the present queue. Each waiter that was ahead of the new first waiter counts as a
    /// turn, because it was granted the lock or has left the queue.
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

    /// Returns the average duration of a turn. `None` before the second turn, because the first was
    /// observed only in part.
    fn each(&self) -> Option<Duration> {
        let (began, last) = (self.began?, self.last?);
        (self.count >= 2).then(|| last.duration_since(began) / self.count)
    }
}
