//! The client's half of the protocol: all attempts and holds of a process as a state machine,
//! without I/O. The driver passes in events with their time, and runs the effects that come out.
//!
//! # Driving it
//!
//! See [How a driver drives it](crate#how-a-driver-drives-it).
//!
//! # Implementation notes
//!
//! - *Ambiguity.* An acquire without a response may still run later. So the member is never just
//!   dropped: the node either sends the acquire again, or the member leaves with a tombstone.
//! - *Anchor.* A lease is counted from the moment when the request was sent. A grant that arrives
//!   as a message has no request. It is newer than the last response that reported the member as
//!   waiting, so it is counted from the request for that response. If two copies of the acquire may
//!   have run, the message may report a grant that has expired since. Then a renewal shows whether
//!   the lock is held.
//! - *Claim and confirming.* A handed-off hold has only a short lease, the claim. With less than
//!   half a claim left, the hold is renewed before the guard is handed out, so that no guard starts
//!   just before the lease expires.
//! - *Doubt.* If a server's clock ran ahead, leases have expired earlier than the node assumes. All
//!   leases requested before are renewed: holds at once, and grants before they are handed out.
//! - *Queues.* All waiters for a lock are touched together, periodically and after every
//!   interruption. Messages only save time. If a message is lost, the next touch returns the same
//!   facts, and the node acts on the response.
//! - *Lost positions.* A member that the server does not know is never used again, because a late
//!   grant for the old position could be mistaken for a new grant. The attempt continues with a new
//!   member id, in the next round, at the tail of the queue.
//! - *Bursts.* If an acquire for the same lock is pending, a new attempt is sent by the next tick,
//!   together with all attempts that began until then. This tick is due at once and waits for no
//!   response. The first attempt of a burst, and so every lone attempt, is sent by the caller.
//! - *Fence.* While the node acquires a lock by the fast path, further attempts for this lock wait
//!   for the response: see `fence`.
//! - *Order.* Effects run outside the mutex of the table, so the effects of two events may overtake
//!   each other. If the order of two requests for a member matters, they are never in flight
//!   together. A leave waits for the response to the acquire. A release may overtake a renewal, but
//!   then the response to the renewal is ignored.

mod activity;
mod attempts;
mod batch;
mod batches;
mod clocks;
mod closing;
mod due;
mod effect;
mod entry;
mod fence;
mod grants;
mod group;
mod holds;
mod lane;
mod lease;
mod lines;
mod moment;
mod projection;
mod recent_release;
mod recent_releases;
mod releases;
mod requests;
mod table;
#[cfg(test)]
mod tests;

pub use activity::{Activity, Stage};
pub use effect::{Effect, Note, StoreRequest, Way};
pub use entry::{Mirror, Refusal, Request};
pub use group::{RequestGroup, commands, grouped, is_of_one};
pub use lane::Lanes;
pub use moment::Moment;
pub use projection::{Due, Phase};

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use self::batch::{Batches, ReportedBatch};
use self::clocks::ClockReading;
use self::entry::{Caller, Entry, State};
use self::fence::BusyNames;
use self::grants::GrantSource;
#[cfg(debug_assertions)]
use self::lane::Traffic;
use self::recent_releases::RecentReleases;
use self::table::Table;
use crate::error::{LockErrorKind, StoreError};
use crate::layout::{Layout, NewMember, QUEUE};
use crate::member::{self, NodeId, ROUND_BITS, Service};
use crate::name::LockName;
use crate::terms::WhenBusy;
use crate::token::FencingToken;
use crate::{Acquired, Answer, Command, Event, Leaving, Left, Link, Mode, Released, Renewed};

/// Maximum number of attempts and holds that a call handles, in a tick or another method with
/// bounded work. A longer call would keep other tasks waiting for the driver's mutex.
const MAX_AT_ONCE: usize = 256;
/// Maximum number of members or locks whose requests a tick makes due at once, while it renews all
/// holds or touches all waiters. The rest of the tick is left for other work.
const MADE_DUE: usize = MAX_AT_ONCE / 4;
/// Table size, in entries, up to which all invariants are checked after every event. From twice
/// this size on, checks are rarer, because each reads all entries.
#[cfg(debug_assertions)]
const CHECKED: usize = 64;
const TOO_MANY_AT_ONCE: &str = "too many concurrent acquires in this Locks: the request was not \
    sent within the request timeout";

