//! Every attempt and hold of one node, as one table without I/O: events go in with the time at
//! which they happen, and effects come out.
//!
//! # Driving it
//!
//! See [How a driver drives it](crate#how-a-driver-drives-it).
//!
//! # Implementation notes
//!
//! - *Ambiguity.* An acquire that was not answered may still run. Its member is never simply
//!   forgotten: it is asked for again, or leaves with a tombstone.
//! - *Anchor.* A lease is counted from the moment at which its request was sent. A grant that comes
//!   as a message has no request; it is younger than the last answer that found the member waiting,
//!   so it is counted from the request of that answer. Unless two copies of its acquire may have
//!   run: then the message may tell of a grant that has lapsed since, and a renewal decides whether
//!   it is held.
//! - *Claim and confirming.* A hold that is handed over lasts a claim. One with less than half of
//!   it left is renewed before its guard is handed out, so that no guard begins with its end.
//! - *Doubt.* A server whose clock ran ahead has ended leases earlier than is thought here. Leases
//!   from before are renewed: holds at once, grants before they are handed out.
//! - *Lines.* Waiting members of one lock are touched together, in time and after every
//!   interruption. Messages only save time: after any loss, the next touch asks the server and acts
//!   on the answer.
//! - *Places lost.* A member that the server no longer knows is never used again, or a late grant
//!   of its old place would be taken for a new one: its attempt goes on in the next round, with a
//!   new number, at the tail.
//! - *Bursts.* An attempt for a lock that is asked for already goes with the next tick, together
//!   with all that have come until then. The tick is due at once, and waits for no answer. The
//!   first of a burst, and so every attempt that is alone, is sent by its caller.
//! - *Fence.* While the node acquires a lock by the fast path, its next attempts for that lock wait
//!   for the answer: see [`fence`].
//! - *Order.* Effects run outside the table, so those of two events may overtake each other. No two
//!   requests of one member are on their way whose order matters: a leave waits for the answer of
//!   its acquire, and a release may overtake a renewal, whose answer then means nothing.

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

/// Most events of one kind that are handled at once: others want the table too.
const MAX_AT_ONCE: usize = 256;
/// Most entries that a tick makes due after a new connection. The others are left time to go out.
const MADE_DUE: usize = MAX_AT_ONCE / 4;
/// The maximum size of a table that is checked after each event. A larger one is checked the less
/// often the larger it is, so that a check costs the less for each event.
#[cfg(debug_assertions)]
const CHECKED: usize = 64;
const TOO_MANY_AT_ONCE: &str = "too many concurrent acquires in this Locks: the request was not \
    sent within the request timeout";

/// The settings of a core.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Whether a grant that came as a message is renewed before it is handed out.
    pub confirm_grants: bool,
    /// Whether a grant or a renewal counts only once the store has confirmed its write: on replicas
    /// or on disk.
    pub confirms_writes: bool,
    /// The layout of the keys.
    pub layout: &'static dyn Layout,
    /// The most acquires that are repeated on their way in each lane at once: a time-out is to
    /// measure the server, not our own queue there. 64 by default.
    pub window: usize,
    /// The most acquires of callers on their way in each lane at once, for the same reason; the
    /// others are sent in the order in which they came. 256 by default: each takes the server some
    /// 60 µs, so all of them are answered long before the first times out, however many callers
    /// there are. Twice as many leaves may be on their way beside them.
    pub acquires: usize,
    /// The most members of a run of this node: so many that wait one behind the other for one lock
    /// are granted it together. 1 grants each of them alone. [`MAX_RUN`](crate::MAX_RUN) at most.
    pub runs: usize,
    /// The server's time at the moment zero, µs since the epoch: attempts are numbered by the time
    /// at which they begin. Without one they are counted.
    pub born_us: Option<u64>,
    /// The seed of the random times that part requests which would be due together; zero parts
    /// none.
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

/// The numbers of entries, by their kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attempts that wait for their outcome.
    pub attempts: usize,
    /// Holds with a guard, and offers.
    pub holds: usize,
    /// Holds and places that the server is still to be told of.
    pub given_back: usize,
    /// The members that were given up untold, since the start.
    pub failed: usize,
    /// Places lost since the start.
    pub places_lost: u64,
}

