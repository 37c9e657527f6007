//! Every attempt and hold of one node, as one table without I/O: events go in with the time at
//! which they happen, and what is to be done about them comes out.
//!
//! # Implementation notes
//!
//! - *Ambiguity.* An acquire that was not answered may still run. Its member is never simply
//!   forgotten: it is asked for again, or leaves with a tombstone.
//! - *Anchor.* A lease is counted from the moment at which its request was sent. A grant that comes
//!   as a message has no request; it is younger than the last answer that found the member waiting,
//!   so it is counted from the request of that answer. Unless two copies of its acquire may have
//!   run: then the message may tell of a grant that has lapsed since, and a renewal says what is
//!   held.
//! - *Claim and confirming.* A hold that is handed over lasts a claim. One with less than half of
//!   it left is renewed before its guard is handed out, so that no guard begins with its end.
//! - *Doubt.* A server whose clock ran ahead has ended leases earlier than is thought here. What
//!   was asked for before is renewed: holds at once, grants before they are handed out.
//! - *Lines.* Waiting members of one lock are touched together, in time and after every
//!   interruption. Messages only save time: whatever is lost, the next touch asks the server and
//!   acts on what it says.
//! - *Places lost.* A member that the server no longer knows is never used again, or a late grant
//!   of its old place would be taken for a new one: its attempt goes on in the next round, with a
//!   new number, at the tail.
//! - *Order.* Effects run outside the table, so those of two events may overtake each other. No two
//!   requests of one member are on their way whose order matters: a leave waits for the answer of
//!   its acquire, and a release may overtake a renewal, whose answer then means nothing.

mod attempts;
mod clocks;
mod closing;
mod due;
mod gone;
mod grants;
mod holds;
mod lines;
#[cfg(feature = "unstable-internals")]
mod projection;
mod releases;
mod table;
#[cfg(test)]
mod tests;

#[cfg(feature = "unstable-internals")]
pub use projection::{Due, Phase};

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use self::grants::Source;
use super::effect::{Ask, Effect, Note};
use super::entry::{Caller, Entry, Refusal, Request, Seat, State};
use super::moment::Moment;
use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::member::{Member, NodeId};
use crate::store::protocol::{Answer, Command};
use crate::store::{Event, Leaving, Link, Mode, Renewed};
use crate::token::FencingToken;

/// A member's number is its attempt's, and in the lowest bits how often the attempt lost its place.
const ROUND_BITS: u32 = 20;
/// Most events of one kind that are handled at once: others want the table too.
const MAX_AT_ONCE: usize = 256;
const TOO_MANY_AT_ONCE: &str =
    "too many acquires of this Locks at once: this one was not sent within the request timeout";

/// What a core is told once.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Renew a grant that came as a message before it is handed out.
    pub confirm_grants: bool,
    /// A grant or a renewal counts once so many replicas have it; 0 asks none.
    pub replicas: u32,
    /// Queues are shared with JVMs.
    pub peers: bool,
    /// Most releases, leaves and repetitions on their way at once, each of which is a script: a
    /// time-out is to measure the server, not our own queue there.
    pub window: usize,
    /// Most acquires of callers on their way at once, for the same reason; the others are sent in
    /// the order in which they came.
    pub acquires: usize,
    /// Where the spread of what would otherwise be due together comes from; none if zero.
    pub seed: u64,
}

/// The attempts of this node that wait for one lock.
#[derive(Debug, Clone)]
struct Line {
    numbers: BTreeSet<u64>,
    period: Duration,
    due: Moment,
    /// When it was last touched as a whole.
    touched: Moment,
}

/// How many there are of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Attempts that wait for their outcome.
    pub attempts: usize,
    /// Holds with a guard, and offers.
    pub holds: usize,
    /// Holds and places that the server is still to be told of.
    pub given_back: usize,
    /// Those that were given up untold, since the start.
    pub failed: usize,
    /// Places lost since the start.
    pub places_lost: u64,
}

/// What an attempt's caller finds.
#[derive(Debug)]
pub enum Outcome {
    /// Not there yet: the caller is woken.
    Waits,
    /// The lock; the caller has it from now on.
    Granted {
        /// The member's number.
        number: u64,
        /// Of this hold.
        token: FencingToken,
        /// When the hold began.
        since: Moment,
    },
    /// No lock.
    Refused(Refusal),
}

