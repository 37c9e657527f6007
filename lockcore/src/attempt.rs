//! Attempts on their way into the queue: asked, answered, set aside, and asked again under a new number.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::{LockError, LockErrorKind, StoreError};
use crate::in_flight;
use crate::key::LockName;
use crate::member::{Label, Member};
use crate::observe;
use crate::options::LockOptions;
use crate::store::{Acquired, Link, Mode, Reply, StoreFuture};
use crate::waiters::{Outcome, Phase, Waiter};

/// A lease's end is asked for this much later at most, so that not all nodes ask in the same instant.
const JITTER_MS: u64 = 50;
/// A lease that has just ended is asked for after this time at the earliest, so that nothing spins.
const FLOOR: Duration = Duration::from_millis(5);

/// What `begin` needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) lock: LockName,
    pub(crate) options: LockOptions,
    pub(crate) mode: Mode,
    pub(crate) label: Label,
}

/// An acquire on its way.
struct Asking {
    sent: Instant,
    lock: LockName,
    answer: StoreFuture<Reply<Acquired>>,
}

type Answer = Result<Reply<Acquired>, StoreError>;

/// An attempt that has begun.
pub(crate) struct Begun {
    pub(crate) ticket: u64,
    pub(crate) outcome: oneshot::Receiver<Outcome>,
    /// Its acquire, while it is on its way.
    pub(crate) asking: Option<in_flight::Request<()>>,
}

impl Engine {
    /// Starts an attempt. It goes on until it has an outcome or is [cancelled](Self::cancel).
    pub(crate) fn begin(self: &Arc<Self>, request: Request) -> Result<Begun, LockError> {
        let number = self.next_number();
        let (future, outcome) = oneshot::channel();
        let now = Instant::now();
        let mut waiters = self.waiters();
        if self.is_closed() {
            return Err(LockError::new(LockErrorKind::Closed));
        }
        waiters.insert(
            number,
            Waiter {
                ticket: number,
                member: Member::new(&self.node, number, request.options.lease_ms(), &request.label),
                lock: request.lock,
                label: request.label,
                options: request.options,
                mode: request.mode,
                phase: Phase::Asking,
                anchor: now,
                ambiguous: false,
                poked: false,
                last_error: None,
                started: now,
                future: Some(future),
            },
        );
        drop(waiters);
        let asking = match self.ask(number) {
            None => None,
            Some(Asking { sent, lock, answer: StoreFuture::Ready(answer) }) => {
                if let Some(answer) = answer {
                    self.answered(number, &lock, sent, answer);
                }
                None
            }
            Some(Asking { sent, lock, answer }) => {
                let engine = Arc::clone(self);
                let asking = async move { engine.answered(number, &lock, sent, answer.await) };
                Some(self.in_flight.add(asking, &self.runtime))
            }
        };
        Ok(Begun { ticket: number, outcome, asking })
    }

    /// Asks for several attempts, in their order.
    pub(crate) fn ask_all(self: &Arc<Self>, numbers: Vec<u64>) {
        let mut answers = FuturesUnordered::new();
        for number in numbers {
            if let Some(Asking { sent, lock, answer }) = self.ask(number) {
                answers.push(async move { (number, lock, sent, answer.await) });
            }
        }
        if answers.is_empty() {
            return;
        }
        let engine = Arc::clone(self);
        self.spawn(async move {
            // First polled, and so sent, in the order in which they were pushed.
            while let Some((number, lock, sent, answer)) = answers.next().await {
                engine.answered(number, &lock, sent, answer);
            }
        });
    }

    /// The acquire of an attempt, or `None` if it was set aside because no grant could reach it.
    fn ask(&self, number: u64) -> Option<Asking> {
        let mut waiters = self.waiters();
        let waiter = waiters.get_mut(number)?;
        if waiter.future.is_none() {
            // Given up before it was asked for, or asked for again.
            let waiter = waiters.take(number)?;
            if waiter.ambiguous {
                self.leave(&waiter);
            }
            return None;
        }
        if waiter.mode == Mode::Wait {
            let subscription = self.store.subscription();
            if let Link::Down { reason } = &*subscription.borrow() {
                let error = StoreError::refused(
                    LockErrorKind::Unavailable,
                    format!("subscription: {reason}"),
                );
                waiters.park(number, error);
                self.heartbeat_wake.notify_one();
                return None;
            }
        }
        waiter.phase = Phase::Asking;
        let (lock, member) = (waiter.lock.clone(), waiter.member.clone());
        let (mode, queue_limit) = (waiter.mode, waiter.options.queue_limit);
        // A store in memory runs the command at once, and its messages may come back to us.
        drop(waiters);
        let sent = Instant::now();
        let answer = self.store.acquire(&lock, &member, mode, queue_limit);
        Some(Asking { sent, lock, answer })
    }