/// The outcome of an attempt for its caller.
#[derive(Debug)]
pub enum Outcome {
    /// No outcome yet: the caller is woken.
    Waits,
    /// The lock; the caller has it from now on.
    Granted {
        /// The member's number.
        number: u64,
        /// The token of this hold.
        token: FencingToken,
        /// The start of the hold.
        since: Moment,
        /// The time from the attempt's begin to that of the hold.
        waited: Duration,
    },
    /// No lock.
    Refused(Refusal),
}

/// The way in which a guard is given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenBack {
    /// By this request, which the caller sends.
    By(Ask),
    /// Others of its run have the hold now. [`Mirror::returned`] tells whether the server still had
    /// it.
    InRun,
    /// It was taken away before: there is nothing to give back.
    Nothing,
}

impl GivenBack {
    /// The request that gives it back.
    pub fn request(self) -> Option<Ask> {
        match self {
            Self::By(ask) => Some(ask),
            Self::InRun | Self::Nothing => None,
        }
    }
}

/// All attempts and holds of a node. `P` is the driver's own part of each entry.
#[derive(Debug, Clone)]
pub struct Core<P> {
    node: NodeId,
    rules: Rules,
    table: Table<P>,
    runs: Runs<P>,
    /// The lane with which the present tick begins.
    first_lane: usize,
    /// Lines behind this one are touched if they were not since then: messages may have been
    /// missed.
    recheck: Option<(Bound<LockName>, Moment)>,
    /// Holds behind this one are renewed if they were not since then: the server may have forgotten
    /// them.
    renew_all: Option<(u64, Moment)>,
    commands: Link,
    subscription: Link,
    next_attempt: u64,
    last_success: Moment,
    /// The time between the last answer and its request.
    round_trip: Duration,
    last_readings: BTreeMap<u16, ClockReading>,
    recent_releases: RecentReleases,
    has_fast_path: bool,
    busy: BusyNames,
    /// The moment of the present event.
    now: Moment,
    effects: Vec<Effect<P>>,
    /// The number of events so far.
    #[cfg(debug_assertions)]
    events: usize,
    /// Leases that were asked for before this time may end earlier than is thought here.
    doubt: Moment,
    is_closed: bool,
}

impl<P: Mirror> Core<P> {
    /// An empty table.
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

    /// Begins an event at this moment: the method that follows tells which.
    pub fn event(&mut self, now: Moment) -> &mut Self {
        #[cfg(debug_assertions)]
        self.check_now_and_then();
        self.now = now;
        self
    }

    /// Takes the effects of all events so far, in their order. Their releases and leaves are among
    /// these effects, and wait for no tick.
    pub fn drain(&mut self) -> Vec<Effect<P>> {
        if self.table.has_to_send() {
            self.send_passed();
        }
        self.give_back_what_is_due(MAX_AT_ONCE);
        std::mem::take(&mut self.effects)
    }

    /// Checks what the event before has left, unless the table is so large that it takes too long.
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

