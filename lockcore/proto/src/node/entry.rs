//! One attempt or hold of this node, and its state.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::demand::Demand;
use crate::error::{LockErrorKind, StoreError};
use crate::member::{Label, Member};
use crate::name::LockName;
use crate::node::lease::{self, Lease};
use crate::node::moment::Moment;
use crate::terms::Terms;
use crate::token::FencingToken;
use crate::{Mode, Released};

/// The time for which the server is told of a member that left. By then its own expiry has removed
/// it.
pub(super) const GIVE_UP: Duration = Duration::from_secs(15);
/// A leave that failed is repeated after this time, then twice that, and so on.
pub(super) const LEAVE_RETRY_MS: u32 = 100;

/// The mirror of a hold that guards read without asking the table; written whenever the table
/// changes.
pub trait Mirror: Clone + Default {
    /// The hold is certain until then, if nothing extends it. `is_answered`: the last renewal was.
    fn certain_until(&self, until: Moment, is_answered: bool);

    /// The hold is over without having been released.
    fn lose(&self);

    /// The server has queued the attempt behind so many others.
    fn queued(&self, ahead: u64);

    /// The hold is another member's of the same run. Tells whether the server still had it when it
    /// was given back, or why that is not known.
    fn returned(&self, outcome: Result<Released, StoreError>);
}

impl Mirror for () {
    fn certain_until(&self, _until: Moment, _is_answered: bool) {}

    fn lose(&self) {}

    fn queued(&self, _ahead: u64) {}

    fn returned(&self, _outcome: Result<Released, StoreError>) {}
}

/// The state of a member on the server, as far as this node knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Not sent yet: as many as may be are on their way.
    Unsent,
    /// On its way to the server.
    Asking {
        /// The reason why the store could not answer the last time.
        error: Option<StoreError>,
        /// Whether the attempt was told to come before it was known to wait.
        poked: bool,
    },
    /// The store could not answer, and will be asked again.
    Parked { error: StoreError },
    /// Queued.
    Waiting,
    /// The server has granted a hold to a run of several members, and has it in the name of this
    /// one; a renewal is on its way first. The attempt itself goes on under the next number.
    ConfirmingRun,
    /// The same, and its members are served.
    Serving(Lease),
    /// Granted with others as one hold, and served after those before it.
    InRun,
    /// Granted, but with so little left that a renewal is on its way first.
    Confirming { token: FencingToken, handed_over: bool },
    /// Granted, and its caller has not come for it yet. Not renewed: a caller that never comes
    /// costs the others a claim.
    Offered(Lease),
    /// The offer was not taken in time: asked for again once the caller comes.
    Missed,
    /// A guard has it.
    Held(Lease),
    /// Released: the request is on its way, or due.
    Releasing { due: Option<Moment> },
    /// Given up: to be taken out, waiting or holding, until the server knows or has expired it.
    Leaving { due: Option<Moment>, pause_ms: u32, give_up: Moment },
    /// Lost, and its guard is still there.
    Lost { since: Moment },
    /// Kept by the server until its lease ends there.
    Leaked { until: Moment },
    /// Gone from the server.
    Over,
}

/// The caller that waits for the end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// Waits to be woken.
    Waits,
    /// Was woken, and finds this refusal.
    Refused(Refusal),
    /// Has its guard, or went away.
    Gone,
}

/// The reason why an attempt ends without a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Taken, and the attempt was not to wait.
    Busy,
    /// The queue is as long as the attempt allows, or longer: so many wait.
    Full(u64),
    /// Another refusal of the node or the server.
    Kind(LockErrorKind),
    /// An error of the store.
    Store(StoreError),
}

/// The request of an attempt.
#[derive(Debug, Clone)]
pub struct Request {
    /// The lock that is asked for.
    pub lock: LockName,
    /// The options by which it is held and waited for.
    pub options: Terms,
    /// Whether it may queue.
    pub mode: Mode,
    /// The label, for people.
    pub label: Label,
    /// The part of the lock that is asked for.
    pub demand: Demand,
}

