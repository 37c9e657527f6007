//! The life of an attempt inside the engine: asking, waiting, being granted, losing its place, being given up.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::{LockError, LockErrorKind, StoreError};
use crate::guard::LockGuard;
use crate::hold::{self, Hold, Terms};
use crate::in_flight;
use crate::key::LockName;
use crate::member::{Label, Member};
use crate::observe;
use crate::options::LockOptions;
use crate::protocol::claim_ms;
use crate::reaper::Job;
use crate::store::{Acquired, Grant, Link, Mode, Renewed, Reply, StoreFuture};
use crate::token::FencingToken;
use crate::waiters::{Outcome, Phase, Waiter};

/// A lease's end is asked for this much later at most, so that not all nodes ask in the same instant.
const JITTER_MS: u64 = 50;
/// A lease that has just ended is asked for after this time at the earliest, so that nothing spins.
const FLOOR: Duration = Duration::from_millis(5);
/// An acquire that is unanswered for this long means that the store is away.
const UNANSWERED: Duration = Duration::from_millis(250);

/// What `begin` needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) lock: LockName,
    pub(crate) options: LockOptions,
    pub(crate) mode: Mode,
    pub(crate) label: Label,
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
        if self.is_closed() {
            return Err(LockError::new(LockErrorKind::Closed));
        }
        let number = self.next_number();
        let (future, outcome) = oneshot::channel();
        let now = Instant::now();
        self.waiters().insert(
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
                started: now,
                future: Some(future),
            },
        );
        let asking = match self.ask(number) {
            None => None,
            Some((sent, StoreFuture::Ready(answer))) => {
                if let Some(answer) = answer {
                    self.answered(number, sent, answer);
                }
                None
            }
            Some((sent, asking)) => {
                let engine = Arc::clone(self);
                let asking = async move { engine.answered(number, sent, asking.await) };
                Some(self.in_flight.add(asking, &self.runtime))
            }
        };
        Ok(Begun { ticket: number, outcome, asking })
    }

    /// Asks for several attempts, in their order.
    pub(crate) fn ask_all(self: &Arc<Self>, numbers: Vec<u64>) {
        let mut answers = FuturesUnordered::new();
        for number in numbers {
            if let Some((sent, asking)) = self.ask(number) {
                answers.push(async move { (number, sent, asking.await) });
            }
        }
        if answers.is_empty() {
            return;
        }
        let engine = Arc::clone(self);
        self.spawn(async move {
            // First polled, and so sent, in the order in which they were pushed.
            while let Some((number, sent, answer)) = answers.next().await {
                engine.answered(number, sent, answer);
            }
        });
    }

    /// The acquire of an attempt, or `None` if it was set aside because no grant could reach it.
    fn ask(&self, number: u64) -> Option<(Instant, StoreFuture<Reply<Acquired>>)> {
        let mut waiters = self.waiters();
        let waiter = waiters.get_mut(number)?;
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
        Some((sent, self.store.acquire(&lock, &member, mode, queue_limit)))
    }

    fn answered(self: &Arc<Self>, number: u64, sent: Instant, answer: Answer) {
        match answer {
            Ok(reply) => self.replied(number, sent, reply),
            Err(error) => self.unanswered(number, error),
        }
    }

    fn replied(self: &Arc<Self>, number: u64, sent: Instant, reply: Reply<Acquired>) {
        let lock = self.waiters().get(number).map(|waiter| waiter.lock.clone());
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
        if let Some(lock) = lock {
            self.absorb(&lock, sent, &reply);
        }
    }

    fn queued(&self, number: u64, sent: Instant, position: u64, left_ms: u64) {
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.get(number) else { return };
        if waiter.future.is_none() {
            let Some(waiter) = waiters.take(number) else { return };
            drop(waiters);
            return self.give_up(waiter);
        }
        // A grant may have overtaken this answer; then the attempt is gone or being confirmed.
        if !matches!(waiter.phase, Phase::Asking | Phase::Parked(_)) {
            return;
        }
        observe::queued(self, waiter, position);
        if waiters.line_up(number, sent, lease_end(left_ms)) {
            self.heartbeat_wake.notify_one();
        }
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
        drop(waiters);
        if waiter.ambiguous {
            self.leave(&waiter);
        }
        observe::refused(self, &waiter.lock, error.kind);
        waiter.finish(Err(error.into()));
    }

    fn finish(&self, number: u64, outcome: Outcome) {
        let Some(waiter) = self.waiters().take(number) else { return };
        match &outcome {
            Ok(_) => observe::refused(self, &waiter.lock, LockErrorKind::Timeout),
            Err(error) => observe::refused(self, &waiter.lock, error.kind()),
        }
        if waiter.ambiguous {
            // Another copy of the acquire may still find the lock free.
            self.leave(&waiter);
        }
        waiter.finish(outcome);
    }

    /// Takes in what every reply tells besides its outcome.
    pub(crate) fn absorb<T>(self: &Arc<Self>, lock: &LockName, sent: Instant, reply: &Reply<T>) {
        self.succeeded();
        if reply.foreign {
            observe::foreign(self, lock);
        }
        if reply.passed_over > 0 {
            observe::passed_over(self, lock, reply.passed_over);
        }
        let Some(Grant { member, token }) = &reply.grant else { return };
        let Some(number) = member.ours().map(|ours| ours.number) else { return };
        let known = self.granted(number, *token, reply.left_ms, Some(sent));
        if !known {
            // Nobody here waits for it any more.
            self.reaper.send(Job::leave(lock.clone(), member.clone(), false));
        }
    }

    /// The server says, unasked, that a member of ours was granted its lock.
    pub(crate) fn pushed(self: &Arc<Self>, member: &Member, token: FencingToken, left_ms: u64) {
        if let Some(ours) = member.ours().filter(|ours| ours.node == self.node.as_str()) {
            // An unknown one has left, and its leave gives the lock on.
            let _ = self.granted(ours.number, token, left_ms, None);
        }
    }

    /// A member of ours holds its lock, with `left_ms` counted from `anchor`, or from the waiter's
    /// own anchor if the grant came unasked. Returns whether somebody here waits for it or holds it.
    fn granted(
        self: &Arc<Self>,
        number: u64,
        token: FencingToken,
        left_ms: u64,
        anchor: Option<Instant>,
    ) -> bool {
        let mut waiters = self.waiters();
        let Some(waiter) = waiters.get_mut(number) else { return self.holds().contains(number) };
        if waiter.phase == Phase::Confirming {
            return true;
        }
        let left = Duration::from_millis(left_ms);
        let pushed = anchor.is_none();
        let anchor = anchor.unwrap_or(waiter.anchor);
        let now = Instant::now();
        let certain = hold::deadline(anchor, left).saturating_duration_since(now);
        if certain.is_zero() {
            // Too late to be a guard: back to waiting, and a touch decides.
            if waiter.future.is_none() {
                let Some(waiter) = waiters.take(number) else { return false };
                drop(waiters);
                self.give_up(waiter);
                return true;
            }
            let anchor = waiter.anchor;
            if waiters.line_up(number, anchor, now) {
                self.heartbeat_wake.notify_one();
            }
            return true;
        }
        let claim = Duration::from_millis(claim_ms(waiter.options.lease_ms()));
        if certain < claim / 2 || (pushed && self.settings.confirm_grants) {
            waiter.phase = Phase::Confirming;
            let (lock, member) = (waiter.lock.clone(), waiter.member.clone());
            drop(waiters);
            self.confirm(number, lock, member, token);
            return true;
        }
        let Some(waiter) = waiters.take(number) else { return false };
        let (waiter, guard) = self.seize(waiter, number, token, anchor, left);
        drop(waiters);
        observe::granted(self, &waiter, pushed);
        waiter.finish(Ok(Some(guard)));
        true
    }

    /// Makes the guard. Called with the waiters locked, so that the number is at no time neither waiting nor held.
    fn seize(
        self: &Arc<Self>,
        waiter: Waiter,
        number: u64,
        token: FencingToken,
        anchor: Instant,
        left: Duration,
    ) -> (Waiter, LockGuard) {
        let terms = Terms {
            lock: waiter.lock.clone(),
            member: waiter.member.clone(),
            number,
            token,
            options: waiter.options,
            ambiguous: waiter.ambiguous,
            anchor,
            left,
        };
        let hold = Arc::new(Hold::new(self, terms));
        self.watch(Arc::clone(&hold));
        (waiter, LockGuard::new(hold))
    }

    /// Renews a grant before it is handed out.
    fn confirm(self: &Arc<Self>, number: u64, lock: LockName, member: Member, token: FencingToken) {
        let engine = Arc::clone(self);
        self.spawn(async move {
            let sent = Instant::now();
            let answer = engine.store.renew(&lock, &member).await;
            let mut waiters = engine.waiters();
            let held = match &answer {
                Ok(reply) if reply.outcome == Renewed::Held => Duration::from_millis(reply.left_ms),
                _ => Duration::ZERO,
            };
            if answer.is_ok() {
                engine.succeeded();
            }
            if hold::deadline(sent, held) > Instant::now() {
                // Cancelled meanwhile: its leave is on its way.
                let Some(waiter) = waiters.take(number) else { return };
                let (waiter, guard) = engine.seize(waiter, number, token, sent, held);
                drop(waiters);
                observe::granted(&engine, &waiter, true);
                return waiter.finish(Ok(Some(guard)));
            }
            let Some(anchor) = waiters.get(number).map(|waiter| waiter.anchor) else { return };
            let pause = if answer.is_ok() { Duration::ZERO } else { UNANSWERED };
            if waiters.line_up(number, anchor, Instant::now() + pause) {
                engine.heartbeat_wake.notify_one();
            }
        });
    }

    /// The server no longer knows these waiting members: they go on under new numbers, at the tail, in their order.
    pub(crate) fn place_lost(self: &Arc<Self>, numbers: Vec<u64>) {
        let mut renumbered = Vec::with_capacity(numbers.len());
        for number in numbers {
            let mut waiters = self.waiters();
            let Some(mut waiter) = waiters.take(number) else { continue };
            observe::place_lost(self, &waiter);
            if waiter.ambiguous || waiter.future.is_none() {
                self.leave(&waiter);
            }
            if waiter.future.is_none() {
                continue;
            }
            let new = self.next_number();
            waiter.member = Member::new(&self.node, new, waiter.options.lease_ms(), &waiter.label);
            waiter.phase = Phase::Asking;
            waiter.anchor = Instant::now();
            waiter.ambiguous = false;
            waiters.insert(new, waiter);
            renumbered.push(new);
        }
        self.ask_all(renumbered);
    }

    /// The future of an attempt was dropped, or its time is up. Nothing of it stays behind. Returns
    /// why the store was away, if it was.
    pub(crate) fn cancel(&self, ticket: u64) -> Option<StoreError> {
        let mut waiters = self.waiters();
        let number = waiters.number_of(ticket);
        let waiter = waiters.get_mut(number)?;
        let away = match &waiter.phase {
            Phase::Asking => {
                // Its answer will find it cancelled.
                waiter.future = None;
                let silent = waiter.started.elapsed() >= UNANSWERED;
                return silent.then(|| StoreError::ambiguous("the server does not answer"));
            }
            Phase::Parked(error) => Some(error.clone()),
            Phase::Waiting | Phase::Confirming => match &*self.store.commands().borrow() {
                Link::Up => None,
                Link::Down { reason } => {
                    Some(StoreError::refused(LockErrorKind::Unavailable, Arc::clone(reason)))
                }
            },
        };
        let waiter = waiters.take(number);
        drop(waiters);
        if let Some(waiter) = waiter {
            self.give_up(waiter);
        }
        away
    }

    /// Ends every attempt with the same error.
    pub(crate) fn cancel_all(&self, kind: LockErrorKind) -> usize {
        let numbers = self.waiters().numbers();
        let mut ended = 0;
        for number in numbers {
            let mut waiters = self.waiters();
            let Some(waiter) = waiters.get_mut(number) else { continue };
            let Some(future) = waiter.future.take() else { continue };
            ended += 1;
            if waiter.phase != Phase::Asking {
                let waiter = waiters.take(number);
                drop(waiters);
                if let Some(waiter) = waiter {
                    self.give_up(waiter);
                }
            } else {
                drop(waiters);
            }
            let _ = future.send(Err(LockError::new(kind)));
        }
        ended
    }

    fn give_up(&self, waiter: Waiter) {
        observe::cancelled(self, &waiter);
        let was_never_sent = matches!(waiter.phase, Phase::Parked(_)) && !waiter.ambiguous;
        if !was_never_sent {
            self.leave(&waiter);
        }
    }

    fn leave(&self, waiter: &Waiter) {
        self.reaper.send(Job::leave(waiter.lock.clone(), waiter.member.clone(), waiter.ambiguous));
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
