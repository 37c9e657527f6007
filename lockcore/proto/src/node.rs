//! The state machine behind a node's attempts and holds, without I/O: events go in with their time,
//! and effects come out.
//!
//! # Driving it
//!
//! See [How a driver drives it](crate#how-a-driver-drives-it).
//!
//! # Implementation notes
//!
//! - *Ambiguity.* An acquire without a response may still run. The member is never just dropped:
//!   the node sends the acquire again, or the member leaves with a tombstone.
//! - *Anchor.* A lease is counted from the moment the request was sent. A grant received as a
//!   message has no request, but is newer than the last response with the member waiting, so it is
//!   counted from the request for that response. If two copies of the acquire may have run, the
//!   message may report a grant that has expired since, and a renewal decides whether the lock is
//!   held.
//! - *Claim and confirming.* A handed-off hold has a claim as lease. With less than half a claim
//!   left, the hold is renewed before the guard is handed out, so that no guard starts just before
//!   the lease expires.
//! - *Doubt.* A server whose clock ran ahead has expired leases earlier than assumed here. Earlier
//!   leases are renewed: holds at once, grants before they are handed out.
//! - *Queues.* A lock's waiters are touched together, periodically and after every interruption.
//!   Messages only save time: after any loss, the next touch queries the server, and the node acts
//!   on the response.
//! - *Lost positions.* A member unknown to the server is never used again, because a late grant for
//!   the old position could be mistaken for a new grant: the attempt continues in the next round,
//!   with a new member id, at the tail.
//! - *Bursts.* An attempt for a lock with a pending acquire is sent by the next tick, together with
//!   all attempts begun until then. This tick is due at once and waits for no response. The first
//!   attempt in a burst, and so every lone attempt, is sent by the caller.
//! - *Fence.* While the node acquires a lock by the fast path, further attempts for this lock wait
//!   for the response: see `fence`.
//! - *Order.* Effects run outside the table, so the effects of two events may overtake each other.
//!   Two requests for a member are never in flight together if their order matters: a leave waits
//!   for the response to the acquire, and a release may overtake a renewal, whose response is then
//!   ignored.

mod activity;
mod attempts;
mod batch;
mod clocks;
mod closing;
mod due;
mod effect;
mod entry;
mod fence;
mod grants;
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
mod run;
mod runs;
mod table;
#[cfg(test)]
mod tests;

pub use activity::{Activity, Stage};
pub use batch::{Batch, batches, commands, is_of_one};
pub use effect::{Ask, Effect, Note, Way};
pub use entry::{Mirror, Refusal, Request};
pub use lane::Lanes;
pub use moment::Moment;
pub use projection::{Due, Phase};

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use self::clocks::ClockReading;
use self::entry::{Caller, Entry, State};
use self::fence::BusyNames;
use self::grants::GrantSource;
#[cfg(debug_assertions)]
use self::lane::Traffic;
use self::recent_releases::RecentReleases;
use self::run::{Runs, ToldRun};
use self::table::Table;
use crate::error::{LockErrorKind, StoreError};
use crate::layout::{Layout, NewMember, QUEUE};
use crate::member::{self, NodeId, ROUND_BITS, Service};
use crate::name::LockName;
use crate::terms::WhenBusy;
use crate::token::FencingToken;
use crate::{Acquired, Answer, Command, Event, Leaving, Left, Link, Mode, Released, Renewed};

/// Maximum number of entries handled at once, because others need the table too.
const MAX_AT_ONCE: usize = 256;
/// Maximum number of entries made due by a tick after a reconnect, so that earlier entries are sent
/// first.
const MADE_DUE: usize = MAX_AT_ONCE / 4;
/// Maximum table size to be checked after each event. The larger a table is beyond this, the rarer
/// the checks, so that the cost per event falls.
#[cfg(debug_assertions)]
const CHECKED: usize = 64;
const TOO_MANY_AT_ONCE: &str = "too many concurrent acquires in this Locks: the request was not \
    sent within the request timeout";

