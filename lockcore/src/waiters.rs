//! The attempts of this node that have not had their answer yet: by number, and in lines by lock.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{LockError, StoreError};
use crate::guard::LockGuard;
use crate::key::LockName;
use crate::member::{Label, Member};
use crate::options::LockOptions;
use crate::protocol::claim_ms;
use crate::schedule::Schedule;
use crate::store::Mode;

/// The longest time between two touches of a line.
pub(crate) const TOUCH_PERIOD: Duration = Duration::from_secs(4);

/// What an attempt ends with; `None` is "busy", for those that would not wait.
pub(crate) type Outcome = Result<Option<LockGuard>, LockError>;

/// One acquisition attempt.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The attempt's first number, by which its future knows it. The member's own number changes
    /// when its place is lost.
    pub(crate) ticket: u64,
    pub(crate) lock: LockName,
    pub(crate) member: Member,
    pub(crate) label: Label,
    pub(crate) options: LockOptions,
    pub(crate) mode: Mode,
    pub(crate) phase: Phase,
    /// An instant at which the member had surely not been granted yet: a grant that comes without
    /// having been asked for is younger.
    pub(crate) anchor: Instant,
    /// A copy of the acquire was not answered and may still run.
    pub(crate) ambiguous: bool,
    /// Told to come before it was known to wait.
    pub(crate) poked: bool,
    /// Why the store could not answer the last time.
    pub(crate) last_error: Option<StoreError>,
    pub(crate) started: Instant,
    /// Gone once the future was dropped.
    pub(crate) future: Option<oneshot::Sender<Outcome>>,
}

/// Where an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// An acquire is on its way.
    Asking,
    /// The store could not answer, and will be asked again.
    Parked,
    /// In the queue.
    Waiting,
    /// Granted, but with so little left that a renewal is on its way first.
    Confirming,
}

impl Waiter {
    /// Hands the outcome over. If nobody is there to take it, a guard in it gives the lock back.
    pub(crate) fn finish(self, outcome: Outcome) {
        if let Some(future) = self.future {
            let _ = future.send(outcome);
        }
    }
}

/// The waiters of this node on one lock.
#[derive(Debug)]
struct Line {
    numbers: BTreeSet<u64>,
    period: Duration,
}

/// All attempts of a node.
#[derive(Debug)]
pub(crate) struct Waiters {
    by_number: HashMap<u64, Waiter>,
    lines: HashMap<LockName, Line>,
    touch_due: Schedule<LockName>,
    /// Ticket → number, for the few whose number has changed.
    renumbered: HashMap<u64, u64>,
    parked: BTreeSet<u64>,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self {
            by_number: HashMap::new(),
            lines: HashMap::new(),
            touch_due: Schedule::new(),
            renumbered: HashMap::new(),
            parked: BTreeSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }

    pub(crate) fn insert(&mut self, number: u64, waiter: Waiter) {
        if waiter.ticket != number {
            self.renumbered.insert(waiter.ticket, number);
        }
        self.by_number.insert(number, waiter);
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Waiter> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Waiter> {
        self.by_number.get_mut(&number)
    }

    /// The number under which the attempt with `ticket` stands now.
    pub(crate) fn number_of(&self, ticket: u64) -> u64 {
        self.renumbered.get(&ticket).copied().unwrap_or(ticket)
    }

    /// Removes an attempt and every trace of it.
    pub(crate) fn take(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.by_number.remove(&number)?;
        if waiter.ticket != number {
            self.renumbered.remove(&waiter.ticket);
        }
        self.parked.remove(&number);
        if let Some(line) = self.lines.get_mut(&waiter.lock) {
            line.numbers.remove(&number);
            if line.numbers.is_empty() {
                self.lines.remove(&waiter.lock);
                self.touch_due.remove(&waiter.lock);
            }
        }
        Some(waiter)
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.by_number.keys().copied().collect()
    }

    /// Sets an attempt aside until the store answers again.
    pub(crate) fn park(&mut self, number: u64, error: StoreError) {
        if let Some(waiter) = self.by_number.get_mut(&number) {
            waiter.phase = Phase::Parked;
            waiter.last_error = Some(error);
            self.parked.insert(number);
        }
    }

    /// Those that were set aside, in the order in which they came.
    pub(crate) fn unpark(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.parked).into_iter().collect()
    }

    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Puts an attempt in line: it is known to wait since after `anchor`, and is to be touched by
    /// `due` at the latest. Returns whether the heartbeat must be woken.
    #[must_use]
    pub(crate) fn line_up(&mut self, number: u64, anchor: Instant, due: Instant) -> bool {
        let Some(waiter) = self.by_number.get_mut(&number) else { return false };
        waiter.phase = Phase::Waiting;
        waiter.last_error = None;
        self.parked.remove(&number);
        waiter.anchor = anchor;
        let period = touch_period(&waiter.options);
        let line = self
            .lines
            .entry(waiter.lock.clone())
            .or_insert(Line { numbers: BTreeSet::new(), period });
        line.numbers.insert(number);
        line.period = line.period.min(period);
        let due = due.min(anchor + line.period);
        let lock = waiter.lock.clone();
        self.touch_sooner(&lock, due)
    }

    /// When the line of `lock` is to be touched next, if it has one. Returns whether the heartbeat must be woken.
    #[must_use]
    pub(crate) fn touch_by(&mut self, lock: &LockName, due: Instant) -> bool {
        self.lines.contains_key(lock) && self.touch_due.set(lock.clone(), due)
    }

    /// The line of `lock` is to be touched by `due` at the latest. Returns whether the heartbeat must be woken.
    #[must_use]
    pub(crate) fn touch_sooner(&mut self, lock: &LockName, due: Instant) -> bool {
        match self.touch_due.get(lock) {
            Some(earlier) if earlier <= due => false,
            _ => self.touch_by(lock, due),
        }
    }

    /// All lines are to be touched at once.
    pub(crate) fn touch_all_by(&mut self, due: Instant) {
        for lock in self.lines.keys() {
            // The caller is the heartbeat itself: nobody has to be woken.
            let _ = self.touch_due.set(lock.clone(), due);
        }
    }

    /// A line that is due, with its members in order and the time to its next touch.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(LockName, Vec<Member>, Duration)> {
        loop {
            let lock = self.touch_due.pop(now)?;
            let Some(line) = self.lines.get(&lock) else { continue };
            let members = line
                .numbers
                .iter()
                .filter_map(|number| Some(self.by_number.get(number)?.member.clone()));
            let members = members.collect();
            let period = line.period;
            return Some((lock, members, period));
        }
    }

    pub(crate) fn arm(&mut self) -> Option<Instant> {
        self.touch_due.arm()
    }
}

/// Often enough that a claim which was told to nobody is noticed while most of it is left.
fn touch_period(options: &LockOptions) -> Duration {
    TOUCH_PERIOD.min(Duration::from_millis(claim_ms(options.lease_ms())).mul_f64(0.4))
}