/// The settings for a [`Core`].
#[derive(Debug, Clone)]
pub struct Rules {
    /// True if a grant that arrives as a message must be confirmed by a request before the caller
    /// gets the lock; a message that a waiter was superseded is confirmed too. This protects
    /// against other Redis users who can publish forged messages.
    pub confirm_grants: bool,
    /// True if the store confirms that a write is on replicas or on disk. A grant or a renewal then
    /// takes effect only after this confirmation.
    pub confirms_writes: bool,
    /// The layout of the keys in Redis. It also determines the text by which the server stores a
    /// member, an attempt or a hold of this node.
    pub layout: &'static dyn Layout,
    /// Maximum number of retried acquires in flight per lane (server); further retries are sent
    /// later. Then few requests wait in front of the server, and a request times out only if the
    /// server itself is slow. 64 by default.
    pub window: usize,
    /// Maximum number of first acquires in flight per lane (server), for the same reason. Further
    /// acquires are sent later, in the order of arrival. 256 by default: the server needs some 60
    /// µs for each, so all responses arrive long before the first time-out. Leaves, the requests
    /// that take members out of the queue, may be twice as many.
    pub acquires: usize,
    /// Maximum batch size: how many consecutive waiters of this node may be granted a lock as a
    /// single hold, and then have it in turn. 1 grants each waiter alone. Values above
    /// [`MAX_BATCH`](crate::MAX_BATCH) are reduced to it.
    pub batch_limit: usize,
    /// The server's time at [`Moment`] zero of the node, in µs since the epoch. An attempt's
    /// number, from which its member ids are derived, is then taken from the time when it begins.
    /// If `None`, attempts are numbered consecutively.
    pub born_us: Option<u64>,
    /// The seed for random delays, which spread requests that would otherwise be due together. 0
    /// disables the delays.
    pub seed: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            confirm_grants: false,
            confirms_writes: false,
            layout: QUEUE,
            window: 64,
            acquires: 256,
            batch_limit: 1,
            born_us: None,
            seed: 0,
        }
    }
}

/// The number of attempts and holds in a core, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of attempts that have no outcome yet.
    pub attempts: usize,
    /// The number of holds that belong to a guard, or are offered to a caller who has not taken the
    /// lock yet.
    pub holds: usize,
    /// The number of members (attempts or holds) that this node has given up, while the server has
    /// not acknowledged this yet: their release, or the leave that takes a waiter out of the queue.
    pub given_back: usize,
    /// The number of members, since the start, for which the node stopped repeating the release or
    /// the leave, because the server never acknowledged it.
    pub failed: usize,
    /// The number of times since the start that an attempt had to queue again at the tail, because
    /// the server lost its position, or the caller did not take the lock in time.
    pub positions_lost: u64,
}

/// The result of an attempt to acquire a lock, as returned by [`Core::take`].
#[derive(Debug)]
pub enum Outcome {
    /// There is no outcome yet. The caller is woken by [`Effect::Wake`] when there may be one.
    Waits,
    /// The lock is granted. From now on the caller must release it.
    Granted {
        /// The id of the member that holds the lock. The caller passes it to [`Core::release`] and
        /// other methods for this hold.
        number: u64,
        /// This hold's fencing token.
        token: FencingToken,
        /// When the hold began, by the node's time: when the grant became known here.
        since: Moment,
        /// The time between the begin of the attempt and the begin of the hold.
        waited: Duration,
    },
    /// The attempt ended without the lock.
    Refused(Refusal),
}

/// What the caller still has to do to release a guard's hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenBack {
    /// The caller must send this request to the server.
    By(StoreRequest),
    /// Nothing now: the hold belongs to a batch, waiters of this node that share it in turn, and
    /// passes to the next of them. [`Mirror::returned`] reports later whether the server still had
    /// the hold when this guard released it.
    InBatch,
    /// Nothing: the hold was lost earlier.
    Nothing,
}

impl GivenBack {
    /// Returns the request to send; `None` if there is none.
    pub fn request(self) -> Option<StoreRequest> {
        match self {
            Self::By(request) => Some(request),
            Self::InBatch | Self::Nothing => None,
        }
    }
}