/// All attempts and holds of a node. `P` is what the driver hangs on each.
#[derive(Debug, Clone)]
pub struct Core<P> {
    node: NodeId,
    rules: Rules,
    entries: BTreeMap<u64, Entry<P>>,
    lines: BTreeMap<LockName, Line>,
    ends: BTreeSet<(Moment, u64)>,
    renewals: BTreeSet<(Moment, u64)>,
    /// Releases and leaves.
    sends: BTreeSet<(Moment, u64)>,
    touches: BTreeSet<(Moment, LockName)>,
    unsent: BTreeSet<u64>,
    parked: BTreeSet<u64>,
    retry_at: Option<Moment>,
    pause: Duration,
    /// Lines behind this one are touched if they were not since then: messages may have been
    /// missed.
    recheck: Option<(Bound<LockName>, Moment)>,
    /// Holds behind this one are renewed if they were not since then: the server may have forgotten
    /// them.
    renew_all: Option<(u64, Moment)>,
    commands: Link,
    subscription: Link,
    counts: Counts,
    next_attempt: u64,
    /// Acquires of callers that are on their way,
    asking: usize,
    /// leaves, releases in the background, repetitions,
    on_their_way: usize,
    /// and what goes out many to a script, and waits for none of them: renewals,
    renewing: usize,
    /// and touches, by their weight.
    touching: usize,
    last_success: Moment,
    answered: Option<clocks::Answered>,
    gone: gone::Gone,
    /// What was asked for before this may last shorter than is thought here.
    doubt: Moment,
    is_closed: bool,
}

type Effects<P> = Vec<Effect<P>>;

impl<P: Seat> Core<P> {
    /// An empty table.
    pub fn new(node: NodeId, rules: Rules) -> Self {
        Self {
            node,
            rules,
            entries: BTreeMap::new(),
            lines: BTreeMap::new(),
            ends: BTreeSet::new(),
            renewals: BTreeSet::new(),
            sends: BTreeSet::new(),
            touches: BTreeSet::new(),
            unsent: BTreeSet::new(),
            parked: BTreeSet::new(),
            retry_at: None,
            pause: attempts::FIRST_RETRY,
            recheck: None,
            renew_all: None,
            commands: Link::Up,
            subscription: Link::Up,
            counts: Counts::default(),
            next_attempt: 1,
            asking: 0,
            on_their_way: 0,
            renewing: 0,
            touching: 0,
            last_success: Moment::default(),
            answered: None,
            gone: gone::Gone::default(),
            doubt: Moment::default(),
            is_closed: false,
        }
    }

    // What callers do.

    /// An attempt begins; its caller sends the acquire, unless others come first or it is parked.
    /// Nothing if the node is closed.
    pub fn begin(&mut self, now: Moment, request: Request, seat: P) -> Option<(u64, Option<Ask>)> {
        if self.is_closed {
            return None;
        }
        let attempt = self.next_attempt;
        self.next_attempt += 1;
        let number = attempt << ROUND_BITS;
        let Request { lock, options, mode, label, demand } = request;
        let (node, lease_ms) = (&self.node, options.lease_ms());
        let member = match demand {
            None => Member::new(node, number, lease_ms, &label),
            Some(demand) => Member::sharing(node, number, lease_ms, demand, &label),
        };
        let is_next = self.unsent.is_empty() && self.may_ask();
        let state = match is_next {
            true => State::Asking { error: None, poked: false },
            false => State::Unsent,
        };
        self.insert(
            number,
            Entry {
                lock,
                member,
                options,
                mode,
                state,
                caller: Caller::Waits,
                ambiguous: false,
                unanswered: false,
                revoked: None,
                anchor: now,
                started: now,
                seat,
            },
        );
        let ask = is_next.then(|| self.ask(now, number)).flatten();
        Some((attempt, ask))
    }