    fn answered(self: &Arc<Self>, number: u64, lock: &LockName, sent: Instant, answer: Answer) {
        match answer {
            Ok(reply) => self.replied(number, lock, sent, reply),
            Err(error) => self.unanswered(number, error),
        }
    }

    fn replied(
        self: &Arc<Self>,
        number: u64,
        lock: &LockName,
        sent: Instant,
        reply: Reply<Acquired>,
    ) {
        match reply.outcome {
            // The grant is in the reply's second part.
            Acquired::Granted if reply.grant.is_some() => {}
            Acquired::Granted => self.finish(number, Err(LockError::new(LockErrorKind::Protocol))),
            Acquired::Queued { position } => self.queued(number, sent, position, reply.left_ms),
            Acquired::Busy => self.finish(number, Ok(None)),
            Acquired::Full => self.finish(number, Err(LockError::new(LockErrorKind::QueueFull))),
            // Our own tombstone: this number is of no use any more.
            Acquired::Refused => self.place_lost(vec![number]),
        }
        self.absorb(lock, sent, &reply);
    }

    fn queued(&self, number: u64, sent: Instant, position: u64, left_ms: u64) {
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.get(number) else { return };
        if waiter.future.is_none() {
            return self.give_up(waiters, number);
        }
        // A grant may have overtaken this answer; then the attempt is gone or being confirmed.
        if !matches!(waiter.phase, Phase::Asking | Phase::Parked) {
            return;
        }
        let lock = waiter.lock.clone();
        let due = if waiter.poked { Instant::now() } else { lease_end(left_ms) };
        if waiters.line_up(number, sent, due) {
            self.heartbeat_wake.notify_one();
        }
        drop(waiters);
        observe::queued(self, &lock, position);
    }

    fn unanswered(&self, number: u64, error: StoreError) {
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.get_mut(number) else { return };
        waiter.ambiguous |= error.may_have_run;
        if waiter.future.is_some() && error.is_transient() {
            waiters.park(number, error);
            drop(waiters);
            return self.heartbeat_wake.notify_one();
        }
        let Some(waiter) = waiters.take(number) else { return };
        if waiter.ambiguous {
            self.leave(&waiter);
        }
        drop(waiters);
        observe::refused(self, &waiter.lock, error.kind);
        waiter.finish(Err(error.into()));
    }

    fn finish(&self, number: u64, outcome: Outcome) {
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.take(number) else { return };
        if waiter.ambiguous {
            // Another copy of the acquire may still find the lock free.
            self.leave(&waiter);
        }
        drop(waiters);
        match &outcome {
            Ok(_) => observe::refused(self, &waiter.lock, LockErrorKind::Timeout),
            Err(error) => observe::refused(self, &waiter.lock, error.kind()),
        }
        waiter.finish(outcome);
    }

    /// The server no longer knows these waiting members: they go on under new numbers, at the tail, in their order.
    pub(crate) fn place_lost(self: &Arc<Self>, numbers: Vec<u64>) {
        let mut renumbered = Vec::with_capacity(numbers.len());
        for number in numbers {
            let mut waiters = self.waiters();
            let Some(mut waiter) = waiters.take(number) else { continue };
            if waiter.ambiguous || waiter.future.is_none() {
                self.leave(&waiter);
            }
            let lock = waiter.lock.clone();
            if waiter.future.is_some() {
                let new = self.next_number();
                waiter.member =
                    Member::new(&self.node, new, waiter.options.lease_ms(), &waiter.label);
                waiter.phase = Phase::Asking;
                waiter.anchor = Instant::now();
                waiter.ambiguous = false;
                waiter.poked = false;
                waiters.insert(new, waiter);
                renumbered.push(new);
            }
            drop(waiters);
            observe::place_lost(self, &lock);
        }
        self.ask_all(renumbered);
    }
}

/// When to ask for a lock whose lease has `left_ms` left; never if it has none.
pub(crate) fn lease_end(left_ms: u64) -> Instant {
    let now = Instant::now();
    if left_ms == 0 {
        return now + crate::waiters::TOUCH_PERIOD;
    }
    let jitter = rand::random_range(0..=JITTER_MS);
    now + Duration::from_millis(left_ms + jitter).max(FLOOR)
}