/// The protocol state of a node: all attempts and holds. `P` is the driver's own data for each
/// attempt, such as the handle that wakes the caller.
#[derive(Debug, Clone)]
pub struct Core<P> {
    node: NodeId,
    rules: Rules,
    table: Table<P>,
    batches: Batches<P>,
    /// The lane (server) whose work is done first in the current tick. It changes with each tick,
    /// so that no server is preferred.
    first_lane: usize,
    /// The progress of a recheck. It touches the waiters of all locks, to learn their state from
    /// the server, after messages may have been missed. The first value is the end of the part that
    /// is done, in the order of lock names; the second value is the time when the recheck began.
    /// Locks touched since then are skipped. `None` if no recheck is under way.
    recheck: Option<(Bound<LockName>, Moment)>,
    /// The progress of a renewal of all holds, after a reconnect or a jump of the server's clock.
    /// The first value is the id of the next member to examine. The second value is a time: leases
    /// requested since then need no renewal. `None` if no such renewal is under way.
    renew_all: Option<(u64, Moment)>,
    commands: Link,
    subscription: Link,
    /// When the subscription was last found open, or had to be opened again. A touch sent earlier
    /// does not show whether the server knows the present subscription.
    subscribed: Moment,
    next_attempt: u64,
    last_success: Moment,
    /// The round-trip time of the last request that got a response.
    round_trip: Duration,
    last_readings: BTreeMap<u16, ClockReading>,
    recent_releases: RecentReleases,
    has_fast_path: bool,
    busy: BusyNames,
    /// The time of the current event.
    now: Moment,
    effects: Vec<Effect<P>>,
    /// The number of events so far, to decide when to check the invariants.
    #[cfg(debug_assertions)]
    events: usize,
    /// Leases requested before this moment are in doubt: they may have ended unnoticed, because a
    /// message was missed or the server's clock has jumped. A renewal shows whether they still
    /// exist.
    doubted_before: Moment,
    is_closed: bool,
}

impl<P: Mirror> Core<P> {
    /// Creates a core without attempts or holds. The connection for commands and the connection for
    /// messages count as open until [`linked`](Self::linked) reports a change.
    pub fn new(node: NodeId, rules: Rules) -> Self {
        Self {
            node,
            rules,
            table: Table::new(),
            batches: Batches::new(),
            first_lane: 0,
            recheck: None,
            renew_all: None,
            commands: Link::Up,
            subscription: Link::Up,
            subscribed: Moment::default(),
            next_attempt: 1,
            last_success: Moment::default(),
            round_trip: Duration::ZERO,
            last_readings: BTreeMap::new(),
            recent_releases: RecentReleases::default(),
            has_fast_path: false,
            busy: BusyNames::default(),
            now: Moment::default(),
            effects: Vec::new(),
            #[cfg(debug_assertions)]
            events: 0,
            doubted_before: Moment::default(),
            is_closed: false,
        }
    }

    /// Sets the time of an event. The event itself is the method that is called next on the result.
    pub fn event(&mut self, now: Moment) -> &mut Self {
        #[cfg(debug_assertions)]
        self.check_now_and_then();
        self.now = now;
        self
    }

    /// Returns the effects of all events since the last call, in the order in which they must run.
    /// These include releases, and leaves (requests that take members out of the queue), that are
    /// due by now, so that they do not wait for the next tick.
    pub fn drain(&mut self) -> Vec<Effect<P>> {
        if self.table.has_to_send() {
            self.send_passed();
        }
        self.give_back_what_is_due(MAX_AT_ONCE);
        std::mem::take(&mut self.effects)
    }

    /// Checks the invariants after the previous event. For a large table, this is done only after
    /// some of the events.
    #[cfg(debug_assertions)]
    fn check_now_and_then(&mut self) {
        self.events += 1;
        let pause = (self.table.entries().len() / CHECKED).pow(2).max(1);
        if self.events.is_multiple_of(pause) {
            self.check();
        }
    }

    /// Panics if an invariant is violated.
    #[cfg(debug_assertions)]
    fn check(&self) {
        self.table.check();
        self.batches.check();
        self.recent_releases.check();
        for lane in self.table.lanes() {
            let Traffic { asking, pause, .. } = lane.traffic;
            assert!(asking <= self.rules.acquires, "{asking} acquires are in flight");
            let pauses = attempts::FIRST_RETRY..=attempts::LAST_RETRY;
            assert!(pauses.contains(&pause), "a pause of {pause:?}");
        }
    }