#[derive(Debug, Clone)]
pub(super) struct Entry<P> {
    pub(super) lock: LockName,
    /// The lane of its lock. The table sets it.
    pub(super) lane: u16,
    pub(super) member: Member,
    pub(super) options: Terms,
    pub(super) mode: Mode,
    pub(super) state: State,
    pub(super) caller: Caller,
    /// A copy of the acquire was not answered and may still run.
    pub(super) ambiguous: bool,
    /// The grant was told before the acquire was answered. A proxy that runs requests twice may
    /// still run a copy of it before it passes the answer on.
    pub(super) unanswered: bool,
    /// The moment at which the acquire was answered then. Up to this moment a copy of it may have
    /// queued the member anew.
    pub(super) answered: Option<Moment>,
    /// Whether it may have held in a run that lapsed before its node heard of it: a message may
    /// tell of that hold. An answer does not: its hold lasts from the request on for as long as it
    /// says.
    pub(super) unheard: bool,
    /// The moment at which the server last said that a hold of the member was force-released, or at
    /// which its run was cut short. The answer to a request that was sent before may be older, and
    /// still tell of that hold; so may any message.
    pub(super) revoked: Option<Moment>,
    /// A time at which the member was known not to hold: a grant that comes without having been
    /// asked for is younger.
    pub(super) anchor: Moment,
    pub(super) started: Moment,
    /// It leaves once more where another server has taken over: its end was known before.
    pub(super) leaves_again: bool,
    /// Whether a fast acquire that was not served may have made it the holder. The script's answer
    /// decides.
    pub(super) may_hold: bool,
    /// The attempts that wait behind this one, while its fast acquire is on its way: see `fence`.
    /// The table lets them pass when the state changes.
    pub(super) fence: Option<BTreeSet<u64>>,
    /// Whether it is unsent because a fast acquire of its lock is on its way: see `fence`.
    pub(super) is_fenced: bool,
    pub(super) mirror: P,
}

/// The index of an entry in the table; a function of the entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IndexKeys {
    /// The moment at which something ends by itself.
    pub(super) end: Option<Moment>,
    /// The moment at which it is renewed.
    pub(super) renew: Option<Moment>,
    /// The moment at which its release is due.
    pub(super) release: Option<Moment>,
    /// The moment at which its leave is due.
    pub(super) leave: Option<Moment>,
    pub(super) waits_in_line: bool,
    /// Whether the acquire is sent in turn.
    pub(super) is_unsent: bool,
    /// Whether it is to be sent once the fast acquire of its lock is answered.
    pub(super) is_fenced: bool,
    /// Whether its acquire is on its way, or is to be sent.
    pub(super) is_asked_for: bool,
    pub(super) is_parked: bool,
    pub(super) class: Option<Class>,
}

/// The counter to which an entry belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Attempt,
    Hold,
    GivenBack,
}

impl<P: Mirror> Entry<P> {
    /// An attempt that begins now: it is not sent yet, and its caller waits.
    pub(super) fn new(
        lock: LockName,
        member: Member,
        options: Terms,
        mode: Mode,
        now: Moment,
        mirror: P,
    ) -> Self {
        Self {
            lock,
            lane: 0,
            member,
            options,
            mode,
            state: State::Unsent,
            caller: Caller::Waits,
            ambiguous: false,
            unanswered: false,
            answered: None,
            unheard: false,
            revoked: None,
            anchor: now,
            started: now,
            leaves_again: false,
            may_hold: false,
            fence: None,
            is_fenced: false,
            mirror,
        }
    }

    /// Whether a copy of the acquire may run after the member was given back.
    pub(super) fn may_run_again(&self) -> bool {
        self.ambiguous || self.unanswered
    }

    /// Whether a copy of the acquire may have run after a request of this moment.
    pub(super) fn may_be_back_since(&self, sent: Moment) -> bool {
        self.answered.is_some_and(|answered| sent < answered)
    }

    /// The answer to a request that was sent then says that the member waits. If a claim fits in
    /// between since it was last known not to hold, it may have held in a run that lapsed, and be
    /// back in the queue. The news of that run may still be on its way.
    pub(super) fn found_waiting(&mut self, sent: Moment, now: Moment) {
        self.unheard |= lease::certain_until(self.anchor, lease::claim(&self.options)) <= now;
        self.anchor = self.anchor.max(sent);
    }

