//! This node's attempts and holds, and their states.

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

/// How long a leaving member is reported to the server. After that, the server has expired the
/// member.
pub(super) const GIVE_UP: Duration = Duration::from_secs(15);
/// A failed leave is repeated after this time, then after twice this time, and so on.
pub(super) const LEAVE_RETRY_MS: u32 = 100;

/// A hold's mirror, read by guards without the table; written whenever the table changes.
pub trait Mirror: Clone + Default {
    /// The hold is certain until then, unless extended. `is_answered`: whether the last renewal got
    /// a response.
    fn certain_until(&self, until: Moment, is_answered: bool);

    /// The hold has ended without a release.
    fn lose(&self);

    /// The server has queued the attempt behind `ahead` others.
    fn queued(&self, ahead: u64);

    /// The hold passed to another batch member. Reports whether the server still had it at the
    /// release, or why this is unknown.
    fn returned(&self, outcome: Result<Released, StoreError>);
}

impl Mirror for () {
    fn certain_until(&self, _until: Moment, _is_answered: bool) {}

    fn lose(&self) {}

    fn queued(&self, _ahead: u64) {}

    fn returned(&self, _outcome: Result<Released, StoreError>) {}
}

/// A member's state on the server, as known to this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Not sent yet: the acquire waits for its turn, or behind a fence.
    Unsent,
    /// The acquire is in flight.
    Asking {
        /// Why the store did not respond the last time.
        error: Option<StoreError>,
        /// Whether a poke came before the attempt was known to be queued.
        poked: bool,
    },
    /// Backing off after a store error; retried later.
    Parked { error: StoreError },
    /// Queued.
    Waiting,
    /// Granted as a batch hold, stored on the server under this member id; a renewal must confirm
    /// it first. The attempt itself continues under the next id.
    ConfirmingRun,
    /// A confirmed batch hold, while the members are served.
    Serving(Lease),
    /// Granted in a batch, and served after the earlier members.
    InRun,
    /// Granted, but in doubt or about to expire: a renewal must confirm it first.
    Confirming { token: FencingToken, handed_over: bool },
    /// Granted, and the caller has not taken it yet. Not renewed: a caller that never comes costs
    /// the others a claim.
    Offered(Lease),
    /// The offer was not taken in time: acquired again once the caller comes.
    Missed,
    /// Held by a guard.
    Held(Lease),
    /// Released: the request is in flight, or due.
    Releasing { due: Option<Moment> },
    /// Given up: leaves the queue or the hold, until the server acknowledges it or has expired the
    /// member.
    Leaving { due: Option<Moment>, pause_ms: u32, give_up: Moment },
    /// Lost, but the guard still exists.
    Lost { since: Moment },
    /// Leaked: kept by the server until the lease expires there.
    Leaked { until: Moment },
    /// No longer on the server.
    Over,
}

/// An attempt's caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// Waiting to be woken.
    Waits,
    /// Woken, to find this refusal.
    Refused(Refusal),
    /// Has the guard, or is gone.
    Gone,
}

/// Why an attempt ended without a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The lock is taken, and the attempt must not wait.
    Busy,
    /// The queue has reached the attempt's limit; this many wait.
    Full(u64),
    /// Another refusal by the node or the server.
    Kind(LockErrorKind),
    /// A store error.
    Store(StoreError),
}

/// An attempt's request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The requested lock.
    pub lock: LockName,
    /// The options for waiting and holding.
    pub options: Terms,
    /// Whether the attempt may queue.
    pub mode: Mode,
    /// The human-readable label.
    pub label: Label,
    /// The requested part of the lock.
    pub demand: Demand,
}

#[derive(Debug, Clone)]
pub(super) struct Entry<P> {
    pub(super) lock: LockName,
    /// The lock's lane. Set by the table.
    pub(super) lane: u16,
    pub(super) member: Member,
    pub(super) options: Terms,
    pub(super) mode: Mode,
    pub(super) state: State,
    pub(super) caller: Caller,
    /// Whether a copy of the acquire got no response and may still run.
    pub(super) ambiguous: bool,
    /// Whether the grant arrived before the response to the acquire. A proxy that runs requests
    /// twice may still run a copy before it forwards the response.
    pub(super) unanswered: bool,
    /// When that response arrived. Until then a copy may have queued the member again.
    pub(super) answered: Option<Moment>,
    /// Whether the member may have held in a batch hold that expired before this node learned of
    /// it: a late message may report this hold. A response cannot: the reported hold lasts from the
    /// request on for the stated time.
    pub(super) unheard: bool,
    /// When the server last reported a force-release of the member's hold, or when the batch was
    /// cut short. The response to an earlier request may be older and still report this hold; so
    /// may any message.
    pub(super) revoked: Option<Moment>,
    /// A time when the member was known not to hold: an unsolicited grant is newer.
    pub(super) anchor: Moment,
    pub(super) started: Moment,
    /// Whether the member leaves once more after another server has taken over, although the end
    /// was known before.
    pub(super) leaves_again: bool,
    /// Whether an unserved fast acquire may have made the member the holder. The script's response
    /// decides.
    pub(super) may_hold: bool,
    /// The attempts behind this fast acquire, while it is in flight: see `fence`. The table
    /// releases them when the state changes.
    pub(super) fence: Option<BTreeSet<u64>>,
    /// Whether the attempt is unsent because a fast acquire for the lock is in flight: see `fence`.
    pub(super) is_fenced: bool,
    pub(super) mirror: P,
}