    /// An attempt begins; its caller sends the acquire, unless it goes with the next tick or is
    /// parked. Nothing if the node is closed.
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
        // Those that ask for one lock at once go together with the next tick, which is due now. Of
        // other locks, none takes the room of those that came before.
        let lane = self.table.lane(self.table.lane_of(&lock));
        let has_room = lane.unsent.len() < self.room_to_ask(lane);
        let fence = self.fence(&lock, &member);
        let entry = Entry { fence, ..Entry::new(lock, member, options, mode, now, mirror) };
        let is_next = self.table.begin(number, entry, has_room);
        let ask = is_next.then(|| self.ask(number)).flatten();
        Some((attempt, ask))
    }

    /// Whether the first acquire of an attempt is on its way, and [`take`](Self::take) has no
    /// outcome yet.
    pub fn is_asking(&self, attempt: u64) -> bool {
        self.table.get(attempt << ROUND_BITS).is_some_and(|entry| {
            matches!((&entry.state, &entry.caller), (State::Asking { .. }, Caller::Waits))
        })
    }

    /// The moment since which an attempt waits for the store, if its acquire was not answered: its
    /// begin. While its server answers others, an acquire that has not failed yet waits for its
    /// turn, there or here.
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

    /// Takes the outcome of an attempt. A grant is its caller's from now on.
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

    /// The caller of an attempt has gone, or its time is up. Nothing of it stays behind. Returns
    /// the reason why it was not answered, if that is neither the lock nor its caller: the store
    /// was unavailable, or it was never sent.
    pub fn cancel(&mut self, attempt: u64) -> Option<StoreError> {
        let number = self.current(attempt)?;
        let entry = self.table.get(number)?;
        let unanswered = match &entry.state {
            // The server has answered others meanwhile: this one was not sent for want of room.
            State::Unsent
                if entry.mode == Mode::Try
                    && self.table.lane(entry.lane).traffic.last_success > entry.started =>
            {
                Some(StoreError::refused(LockErrorKind::QueueFull, TOO_MANY_AT_ONCE))
            }
            // One without an answer for a whole request timeout was parked with that error.
            State::Asking { error, .. } => error.clone().or_else(|| self.disconnected()),
            State::Parked { error } => Some(error.clone()),
            State::Unsent | State::Waiting | State::Confirming { .. } => self.disconnected(),
            _ => None,
        };
        self.table.change(number, |entry| entry.caller = Caller::Gone);
        self.withdraw(number);
        unanswered
    }

    /// The reason why no command gets through; none while the connection stands, however slow the
    /// server is.
    fn disconnected(&self) -> Option<StoreError> {
        self.commands.why_down()
    }

    /// A guard is given back, by a caller that sends the request itself.
    pub fn release(&mut self, number: u64) -> GivenBack {
        self.begin_release(number, None, true)
    }

    /// A guard was dropped: its hold is given back at once, as by [`release`](Self::release), and
    /// nobody waits for the answer.
    pub fn dropped(&mut self, number: u64) {
        if let GivenBack::By(ask) = self.begin_release(number, None, false) {
            self.push(Effect::Send(ask));
        }
    }

    /// Leaves a hold to expire: it is renewed no more, and its guards are told that it is lost.
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

    /// A request was answered.
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
                // Before the end is remembered: on a replica that took over, the member may wait
                // still. Then its own release hands it the lock, and this answer tells of that.
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
                // A member that was served has left before, and its run goes on.
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

    /// The store did not confirm the write of a renewal. The `answer` to the renewal, if there is
    /// one, names the members that are not held at all.
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

    /// A request failed; whether it ran is for the error to say.
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
            // Its caller asks again, or gives the hold back.
            Command::Reduce { member, .. } => self.run_cut(member, Err(error), self.now),
            Command::ForceRelease { .. } | Command::Inspect { .. } => {}
        }
    }

    /// The server says something without having been asked.
    pub fn heard(&mut self, event: Event) {
        match event {
            Event::Granted { token, grants } => {
                // An unknown one has left, and its leave gives the lock on.
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

    /// The lock that a message grants, if one of its members is still known.
    pub fn lock_of(&self, event: &Event) -> Option<&LockName> {
        let known = |number: &u64| Some(&self.table.get(*number)?.lock);
        match event {
            Event::Granted { grants, .. } => grants.iter().find_map(|(number, _)| known(number)),
            Event::GrantedRun { numbers, .. } => numbers.iter().find_map(known),
            _ => None,
        }
    }

    /// The state of the connections has changed, or one of them is new.
    pub fn linked(&mut self, commands: Link, subscription: Link) {
        let now = self.now;
        self.commands = commands;
        self.subscription = subscription;
        if self.commands.is_up() {
            // It may lead to a server that has forgotten everything.
            self.renew_all = Some((0, now));
            self.recent_releases.reconnected();
        }
        let is_up = self.is_up();
        for lane in 0..self.table.lanes().len() as u16 {
            let is_parked = !self.table.lane(lane).parked.is_empty();
            let traffic = self.table.traffic(lane);
            if !is_up {
                // Nothing is sent until they are back.
                traffic.retry_at = None;
            } else if is_parked {
                (traffic.pause, traffic.retry_at) = (attempts::FIRST_RETRY, Some(now));
            }
        }
        if is_up {
            self.check_lines();
            // A revocation may be among the missed messages. All that was sent so far is doubted.
            self.doubt = now + Duration::from_micros(1);
        }
    }

    // Questions of others.

    /// The numbers of entries, by their kind.
    pub fn counts(&self) -> Counts {
        *self.table.counts()
    }

    /// The moment at which a request last succeeded.
    pub fn last_success(&self) -> Moment {
        self.last_success
    }

    /// The time between the last answer and its request; zero before the first answer.
    pub fn round_trip(&self) -> Duration {
        self.round_trip
    }
}