    /// What has become of an attempt. A grant is its caller's from now on.
    pub fn take(&mut self, now: Moment, attempt: u64, fx: &mut Effects<P>) -> Outcome {
        let Some(number) = self.current(attempt) else {
            return Outcome::Refused(Refusal::Kind(LockErrorKind::Closed));
        };
        let Some(entry) = self.entries.get(&number) else { return Outcome::Waits };
        match &entry.state {
            State::Offered(lease) if now >= entry.lapses_at(lease) => {
                self.miss(now, number, fx);
                self.take(now, attempt, fx)
            }
            State::Offered(lease) => {
                let mut lease = lease.clone();
                lease.doubted(now, self.doubt);
                let (token, since) = (lease.token, lease.since);
                self.change(number, |entry| {
                    entry.state = State::Held(lease);
                    entry.caller = Caller::Gone;
                });
                Outcome::Granted { number, token, since }
            }
            State::Missed => {
                self.ask_in_background(now, number, fx);
                Outcome::Waits
            }
            _ => {
                let told = self.change(number, |entry| {
                    match std::mem::replace(&mut entry.caller, Caller::Gone) {
                        Caller::Told(refusal) => Some(refusal),
                        caller => {
                            entry.caller = caller;
                            None
                        }
                    }
                });
                told.flatten().map_or(Outcome::Waits, Outcome::Refused)
            }
        }
    }

    /// The caller of an attempt has gone, or its time is up. Nothing of it stays behind. Returns
    /// what kept it from being answered, if it was neither the lock nor its caller: the store was
    /// unavailable, or it was never sent.
    pub fn cancel(&mut self, now: Moment, attempt: u64, fx: &mut Effects<P>) -> Option<StoreError> {
        let number = self.current(attempt)?;
        let entry = self.entries.get(&number)?;
        let unanswered = match &entry.state {
            // The server has answered others meanwhile: this one was not sent for want of room.
            State::Unsent if entry.mode == Mode::Try && self.last_success > entry.started => {
                Some(StoreError::refused(LockErrorKind::QueueFull, TOO_MANY_AT_ONCE))
            }
            // One without an answer for a whole request timeout was parked with that error.
            State::Asking { error, .. } => error.clone().or_else(|| self.disconnected()),
            State::Parked { error } => Some(error.clone()),
            State::Unsent | State::Waiting | State::Confirming { .. } => self.disconnected(),
            _ => None,
        };
        self.change(number, |entry| entry.caller = Caller::Gone);
        self.withdraw(now, number, fx);
        unanswered
    }

    /// Why no command gets through; none while the connection stands, however slow the server is.
    fn disconnected(&self) -> Option<StoreError> {
        match &self.commands {
            Link::Up => None,
            Link::Down { reason } => {
                Some(StoreError::refused(LockErrorKind::Unavailable, Arc::clone(reason)))
            }
        }
    }

    /// A guard is given back, by a caller that sends the request itself. Nothing if it was taken
    /// away before.
    pub fn release(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) -> Option<Ask> {
        self.begin_release(now, number, None, fx).then(|| self.release_request(now, number, false))
    }

    /// A guard was dropped: its hold is given back in the background.
    pub fn dropped(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        self.begin_release(now, number, Some(now), fx);
    }

    /// A hold is to end by itself. Returns until when it is certain.
    pub fn leak(&mut self, now: Moment, number: u64, fx: &mut Effects<P>) {
        let Some(entry) = self.entries.get(&number) else { return };
        if !matches!(entry.state, State::Held(_) | State::Lost) {
            return;
        }
        let seat = entry.seat.clone();
        self.change(number, |entry| {
            entry.state = State::Leaked { until: now + 2 * entry.options.lease };
        });
        fx.push(Effect::TellLost(seat));
    }

    // What the store says.

    /// A request was answered.
    pub fn replied(&mut self, now: Moment, ask: &Ask, answer: &Answer, fx: &mut Effects<P>) {
        self.arrived(ask);
        self.last_success = now;
        self.compare_clocks(now, ask, answer, fx);
        match (&ask.command, answer) {
            (Command::Acquire { member, .. }, Answer::Acquired(reply)) => {
                self.pause = attempts::FIRST_RETRY;
                self.acquired(now, ask, member, reply, fx);
                self.absorb(now, ask, reply, fx);
            }
            (Command::Release { member }, Answer::Released(reply)) => {
                let number = self.end(member);
                // Before the end is remembered: on a replica that took over, the member may wait
                // still. Then its own release hands it the lock, and this answer tells of that.
                self.absorb(now, ask, reply, fx);
                self.remember_gone(now, number, &ask.lock, member);
            }
            (Command::Renew { member }, Answer::Renewed(reply)) => {
                self.renewed(now, ask, member, reply, fx);
            }
            (Command::Touch { members }, Answer::Touched(reply)) => {
                self.absorb(now, ask, reply, fx);
                self.touched(now, ask, members, reply, fx);
            }
            (Command::Leave { leaving }, Answer::Left(reply)) => {
                self.absorb(now, ask, reply, fx);
                for Leaving { member, .. } in leaving {
                    let number = self.end(member);
                    self.remember_gone(now, number, &ask.lock, member);
                }
            }
            (Command::Downgrade { member }, Answer::Renewed(reply)) => {
                self.downgraded(now, member, reply, fx);
                self.absorb(now, ask, reply, fx);
            }
            (Command::ForceRelease, Answer::Released(reply)) => {
                self.absorb(now, ask, reply, fx);
            }
            _ => {}
        }
    }