    fn push(&mut self, effect: Effect<P>) {
        self.effects.push(effect);
    }

    // Events from callers.

    /// Begins an attempt to acquire a lock. `mirror` is the driver's own data for it. Returns the
    /// attempt's number, with a request if the caller must send it now. Without a request, the core
    /// sends it later as an effect, for example because another acquire for this lock is pending,
    /// or because too many are in flight to the server. Returns `None` if the node is closed.
    pub fn begin(&mut self, request: Request, mirror: P) -> Option<(u64, Option<StoreRequest>)> {
        let now = self.now;
        if self.is_closed {
            return None;
        }
        let by_time = |born_us| member::attempt_at(born_us + now.as_micros());
        let attempt = self.rules.born_us.map_or(0, by_time).max(self.next_attempt);
        self.next_attempt = attempt + 1;
        let number = attempt << ROUND_BITS;
        let is_for_batch = self.is_for_batch(&request);
        let Request { lock, options, mode, label, demand } = request;
        let node = &self.node;
        let lease_ms = options.lease_ms();
        let service = match options.when_busy {
            WhenBusy::KeepNewest if mode == Mode::Wait => Service::Newest,
            _ if is_for_batch => Service::in_batch(self.rules.batch_limit),
            _ => Service::Alone,
        };
        let new = NewMember { node, number, lease_ms, demand, service, label: &label };
        let member = self.rules.layout.member(new);
        // Concurrent attempts for one lock are sent together by the next tick, which is due now. A
        // new attempt takes the room only if no earlier attempt waits for room.
        let lane = self.table.lane(self.table.lane_of(&lock));
        let has_room = lane.unsent.len() < self.room_to_ask(lane);
        let fence = self.fence(&lock, &member);
        let entry = Entry { fence, ..Entry::new(lock, member, options, mode, now, mirror) };
        let is_next = self.table.begin(number, entry, has_room);
        let store_request = is_next.then(|| self.first_acquire(number)).flatten();
        Some((attempt, store_request))
    }

    /// Returns true if an attempt's acquire is in flight, so that [`take`](Self::take) would return
    /// [`Outcome::Waits`]. An acquire after a lost queue position does not count.
    pub fn is_asking(&self, attempt: u64) -> bool {
        self.table.get(attempt << ROUND_BITS).is_some_and(|entry| {
            matches!((&entry.state, &entry.caller), (State::Asking { .. }, Caller::Waits))
        })
    }

    /// Returns since when an attempt has been waiting for a response from the store; `None` if it
    /// is not waiting for the store. The wait begins with the attempt. Each response of the server
    /// to another request restarts the wait, because the server is alive. This no longer applies
    /// once an acquire of the attempt has failed.
    pub fn awaits_store(&self, attempt: u64) -> Option<Moment> {
        let entry = self.table.get(self.current(attempt)?)?;
        match entry.state {
            State::Unsent | State::Asking { error: None, .. } => {
                Some(entry.started.max(self.table.lane(entry.lane).traffic.last_success))
            }
            State::Asking { .. } | State::Parked { .. } => Some(entry.started),
            _ => None,
        }
    }

    /// Returns the error of an attempt's last acquire, if the acquire has failed and is sent again;
    /// `None` otherwise.
    pub fn failure(&self, attempt: u64) -> Option<&StoreError> {
        match &self.table.get(self.current(attempt)?)?.state {
            State::Asking { error, .. } => error.as_ref(),
            State::Parked { error } => Some(error),
            _ => None,
        }
    }

    /// Returns true if the store has responded to some request since an attempt began. The attempt
    /// then ends without an outcome because the store is slow, and not because it is away.
    pub fn is_answered(&self, attempt: u64) -> bool {
        let entry = self.current(attempt).and_then(|number| self.table.get(number));
        entry.is_some_and(|entry| self.is_answering(entry))
    }

    fn is_answering(&self, entry: &Entry<P>) -> bool {
        self.table.lane(entry.lane).traffic.last_success > entry.started
    }