/// Settings for a core.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Whether a grant received as a message is renewed before it is handed out.
    pub confirm_grants: bool,
    /// Whether a grant or a renewal counts only once the store has confirmed its write: on replicas
    /// or on disk.
    pub confirms_writes: bool,
    /// The key layout.
    pub layout: &'static dyn Layout,
    /// Maximum number of repeated acquires in flight per lane: a timeout must measure the server,
    /// not our own queue there. 64 by default.
    pub window: usize,
    /// Maximum number of caller acquires in flight per lane, for the same reason; further acquires
    /// are sent in the order of arrival. 256 by default: each takes the server some 60 µs, so all
    /// responses arrive long before the first timeout, however many callers there are. Twice as
    /// many leaves may be in flight as well.
    pub acquires: usize,
    /// Maximum batch size: up to this many consecutive waiters of this node are granted a lock
    /// together. 1 grants each waiter alone. At most [`MAX_RUN`](crate::MAX_RUN).
    pub runs: usize,
    /// The server's time at moment zero, in µs since the epoch: attempts are numbered by their
    /// begin time. If `None`, they are numbered consecutively.
    pub born_us: Option<u64>,
    /// The seed of the random delays between requests otherwise due together; zero disables the
    /// delays.
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
            runs: 1,
            born_us: None,
            seed: 0,
        }
    }
}

/// The number of entries of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attempts without an outcome.
    pub attempts: usize,
    /// Holds with a guard, and offers.
    pub holds: usize,
    /// Members whose release or leave is not acknowledged by the server yet.
    pub given_back: usize,
    /// Members given up without an acknowledgement by the server, since the start.
    pub failed: usize,
    /// Queue positions lost since the start.
    pub places_lost: u64,
}

/// An attempt's outcome for the caller.
#[derive(Debug)]
pub enum Outcome {
    /// No outcome yet: the caller is woken later.
    Waits,
    /// The lock is granted, and belongs to the caller from now on.
    Granted {
        /// The member id.
        number: u64,
        /// The fencing token of this hold.
        token: FencingToken,
        /// When the hold began.
        since: Moment,
        /// The time from the attempt's begin to the hold's begin.
        waited: Duration,
    },
    /// The attempt ended without the lock.
    Refused(Refusal),
}

/// How a guard is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenBack {
    /// By this request, sent by the caller.
    By(Ask),
    /// Other batch members keep the hold. [`Mirror::returned`] reports whether the server still had
    /// it.
    InRun,
    /// The hold was lost earlier: there is nothing to release.
    Nothing,
}

impl GivenBack {
    /// Returns the release request, if any.
    pub fn request(self) -> Option<Ask> {
        match self {
            Self::By(ask) => Some(ask),
            Self::InRun | Self::Nothing => None,
        }
    }
}

/// A node's attempts and holds. `P` is the driver's part of each entry.
#[derive(Debug, Clone)]
pub struct Core<P> {
    node: NodeId,
    rules: Rules,
    table: Table<P>,
    runs: Runs<P>,
    /// The current tick's first lane.
    first_lane: usize,
    /// Queues after this name are touched unless touched since that moment: messages may have been
    /// missed.
    recheck: Option<(Bound<LockName>, Moment)>,
    /// Holds from this member id on are renewed unless requested since that moment: the server may
    /// have lost them.
    renew_all: Option<(u64, Moment)>,
    commands: Link,
    subscription: Link,
    next_attempt: u64,
    last_success: Moment,
    /// How long the last response took.
    round_trip: Duration,
    last_readings: BTreeMap<u16, ClockReading>,
    recent_releases: RecentReleases,
    has_fast_path: bool,
    busy: BusyNames,
    /// When the current event happened.
    now: Moment,
    effects: Vec<Effect<P>>,
    /// The number of events so far.
    #[cfg(debug_assertions)]
    events: usize,
    /// Leases requested before this moment may expire earlier than assumed here.
    doubt: Moment,
    is_closed: bool,
}

impl<P: Mirror> Core<P> {
    /// Creates an empty table.
    pub fn new(node: NodeId, rules: Rules) -> Self {
        Self {
            node,
            rules,
            table: Table::new(),
            runs: Runs::new(),
            first_lane: 0,
            recheck: None,
            renew_all: None,
            commands: Link::Up,
            subscription: Link::Up,
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
            doubt: Moment::default(),
            is_closed: false,
        }
    }

    /// Begins an event at this moment; the next method call defines the event.
    pub fn event(&mut self, now: Moment) -> &mut Self {
        #[cfg(debug_assertions)]
        self.check_now_and_then();
        self.now = now;
        self
    }

    /// Returns the effects of all events so far, in order. Releases and leaves are included at
    /// once, without a tick.
    pub fn drain(&mut self) -> Vec<Effect<P>> {
        if self.table.has_to_send() {
            self.send_passed();
        }
        self.give_back_what_is_due(MAX_AT_ONCE);
        std::mem::take(&mut self.effects)
    }