    /// Whether the hold that a request of this moment tells of may have been force-released since.
    pub(super) fn is_revoked_since(&self, sent: Moment) -> bool {
        self.revoked.is_some_and(|revoked| sent <= revoked)
    }

    pub(super) fn index_keys(&self) -> IndexKeys {
        let class = match self.state {
            State::Unsent
            | State::Asking { .. }
            | State::Parked { .. }
            | State::Waiting
            | State::Confirming { .. }
            | State::InRun
            | State::Missed => Some(Class::Attempt),
            State::Offered(_) | State::Held(_) => Some(Class::Hold),
            State::Releasing { .. } | State::Leaving { .. } => Some(Class::GivenBack),
            State::ConfirmingRun
            | State::Serving(_)
            | State::Lost { .. }
            | State::Leaked { .. }
            | State::Over => None,
        };
        IndexKeys {
            end: match &self.state {
                State::Offered(lease) => Some(self.lapses_at(lease)),
                State::Held(lease) | State::Serving(lease) => Some(lease.notice_at(&self.options)),
                State::Leaked { until } => Some(*until),
                _ => None,
            },
            renew: match &self.state {
                State::Held(lease) | State::Serving(lease) => lease.renew_at,
                _ => None,
            },
            release: match &self.state {
                State::Releasing { due } => *due,
                _ => None,
            },
            leave: match &self.state {
                State::Leaving { due, .. } => *due,
                _ => None,
            },
            // A grant may be told to it once more while it is confirmed.
            waits_in_line: matches!(self.state, State::Waiting | State::Confirming { .. }),
            is_unsent: matches!(self.state, State::Unsent) && !self.is_fenced,
            is_fenced: matches!(self.state, State::Unsent) && self.is_fenced,
            is_asked_for: matches!(self.state, State::Unsent | State::Asking { .. }),
            is_parked: matches!(self.state, State::Parked { .. }),
            class,
        }
    }

    /// The moment until which an offer stands.
    pub(super) fn lapses_at(&self, lease: &Lease) -> Moment {
        let claim = lease.since + lease::claim(&self.options);
        claim.min(lease.notice_at(&self.options))
    }

    /// The state in which it is taken out, at once and until its own expiry has done it.
    pub(super) fn leaving(&self, now: Moment) -> State {
        let give_up = now + self.options.lease.max(GIVE_UP);
        State::Leaving { due: Some(now), pause_ms: LEAVE_RETRY_MS, give_up }
    }

    /// Takes the caller out, with the mirror by which it is woken: they go together.
    pub(super) fn take_caller(&mut self) -> (Caller, P) {
        (std::mem::replace(&mut self.caller, Caller::Gone), std::mem::take(&mut self.mirror))
    }

    /// The state once nothing of it is left on the server: over, unless a copy of its acquire may
    /// still run there, which a tombstone refuses, or may have run since its hold was
    /// force-released, which has queued it anew.
    pub(super) fn gone(&self, now: Moment) -> State {
        match self.may_run_again() || self.answered.is_some() {
            true => self.leaving(now),
            false => State::Over,
        }
    }

    pub(super) fn is_attempt(&self) -> bool {
        self.index_keys().class == Some(Class::Attempt)
    }

    /// Whether the table can forget it.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over) && !matches!(self.caller, Caller::Refused(_))
    }

    /// Sets the refusal that the caller finds, if there is one. Returns whether it has to be woken.
    #[must_use]
    pub(super) fn set_refusal(&mut self, refusal: Refusal) -> bool {
        let waits = self.caller == Caller::Waits;
        if waits {
            self.caller = Caller::Refused(refusal);
        }
        waits
    }

    /// Writes the mirror that guards read.
    pub(super) fn update_mirror(&self) {
        match &self.state {
            State::Offered(lease) | State::Held(lease) => {
                self.mirror.certain_until(lease.until(), lease.is_answered);
            }
            State::Lost { .. } | State::Leaked { .. } => self.mirror.lose(),
            _ => {}
        }
    }
}