    /// Takes the outcome of an attempt, by the number that [`begin`](Self::begin) returned. If the
    /// lock was granted, the caller must release it from now on.
    pub fn take(&mut self, attempt: u64) -> Outcome {
        let outcome = self.take_last(attempt);
        if matches!(outcome, Outcome::Waits)
            && let Some(number) = self.current(attempt)
            && self.table.get(number).is_some_and(|entry| matches!(entry.state, State::Missed))
        {
            self.acquire_in_background(number);
        }
        outcome
    }

    /// Does the same as [`take`](Self::take) for an attempt whose time is up, and which is
    /// [cancelled](Self::cancel) if it still waits: if the caller did not take a granted lock in
    /// time, the lock is not requested again.
    pub fn take_last(&mut self, attempt: u64) -> Outcome {
        let now = self.now;
        let Some(number) = self.current(attempt) else {
            return Outcome::Refused(Refusal::Kind(LockErrorKind::Closed));
        };
        let Some(entry) = self.table.get(number) else { return Outcome::Waits };
        match &entry.state {
            State::Offered(lease) if now >= entry.lapses_at(lease) => {
                self.miss(number);
                self.take_last(attempt)
            }
            State::Offered(lease) => {
                let mut lease = lease.clone();
                lease.renew_if_doubted(now, self.doubted_before);
                let token = lease.token;
                let since = lease.since;
                let waited = since.since(entry.started);
                self.table.change(number, |entry| {
                    entry.state = State::Held(lease);
                    entry.caller = Caller::Gone;
                });
                Outcome::Granted { number, token, since, waited }
            }
            _ => {
                let refusal = self.table.change(number, |entry| {
                    match std::mem::replace(&mut entry.caller, Caller::Gone) {
                        Caller::Refused(refusal) => Some(refusal),
                        caller => {
                            entry.caller = caller;
                            None
                        }
                    }
                });
                refusal.flatten().map_or(Outcome::Waits, Outcome::Refused)
            }
        }
    }

    /// Cancels an attempt whose caller is gone or has timed out. If the server may know the
    /// attempt, the core removes it there by a leave. Returns an error if the attempt waited for
    /// the store instead of the lock: the acquire had failed, or an attempt that must not queue was
    /// never sent. `None` if the lock was just busy, as far as the core knows: the driver knows
    /// whether the connection to this lock's server is down.
    pub fn cancel(&mut self, attempt: u64) -> Option<StoreError> {
        let number = self.current(attempt)?;
        let entry = self.table.get(number)?;
        let unanswered = match &entry.state {
            // The server has responded to other requests since. So this acquire was never sent only
            // because too many requests were in flight.
            State::Unsent
                if entry.mode == Mode::Try && !entry.is_fenced && self.is_answering(entry) =>
            {
                Some(StoreError::refused(LockErrorKind::QueueFull, TOO_MANY_AT_ONCE))
            }
            // After a request time-out, the attempt is backing off with that error.
            State::Asking { error, .. } => error.clone(),
            State::Parked { error } => Some(error.clone()),
            _ => None,
        };
        self.table.change(number, |entry| entry.caller = Caller::Gone);
        self.withdraw(number);
        unanswered
    }

    /// Releases a guard's hold. `number` is the member id in [`Outcome::Granted`]. The caller sends
    /// the request in the result, if there is one.
    pub fn release(&mut self, number: u64) -> GivenBack {
        self.begin_release(number, true)
    }

    /// Releases the hold of a dropped guard. Unlike [`release`](Self::release), this sends the
    /// request as an effect, because no caller waits for the response.
    pub fn dropped(&mut self, number: u64) {
        if let GivenBack::By(request) = self.begin_release(number, false) {
            self.push(Effect::Send(request));
        }
    }

    /// Leaks a hold: it is neither released nor renewed any more, so it ends when the lease
    /// expires. The guards are notified of the loss.
    pub fn leak(&mut self, number: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        if !matches!(entry.state, State::Held(_) | State::Lost { .. }) {
            return;
        }
        let (mirror, until) = (entry.mirror.clone(), now + 2 * entry.options.lease);
        let hold = self.held_as(number);
        if self.batches.contains(hold) {
            self.leak_batch(hold, number, until);
        }
        self.table.change(hold, |entry| entry.state = State::Leaked { until });
        self.push(Effect::NotifyLost(mirror));
    }

    // Events from the store.