    /// Checks the state after the previous event, unless the table is too large to do so each time.
    #[cfg(debug_assertions)]
    fn check_now_and_then(&mut self) {
        self.events += 1;
        let pause = (self.table.entries().len() / CHECKED).pow(2).max(1);
        if self.events.is_multiple_of(pause) {
            self.check();
        }
    }

    /// Asserts all invariants.
    #[cfg(debug_assertions)]
    fn check(&self) {
        self.table.check();
        self.runs.check();
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

    /// Begins an attempt. The caller sends the acquire, unless the next tick sends it or the
    /// attempt is backing off. Returns `None` if the node is closed.
    pub fn begin(&mut self, request: Request, mirror: P) -> Option<(u64, Option<Ask>)> {
        let now = self.now;
        if self.is_closed {
            return None;
        }
        let by_time = |born_us| member::attempt_at(born_us + now.as_micros());
        let attempt = self.rules.born_us.map_or(0, by_time).max(self.next_attempt);
        self.next_attempt = attempt + 1;
        let number = attempt << ROUND_BITS;
        let is_for_run = self.is_for_run(&request);
        let Request { lock, options, mode, label, demand } = request;
        let node = &self.node;
        let lease_ms = options.lease_ms();
        let service = match options.when_busy {
            WhenBusy::KeepNewest if mode == Mode::Wait => Service::Newest,
            _ if is_for_run => Service::in_run(self.rules.runs),
            _ => Service::Alone,
        };
        let new = NewMember { node, number, lease_ms, demand, service, label: &label };
        let member = self.rules.layout.member(new);
        // Concurrent attempts for one lock are sent together by the next tick, which is due now.
        // Attempts for other locks never take room from earlier attempts.
        let lane = self.table.lane(self.table.lane_of(&lock));
        let has_room = lane.unsent.len() < self.room_to_ask(lane);
        let fence = self.fence(&lock, &member);
        let entry = Entry { fence, ..Entry::new(lock, member, options, mode, now, mirror) };
        let is_next = self.table.begin(number, entry, has_room);
        let ask = is_next.then(|| self.ask(number)).flatten();
        Some((attempt, ask))
    }

    /// Returns whether an attempt's first acquire is in flight and [`take`](Self::take) has no
    /// outcome yet.
    pub fn is_asking(&self, attempt: u64) -> bool {
        self.table.get(attempt << ROUND_BITS).is_some_and(|entry| {
            matches!((&entry.state, &entry.caller), (State::Asking { .. }, Caller::Waits))
        })
    }

    /// Returns since when an attempt without a response has been waiting for the store: since it
    /// began. An acquire without a failure counts from the lane's last response, if later, because
    /// it is queued, there or here.
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

    /// Returns an attempt's outcome. A grant belongs to the caller from now on.
    pub fn take(&mut self, attempt: u64) -> Outcome {
        let now = self.now;
        let Some(number) = self.current(attempt) else {
            return Outcome::Refused(Refusal::Kind(LockErrorKind::Closed));
        };
        let Some(entry) = self.table.get(number) else { return Outcome::Waits };
        match &entry.state {
            State::Offered(lease) if now >= entry.lapses_at(lease) => {
                self.miss(number);
                self.take(attempt)
            }
            State::Offered(lease) => {
                let mut lease = lease.clone();
                lease.doubted(now, self.doubt);
                let token = lease.token;
                let since = lease.since;
                let waited = since.since(entry.started);
                self.table.change(number, |entry| {
                    entry.state = State::Held(lease);
                    entry.caller = Caller::Gone;
                });
                Outcome::Granted { number, token, since, waited }
            }
            State::Missed => {
                self.ask_in_background(number);
                Outcome::Waits
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

    /// Cancels an attempt whose caller is gone or has timed out. Nothing of it stays behind.
    /// Returns why there was no response, if neither the lock nor the caller is the cause: the
    /// store was unavailable, or the acquire was never sent.
    pub fn cancel(&mut self, attempt: u64) -> Option<StoreError> {
        let number = self.current(attempt)?;
        let entry = self.table.get(number)?;
        let unanswered = match &entry.state {
            // The server has sent other responses since: this acquire was not sent for lack of
            // room.
            State::Unsent
                if entry.mode == Mode::Try
                    && self.table.lane(entry.lane).traffic.last_success > entry.started =>
            {
                Some(StoreError::refused(LockErrorKind::QueueFull, TOO_MANY_AT_ONCE))
            }
            // After a request timeout without a response, the attempt is backing off with that
            // error.
            State::Asking { error, .. } => error.clone().or_else(|| self.disconnected()),
            State::Parked { error } => Some(error.clone()),
            State::Unsent | State::Waiting | State::Confirming { .. } => self.disconnected(),
            _ => None,
        };
        self.table.change(number, |entry| entry.caller = Caller::Gone);
        self.withdraw(number);
        unanswered
    }

    /// Returns why no command gets through; `None` while connected, however slow the server is.
    fn disconnected(&self) -> Option<StoreError> {
        self.commands.why_down()
    }

    /// Releases a guard; the caller sends the request.
    pub fn release(&mut self, number: u64) -> GivenBack {
        self.begin_release(number, None, true)
    }

    /// Releases a dropped guard's hold at once, like [`release`](Self::release), but nobody waits
    /// for the response.
    pub fn dropped(&mut self, number: u64) {
        if let GivenBack::By(ask) = self.begin_release(number, None, false) {
            self.push(Effect::Send(ask));
        }
    }

    /// Leaves a hold to expire: renewals stop, and the guards are notified of the loss.
    pub fn leak(&mut self, number: u64) {
        let now = self.now;
        let Some(entry) = self.table.get(number) else { return };
        if !matches!(entry.state, State::Held(_) | State::Lost { .. }) {
            return;
        }
        let mirror = entry.mirror.clone();
        let hold = self.held_as(number);
        if self.runs.contains(hold) {
            self.leak_run(hold, number);
        }
        self.table.change(hold, |entry| {
            entry.state = State::Leaked { until: now + 2 * entry.options.lease };
        });
        self.push(Effect::TellLost(mirror));
    }

    // Events from the store.

    /// Handles the response to a request.
    pub fn replied(&mut self, ask: &Ask, answer: &Answer) {
        self.succeeded(ask);
        self.compare_clocks(ask, answer);
        match (&ask.command, answer) {
            (Command::Acquire { members, .. }, Answer::Acquired(reply)) => {
                self.table.traffic(ask.lane).pause = attempts::FIRST_RETRY;
                self.busy.note(&ask.lock, reply.outcome != [Acquired::Granted]);
                for (member, outcome) in members.iter().zip(&reply.outcome) {
                    self.acquired(ask, member, *outcome, reply.first_end_ms);
                }
                self.absorb(ask, reply);
            }
            (Command::Release { member }, Answer::Released(reply)) => {
                self.run_released(member, Ok(reply.outcome), ask.sent);
                let number = match reply.outcome {
                    Released::Released => self.end(member),
                    Released::NotHeld => self.leave_after_release(member),
                };
                // Must precede `remember_release`: on a promoted replica the member may still be
                // queued, so the release can grant it the lock, as reported in this reply.
                self.absorb(ask, reply);
                self.remember_release(number, &ask.lock, member);
            }
            (Command::Renew { .. } | Command::Confirm { .. }, Answer::Renewed(reply)) => {
                for (member, outcome) in ask.command.renews().iter().zip(&reply.outcome) {
                    self.renewed(ask, member, *outcome, &reply.grants);
                }
            }
            (Command::Touch { members }, Answer::Touched(reply)) => {
                self.absorb(ask, reply);
                self.touched(ask, members, reply);
            }
            (Command::Leave { leaving }, Answer::Left(reply)) => {
                self.absorb(ask, reply);
                let outcome = match reply.outcome.contains(&Left::Left) {
                    true => Released::Released,
                    false => Released::NotHeld,
                };
                // A served member has left earlier, and the batch continues.
                for Leaving { member, .. } in leaving.iter().filter(|one| !one.served) {
                    if self.leaves_with(member, leaving) {
                        self.run_released(member, Ok(outcome), ask.sent);
                        let number = self.end(member);
                        self.remember_release(number, &ask.lock, member);
                    }
                }
            }
            (Command::Reduce { member, .. }, Answer::Renewed(reply)) => {
                let is_held = reply.outcome == [Renewed::Held];
                let outcome = if is_held { Released::Released } else { Released::NotHeld };
                self.run_cut(member, Ok(outcome), ask.sent);
                self.reduced(member, &reply.outcome);
                self.absorb(ask, reply);
            }
            (Command::ForceRelease { .. }, Answer::Released(reply)) => {
                self.absorb(ask, reply);
            }
            _ => {}
        }
    }

    /// Handles a renewal whose write the store did not confirm. The response `answer`, if any,
    /// names the members without a hold.
    pub fn unconfirmed(&mut self, ask: &Ask, answer: Option<&Answer>, error: &StoreError) {
        match answer {
            Some(_) => self.succeeded(ask),
            None => self.failed(ask, error),
        }
        let outcomes = match answer {
            Some(Answer::Renewed(reply)) => &reply.outcome[..],
            _ => &[],
        };
        for (at, member) in ask.command.renews().iter().enumerate() {
            match outcomes.get(at) {
                Some(Renewed::NotHeld) => self.renewed(ask, member, Renewed::NotHeld, &[]),
                Some(Renewed::Held) | None => self.refuse_unconfirmed(member, error),
            }
        }
    }

    /// Handles a failed request; `error` states whether it may have run.
    pub fn unanswered(&mut self, ask: &Ask, error: &StoreError) {
        self.failed(ask, error);
        match &ask.command {
            Command::Acquire { members, .. } => {
                for member in members {
                    self.acquire_failed(member, error);
                }
            }
            Command::Release { member } => {
                self.run_released(member, Err(error), self.now);
                self.leave_failed(member, &ask.lock, error);
            }
            Command::Leave { leaving } => {
                for Leaving { member, .. } in leaving.iter().filter(|one| !one.served) {
                    if self.leaves_with(member, leaving) {
                        self.run_released(member, Err(error), self.now);
                        self.leave_failed(member, &ask.lock, error);
                    }
                }
            }
            Command::Renew { .. } | Command::Confirm { .. } => {
                for member in ask.command.renews() {
                    self.renewal_failed(member, error);
                }
            }
            Command::Touch { .. } => {
                let lock = ask.lock.clone();
                self.table.touch_by(&lock, self.now + lines::TOUCH_RETRY);
                self.push(Effect::Observe(Note::TouchFailed { lock, error: error.clone() }));
            }
            // The caller retries, or releases the hold.
            Command::Reduce { member, .. } => self.run_cut(member, Err(error), self.now),
            Command::ForceRelease { .. } | Command::Inspect { .. } => {}
        }
    }

    /// Handles a message from the server.
    pub fn heard(&mut self, event: Event) {
        match event {
            Event::Granted { token, grants } => {
                // An unknown member has left, and the leave hands off the lock.
                for (number, left_ms) in grants {
                    self.granted(number, token, left_ms, GrantSource::Message);
                }
            }
            Event::GrantedRun { token, left_ms, numbers } => {
                let (hold, answered) = (None, &[][..]);
                let told = ToldRun { hold, answered, numbers: &numbers, token, left_ms };
                self.granted_run(told, GrantSource::Message);
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
                    self.superseded(number);
                }
            }
            Event::Poked { number } => self.poked(number),
            Event::Resubscribed => self.check_lines(),
        }
    }

    /// Returns the lock granted by a message, if any granted member is still known.
    pub fn lock_of(&self, event: &Event) -> Option<&LockName> {
        let known = |number: &u64| Some(&self.table.get(*number)?.lock);
        match event {
            Event::Granted { grants, .. } => grants.iter().find_map(|(number, _)| known(number)),
            Event::GrantedRun { numbers, .. } => numbers.iter().find_map(known),
            _ => None,
        }
    }

    /// Handles a connection change: a new state, or a new connection.
    pub fn linked(&mut self, commands: Link, subscription: Link) {
        let now = self.now;
        self.commands = commands;
        self.subscription = subscription;
        if self.commands.is_up() {
            // The server behind it may have lost all data.
            self.renew_all = Some((0, now));
            self.recent_releases.reconnected();
        }
        let is_up = self.is_up();
        for lane in 0..self.table.lanes().len() as u16 {
            let is_parked = !self.table.lane(lane).parked.is_empty();
            let traffic = self.table.traffic(lane);
            if !is_up {
                // Nothing is sent until both connections are back.
                traffic.retry_at = None;
            } else if is_parked {
                (traffic.pause, traffic.retry_at) = (attempts::FIRST_RETRY, Some(now));
            }
        }
        if is_up {
            self.check_lines();
            // A revocation may be among the missed messages, so all requests sent so far are in
            // doubt.
            self.doubt = now + Duration::from_micros(1);
        }
    }

    // Queries.

    /// The number of entries of each kind.
    pub fn counts(&self) -> Counts {
        *self.table.counts()
    }

    /// Returns when a request last succeeded.
    pub fn last_success(&self) -> Moment {
        self.last_success
    }

    /// Returns how long the last response took; zero before the first response.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