/// An entry's index keys in the table; a function of the entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IndexKeys {
    /// When a hold, an offer or a leak ends by itself.
    pub(super) end: Option<Moment>,
    /// When the renewal is due.
    pub(super) renew: Option<Moment>,
    /// When the release is due.
    pub(super) release: Option<Moment>,
    /// When the leave is due.
    pub(super) leave: Option<Moment>,
    pub(super) waits_in_line: bool,
    /// Whether the acquire is sent in turn.
    pub(super) is_unsent: bool,
    /// Whether the acquire is sent once the lock's fast acquire has a response.
    pub(super) is_fenced: bool,
    /// Whether the acquire is in flight or unsent.
    pub(super) is_asked_for: bool,
    pub(super) is_parked: bool,
    pub(super) class: Option<Class>,
}

/// The counter for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Attempt,
    Hold,
    GivenBack,
}

impl<P: Mirror> Entry<P> {
    /// Creates an attempt that begins now: not sent yet, with a waiting caller.
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

    /// Returns whether an acquire copy may run after the release or leave.
    pub(super) fn may_run_again(&self) -> bool {
        self.ambiguous || self.unanswered
    }

    /// Returns whether an acquire copy may have run after a request sent at this moment.
    pub(super) fn may_be_back_since(&self, sent: Moment) -> bool {
        self.answered.is_some_and(|answered| sent < answered)
    }

    /// Records that the response to a request sent then reports the member as waiting. If a claim
    /// fits between this and the time it was last known not to hold, the member may have held in a
    /// batch hold that expired, and be queued again. A message about this hold may still be in
    /// flight.
    pub(super) fn found_waiting(&mut self, sent: Moment, now: Moment) {
        self.unheard |= lease::certain_until(self.anchor, lease::claim(&self.options)) <= now;
        self.anchor = self.anchor.max(sent);
    }

    /// Returns whether a hold reported by a request of this moment may have been force-released
    /// since.
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
            // A second grant may arrive during the confirmation.
            waits_in_line: matches!(self.state, State::Waiting | State::Confirming { .. }),
            is_unsent: matches!(self.state, State::Unsent) && !self.is_fenced,
            is_fenced: matches!(self.state, State::Unsent) && self.is_fenced,
            is_asked_for: matches!(self.state, State::Unsent | State::Asking { .. }),
            is_parked: matches!(self.state, State::Parked { .. }),
            class,
        }
    }

    /// Returns when an offer expires.
    pub(super) fn lapses_at(&self, lease: &Lease) -> Moment {
        let claim = lease.since + lease::claim(&self.options);
        claim.min(lease.notice_at(&self.options))
    }

    /// Returns the state for leaving at once, with retries until the server has expired the member.
    pub(super) fn leaving(&self, now: Moment) -> State {
        let give_up = now + self.options.lease.max(GIVE_UP);
        State::Leaving { due: Some(now), pause_ms: LEAVE_RETRY_MS, give_up }
    }

    /// Takes out the caller together with the mirror by which the caller is woken.
    pub(super) fn take_caller(&mut self) -> (Caller, P) {
        (std::mem::replace(&mut self.caller, Caller::Gone), std::mem::take(&mut self.mirror))
    }

    /// Returns the state for a member no longer on the server. Usually over, but a copy of the
    /// acquire may still run there and must meet a tombstone, or may have run since the hold was
    /// force-released and queued the member again: then the member leaves.
    pub(super) fn gone(&self, now: Moment) -> State {
        match self.may_run_again() || self.answered.is_some() {
            true => self.leaving(now),
            false => State::Over,
        }
    }

    pub(super) fn is_attempt(&self) -> bool {
        self.index_keys().class == Some(Class::Attempt)
    }

    /// Returns whether the table can drop the entry.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over) && !matches!(self.caller, Caller::Refused(_))
    }

    /// Sets the refusal for the caller, if any. Returns whether the caller must be woken.
    #[must_use]
    pub(super) fn set_refusal(&mut self, refusal: Refusal) -> bool {
        let waits = self.caller == Caller::Waits;
        if waits {
            self.caller = Caller::Refused(refusal);
        }
        waits
    }

    /// Writes the mirror for the guards.
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