    /// Handles the server's response `answer` to `request`.
    pub fn replied(&mut self, request: &StoreRequest, answer: &Answer) {
        self.succeeded(request);
        self.compare_clocks(request, answer);
        match (&request.command, answer) {
            (Command::Acquire { members, .. }, Answer::Acquired(reply)) => {
                self.table.traffic(request.lane).pause = attempts::FIRST_RETRY;
                self.busy.note(&request.lock, reply.outcome != [Acquired::Granted]);
                for (member, outcome) in members.iter().zip(&reply.outcome) {
                    self.acquired(request, member, *outcome, reply.first_end_ms);
                }
                self.absorb(request, reply);
                // Any other grant has changed the state of its member.
                if reply.grants.iter().any(|grant| !grant.batch.is_empty()) {
                    members.iter().for_each(|member| self.settle_granted(member));
                }
            }
            (Command::Release { member }, Answer::Released(reply)) => {
                self.batch_released(member, Ok(reply.outcome), request.sent);
                let number = match reply.outcome {
                    Released::Released => self.end(member),
                    Released::NotHeld => self.leave_after_release(member),
                };
                // Must precede `remember_release`, because on a promoted replica the member may
                // still be queued. Then the release can grant it the lock, and this reply reports
                // the grant.
                self.absorb(request, reply);
                self.remember_release(number, &request.lock, member);
            }
            (Command::Renew { .. } | Command::Confirm { .. }, Answer::Renewed(reply)) => {
                for (member, outcome) in request.command.renews().iter().zip(&reply.outcome) {
                    self.renewed(request, member, *outcome, &reply.grants);
                }
            }
            (Command::Touch { members }, Answer::Touched(reply)) => {
                self.absorb(request, reply);
                self.touched(request, members, reply);
            }
            (Command::Leave { leaving }, Answer::Left(reply)) => {
                self.absorb(request, reply);
                let outcome = match reply.outcome.contains(&Left::Left) {
                    true => Released::Released,
                    false => Released::NotHeld,
                };
                // A served member has left earlier, and the hold stays with the other batch
                // members.
                for Leaving { member, .. } in leaving.iter().filter(|one| !one.served) {
                    if self.leaves_with(member, leaving) {
                        self.batch_released(member, Ok(outcome), request.sent);
                        let number = self.end(member);
                        self.remember_release(number, &request.lock, member);
                    }
                }
            }
            (Command::Reduce { member, .. }, Answer::Renewed(reply)) => {
                let is_held = reply.outcome == [Renewed::Held];
                let outcome = if is_held { Released::Released } else { Released::NotHeld };
                self.batch_cut(member, Ok(outcome), request.sent);
                self.reduced(member, &reply.outcome);
                self.absorb(request, reply);
            }
            (Command::ForceRelease { .. }, Answer::Released(reply)) => {
                self.absorb(request, reply);
            }
            _ => {}
        }
    }

    /// Handles a renewal of an [`Effect::Confirm`] whose write the store did not confirm on
    /// replicas or on disk. If the renewal was to confirm a grant, the caller is refused the lock;
    /// otherwise it counts as failed. `answer` is the server's response, if it arrived: members
    /// that hold nothing by it have lost their holds.
    pub fn unconfirmed(
        &mut self,
        request: &StoreRequest,
        answer: Option<&Answer>,
        error: &StoreError,
    ) {
        match answer {
            Some(_) => self.succeeded(request),
            None => self.failed(request, error),
        }
        let outcomes = match answer {
            Some(Answer::Renewed(reply)) => &reply.outcome[..],
            _ => &[],
        };
        for (at, member) in request.command.renews().iter().enumerate() {
            match outcomes.get(at) {
                Some(Renewed::NotHeld) => self.renewed(request, member, Renewed::NotHeld, &[]),
                Some(Renewed::Held) | None => self.refuse_unconfirmed(request.sent, member, error),
            }
        }
    }