    /// A renewal was answered, and so many replicas have it.
    pub fn confirmed(
        &mut self,
        now: Moment,
        ask: &Ask,
        (answer, replicas): (&Answer, u32),
        fx: &mut Effects<P>,
    ) {
        let wanted = self.rules.replicas;
        match (&ask.command, answer) {
            (Command::Renew { member }, Answer::Renewed(reply))
                if replicas < wanted && reply.outcome == Renewed::Held =>
            {
                self.arrived(ask);
                self.last_success = now;
                self.unacknowledged(now, member, replicas, fx);
            }
            _ => self.replied(now, ask, answer, fx),
        }
    }

    /// A request failed; whether it ran is for the error to say.
    pub fn unanswered(&mut self, now: Moment, ask: &Ask, error: &StoreError, fx: &mut Effects<P>) {
        self.arrived(ask);
        match &ask.command {
            Command::Acquire { member, .. } => self.acquire_failed(now, member, error, fx),
            Command::Release { member } => {
                self.leave_failed(now, member, &ask.lock, error, fx);
            }
            Command::Leave { leaving } => {
                for Leaving { member, .. } in leaving {
                    self.leave_failed(now, member, &ask.lock, error, fx);
                }
            }
            Command::Renew { member } => self.renewal_failed(now, member, error, fx),
            Command::Touch { .. } => {
                let lock = ask.lock.clone();
                self.touch_by(&lock, now + lines::TOUCH_RETRY);
                fx.push(Effect::Observe(Note::TouchFailed { lock, error: error.clone() }));
            }
            // Its caller asks again, or gives the hold back.
            Command::Downgrade { .. } | Command::ForceRelease | Command::Inspect => {}
        }
    }

    /// The server says something without having been asked.
    pub fn heard(&mut self, now: Moment, event: Event, fx: &mut Effects<P>) {
        match event {
            Event::Granted { member, token, left_ms } => {
                // An unknown one has left, and its leave gives the lock on.
                if let Some(number) = self.number(&member) {
                    self.granted(now, number, token, left_ms, Source::Message, fx);
                }
            }
            Event::Revoked { member } => {
                if let Some(number) = self.known(&member) {
                    self.revoked(now, number, fx);
                }
            }
            Event::GrantedSeveral { token, grants } => {
                for (number, left_ms) in grants {
                    self.granted(now, number, token, left_ms, Source::Message, fx);
                }
            }
            Event::RevokedSeveral { numbers } => {
                for number in numbers {
                    if self.entries.contains_key(&number) {
                        self.revoked(now, number, fx);
                    }
                }
            }
            Event::Poked { member } => self.poked(now, &member, fx),
            Event::Resubscribed => self.check_lines(now),
        }
    }

    /// The state of the connections has changed, or one of them is new.
    pub fn linked(&mut self, now: Moment, commands: Link, subscription: Link) {
        let was_up = self.commands.is_up() && self.subscription.is_up();
        (self.commands, self.subscription) = (commands, subscription);
        if self.commands.is_up() {
            // It may lead to a server that has forgotten everything.
            self.renew_all = Some((0, now));
            self.gone.reconnected();
        }
        if !self.is_up() {
            // Their return is what to wait for.
            self.retry_at = None;
            return;
        }
        self.check_lines(now);
        // A revocation may be among the missed messages. All that was sent so far is doubted.
        self.doubt = now + Duration::from_micros(1);
        if !was_up && !self.parked.is_empty() {
            self.retry_at = Some(now);
        }
    }

    // What others ask.

    /// How many there are of what.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// When a request last succeeded.
    pub fn last_success(&self) -> Moment {
        self.last_success
    }
}