    /// Handles a request that failed. The `error` states whether the command may have run.
    pub fn unanswered(&mut self, request: &StoreRequest, error: &StoreError) {
        self.failed(request, error);
        match &request.command {
            Command::Acquire { members, .. } => {
                for member in members {
                    self.acquire_failed(member, error);
                }
            }
            Command::Release { member } => {
                self.batch_released(member, Err(error), self.now);
                self.leave_failed(member, &request.lock, error);
            }
            Command::Leave { leaving } => {
                for Leaving { member, .. } in leaving.iter().filter(|one| !one.served) {
                    if self.leaves_with(member, leaving) {
                        self.batch_released(member, Err(error), self.now);
                        self.leave_failed(member, &request.lock, error);
                    }
                }
            }
            Command::Renew { .. } | Command::Confirm { .. } => {
                for member in request.command.renews() {
                    self.renewal_failed(request.sent, member, error);
                }
            }
            Command::Touch { .. } => {
                let lock = request.lock.clone();
                self.table.touch_by(&lock, self.now + lines::TOUCH_RETRY);
                self.push(Effect::Observe(Note::TouchFailed { lock, error: error.clone() }));
            }
            // The caller retries the request or releases the hold, so only the batch is updated.
            Command::Reduce { member, .. } => self.batch_cut(member, Err(error), self.now),
            Command::ForceRelease { .. } | Command::Inspect { .. } => {}
        }
    }

    /// Handles a message that the server sent to this node.
    pub fn heard(&mut self, event: Event) {
        match event {
            Event::Granted { token, grants } => {
                // A member that is not in the table has left, and its leave hands off the lock. If
                // the server did not acknowledge the leave, it is repeated: see `leave_failed`.
                for (number, left_ms) in grants {
                    self.granted(number, token, left_ms, GrantSource::Message);
                }
            }
            Event::GrantedBatch { token, left_ms, numbers } => {
                let (hold, answered) = (None, &[][..]);
                let reported = ReportedBatch { hold, answered, numbers: &numbers, token, left_ms };
                self.granted_batch(reported, GrantSource::Message);
            }
            Event::Revoked { numbers } => {
                for number in numbers {
                    if self.table.entries().contains_key(&number) {
                        self.revoked(number);
                    }
                }
            }
            Event::Superseded { numbers } => {
                for number in numbers {
                    match self.rules.confirm_grants {
                        // The reply to a touch says the same, and cannot be forged.
                        true => self.poked(number),
                        false => self.superseded(number),
                    }
                }
            }
            Event::Poked { number } => self.poked(number),
            Event::Resubscribed => self.check_lines(),
        }
    }

    /// Returns the lock that is granted by a message, for logs and traces; `None` if the message is
    /// no grant, or concerns no member in the table.
    pub fn lock_of(&self, event: &Event) -> Option<&LockName> {
        let known = |number: &u64| Some(&self.table.get(*number)?.lock);
        match event {
            Event::Granted { grants, .. } => grants.iter().find_map(|(number, _)| known(number)),
            Event::GrantedBatch { numbers, .. } => numbers.iter().find_map(known),
            _ => None,
        }
    }

    /// Handles a change of the two connections, for commands and for messages. Also called if a
    /// connection was replaced by a new one in the same state, because messages may have been
    /// missed.
    pub fn linked(&mut self, commands: Link, subscription: Link) {
        let now = self.now;
        self.commands = commands;
        self.subscription = subscription;
        if self.commands.is_up() {
            // The server behind the new connection may have lost all data.
            self.renew_all_since(now);
            self.recent_releases.reconnected();
        }
        if self.subscription.is_up() {
            self.subscribed = now;
        }
        let is_up = self.is_up();
        for lane in 0..self.table.lanes().len() as u16 {
            let is_parked = !self.table.lane(lane).parked.is_empty();
            let traffic = self.table.traffic(lane);
            traffic.gave_up = false;
            traffic.retry_from = 0;
            if !is_up {
                // Nothing is sent until both connections are back.
                traffic.retry_at = None;
            } else if is_parked {
                (traffic.pause, traffic.retry_at) = (attempts::FIRST_RETRY, Some(now));
            }
        }
        if is_up {
            self.check_lines();
            // A force-release may be among the missed messages, so all leases requested so far are
            // in doubt.
            self.doubt(now + Duration::from_micros(1));
        }
    }

    // Queries.

    /// Returns the number of attempts and holds, by kind.
    pub fn counts(&self) -> Counts {
        *self.table.counts()
    }

    /// Returns when the last response arrived from the store.
    pub fn last_success(&self) -> Moment {
        self.last_success
    }

    /// Returns the round-trip time of the last request that got a response; zero before the first
    /// response.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
