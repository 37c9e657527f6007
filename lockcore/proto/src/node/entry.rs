//! Entries: an attempt or a hold of this node, and its state on the server as far as known here.

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

/// Minimum time for which the node repeats a leave, the request that removes a member, if the
/// server does not acknowledge it; a longer lease extends this time. By then, a hold has expired. A
/// queued member may still wait there, and leaves again when the server responds.
pub(super) const GIVE_UP: Duration = Duration::from_secs(15);
/// Milliseconds until a failed leave, the request that removes a member, is first repeated. The
/// pause doubles with each further failure.
pub(super) const LEAVE_RETRY_MS: u32 = 100;

/// The part of an attempt's state that callers and guards read without the core's mutex, such as
/// the end of the lease. The core calls these methods at every change.
pub trait Mirror: Clone + Default {
    /// Called when the lock is offered to the caller, and when the lease changes. The server keeps
    /// the hold at least until `until`, and longer if it is renewed. `is_answered` is false if the
    /// last renewal failed.
    fn certain_until(&self, until: Moment, is_answered: bool);

    /// Called when the hold is lost or leaked: it ends without a release.
    fn lose(&self);

    /// Called when the server has queued the attempt. `ahead` is the number of other waiters ahead.
    fn queued(&self, ahead: u64);

    /// Called some time after this guard was released and left the hold to the next waiter in its
    /// batch. `outcome` states whether the server still had the hold at that time, or the error
    /// because of which this is unknown.
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
    /// The acquire has not been sent. The next tick sends it, as soon as the limit on requests in
    /// flight permits, unless it waits behind another attempt's fast acquire (without a script).
    Unsent,
    /// The acquire is in flight.
    Asking {
        /// If this is a retry, the error of the previous acquire.
        error: Option<StoreError>,
        /// True if the server's message that the lock may be free has already arrived. The waiter
        /// is then touched, to ask for its state, as soon as the response arrives.
        poked: bool,
    },
    /// The acquire failed with this store error, and is sent again after a pause.
    Parked { error: StoreError },
    /// The member waits in the queue on the server.
    Waiting,
    /// The entry is no longer an attempt, but the hold of a batch, which a renewal must confirm
    /// before the first member gets the lock. The server stores the hold under this member id, so
    /// the first member's attempt continues under the next id.
    ConfirmingBatch,
    /// The entry is the hold of a batch, granted and, if necessary, confirmed. The members of the
    /// batch have the lock in turn.
    Serving(Lease),
    /// The member was granted the lock together with others, as a batch, and its turn has not come
    /// yet.
    InBatch,
    /// The lock was granted, but a renewal must confirm the hold first, because it is about to
    /// expire or may have ended already. `handed_over` is true if the grant arrived as a message.
    Confirming { token: FencingToken, handed_over: bool },
    /// The lock was granted, and the caller was woken but has not taken it yet. Such a hold is not
    /// renewed, so a caller who never comes delays the other waiters only for a short time.
    Offered(Lease),
    /// The caller did not take the offered lock in time, so it was released under the attempt's
    /// previous member id. The lock is requested again once the caller comes.
    Missed,
    /// A guard has the hold.
    Held(Lease),
    /// The hold is being released: the request is sent at `due`, or is in flight if `due` is
    /// `None`. `since` is when a caller got the hold; `None` if no caller took it.
    Releasing { due: Option<Moment>, since: Option<Moment> },
    /// The member was given up. Leaves, requests that remove it from the server, are sent until one
    /// is acknowledged, or until one fails after `give_up`. The next leave is sent at `due`, or is
    /// in flight if `due` is `None`; if it fails, it is repeated after `pause_ms`.
    Leaving { due: Option<Moment>, pause_ms: u32, give_up: Moment },
    /// The hold is lost, but its guard still exists. `since` is when the hold began.
    Lost { since: Moment },
    /// The hold was leaked. The server keeps it until the lease expires, at `until` at the latest.
    Leaked { until: Moment },
    /// The server does not have the member any more.
    Over,
}

/// Whether an attempt's caller still waits for the outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// The caller waits to be woken.
    Waits,
    /// The caller was woken, and will take this refusal.
    Refused(Refusal),
    /// The caller has taken the outcome, or is gone.
    Gone,
}

/// Why an attempt ended without a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Another holder has the lock, and the attempt must not wait.
    Busy,
    /// The queue has reached the attempt's limit. The number is the queue length.
    Full(u64),
    /// The node or the server refused the attempt for another reason, of this kind.
    Kind(LockErrorKind),
    /// The store reported this error.
    Store(StoreError),
}

/// A request to acquire a lock, as the caller makes it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The lock to acquire.
    pub lock: LockName,
    /// The options for the wait and for the hold.
    pub options: Terms,
    /// Whether the attempt waits in the queue if the lock is busy.
    pub mode: Mode,
    /// The label by which people recognize who waits or holds.
    pub label: Label,
    /// How much of the name is requested: everything, a read or permits.
    pub demand: Demand,
}

#[derive(Debug, Clone)]
pub(super) struct Entry<P> {
    pub(super) lock: LockName,
    /// The lane (server) of the lock. The table sets it.
    pub(super) lane: u16,
    pub(super) member: Member,
    pub(super) options: Terms,
    pub(super) mode: Mode,
    pub(super) state: State,
    pub(super) caller: Caller,
    /// True if an acquire of this member got an error instead of a response, so that it may still
    /// run on the server.
    pub(super) ambiguous: bool,
    /// True while the acquire is in flight although the grant has arrived already, by a message or
    /// another response. The acquire may then run a second time, because a proxy may repeat a
    /// request before it forwards the response.
    pub(super) unanswered: bool,
    /// When the response to the acquire arrived, if the grant had arrived before it; `None`
    /// otherwise. Until this time, the acquire may have run a second time and queued the member
    /// again.
    pub(super) answered: Option<Moment>,
    /// True if a message about an old hold may still be in flight: the member may have been granted
    /// the lock in a batch, and queued again after the hold expired, unnoticed here. A grant by
    /// message must then be confirmed. A grant in a response need not be, because the lease is
    /// counted from the request.
    pub(super) unheard: bool,
    /// When the server last reported a force-release of this member's hold, or when the member was
    /// last put back into the queue from a batch. Any message, and the response to a request from
    /// before this time, may still report the old hold.
    pub(super) revoked: Option<Moment>,
    /// The latest time at which the member certainly did not hold the lock. A grant that arrives as
    /// a message, without a time, is newer than this, so its lease is counted from here.
    pub(super) anchor: Moment,
    pub(super) started: Moment,
    /// The waiting members of this node with which the server shares this hold, although it began
    /// alone here: a server that took over had the member in the queue, and granted it the lock in
    /// a batch. They must keep the hold when this member releases it.
    pub(super) shares_with: Box<[u64]>,
    /// True if the member was released before, and is only removed a second time, because a server
    /// that has taken over, or did not acknowledge the release, may not know of it.
    pub(super) leaves_again: bool,
    /// True if a fast acquire (without a script) may have made the member the holder, although it
    /// reported no grant. The script that follows shows whether it did.
    pub(super) may_hold: bool,
    /// The attempts that wait for the response to this attempt's fast acquire (without a script),
    /// so that none overtakes it in the queue. `None` unless such an acquire is in flight. When the
    /// state changes, the table sends them: see `fence`.
    pub(super) fence: Option<BTreeSet<u64>>,
    /// True if the attempt is not sent before the response to another attempt's fast acquire
    /// (without a script) of the same lock: see `fence`.
    pub(super) is_fenced: bool,
    pub(super) mirror: P,
}

/// The keys under which the table indexes an entry. They are computed from the entry alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IndexKeys {
    /// When a hold, a leaked hold, or the time to take an offered lock ends; for a lost hold, when
    /// its `max_hold` ends.
    pub(super) end: Option<Moment>,
    /// When the renewal is due.
    pub(super) renew: Option<Moment>,
    /// When the release is due.
    pub(super) release: Option<Moment>,
    /// When the next leave, the request that removes the member, is due.
    pub(super) leave: Option<Moment>,
    pub(super) waits_in_line: bool,
    /// True if the acquire is sent as soon as more requests may be in flight.
    pub(super) is_unsent: bool,
    /// True if the acquire is not sent before the response to another attempt's fast acquire of the
    /// lock.
    pub(super) is_fenced: bool,
    /// True if the acquire is in flight or not sent yet.
    pub(super) is_asked_for: bool,
    pub(super) is_parked: bool,
    pub(super) class: Option<Class>,
}

/// What an entry counts as in [`Counts`](super::Counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Attempt,
    Hold,
    GivenBack,
}

impl<P: Mirror> Entry<P> {
    /// Creates the entry for an attempt that begins now. Its acquire is not sent yet, and its
    /// caller waits.
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
            shares_with: Box::default(),
            leaves_again: false,
            may_hold: false,
            fence: None,
            is_fenced: false,
            mirror,
        }
    }

    /// Returns true if the acquire may run once more after the member was released or has left,
    /// because a request with it has no response yet or got an error. The server must then store a
    /// tombstone, by which it refuses the late acquire.
    pub(super) fn may_run_again(&self) -> bool {
        self.ambiguous || self.unanswered
    }

    /// Returns true if the acquire may have run a second time, and queued the member again, after a
    /// request sent at `sent` had run.
    pub(super) fn may_be_back_since(&self, sent: Moment) -> bool {
        self.answered.is_some_and(|answered| sent < answered)
    }

    /// Records a response that reports the member as waiting, to a request sent at `sent`. If the
    /// last such report is older than a claim, a batch with this member may have been granted the
    /// lock meanwhile, and the claim may have expired. A message about that hold may still be in
    /// flight.
    pub(super) fn found_waiting(&mut self, sent: Moment, now: Moment) {
        self.unheard |= lease::certain_until(self.anchor, lease::claim(&self.options)) <= now;
        self.anchor = self.anchor.max(sent);
    }

    /// Returns true if the response to a request sent at `sent` may report an old hold: since then,
    /// the hold was force-released, or the member was put back into the queue from a batch.
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
            | State::InBatch
            | State::Missed => Some(Class::Attempt),
            State::Offered(_) | State::Held(_) => Some(Class::Hold),
            State::Releasing { .. } | State::Leaving { .. } => Some(Class::GivenBack),
            State::ConfirmingBatch
            | State::Serving(_)
            | State::Lost { .. }
            | State::Leaked { .. }
            | State::Over => None,
        };
        IndexKeys {
            end: match &self.state {
                State::Offered(lease) => Some(self.lapses_at(lease)),
                State::Held(lease) | State::Serving(lease) => Some(lease.notice_at(&self.options)),
                // A renewal may have extended the lease on the server beyond this time.
                State::Lost { since } => self.options.max_hold.map(|max_hold| *since + max_hold),
                State::Leaked { until } => Some(*until),
                _ => None,
            },
            renew: match &self.state {
                State::Held(lease) | State::Serving(lease) => lease.renew_at,
                _ => None,
            },
            release: match &self.state {
                State::Releasing { due, .. } => *due,
                _ => None,
            },
            leave: match &self.state {
                State::Leaving { due, .. } => *due,
                _ => None,
            },
            // The member is still touched during the confirmation, because a second grant may
            // arrive.
            waits_in_line: matches!(self.state, State::Waiting | State::Confirming { .. }),
            is_unsent: matches!(self.state, State::Unsent) && !self.is_fenced,
            is_fenced: matches!(self.state, State::Unsent) && self.is_fenced,
            is_asked_for: matches!(self.state, State::Unsent | State::Asking { .. }),
            is_parked: matches!(self.state, State::Parked { .. }),
            class,
        }
    }

    /// Returns the time until which the caller must take the offered lock. `lease` is the lease of
    /// the offer.
    pub(super) fn lapses_at(&self, lease: &Lease) -> Moment {
        let claim = lease.since + lease::claim(&self.options);
        claim.min(lease.notice_at(&self.options))
    }

    /// Returns the state of a member that is given up: the first leave, the request that removes it
    /// from the server, is due now.
    pub(super) fn leaving(&self, now: Moment) -> State {
        self.leaving_at(Some(now), now)
    }

    /// Returns the same state, with the first leave due at `due`; `None` if it is sent by a caller.
    pub(super) fn leaving_at(&self, due: Option<Moment>, now: Moment) -> State {
        let give_up = now + self.options.lease.max(GIVE_UP);
        State::Leaving { due, pause_ms: LEAVE_RETRY_MS, give_up }
    }

    /// Takes the caller from this entry, together with the mirror that wakes the caller.
    pub(super) fn take_caller(&mut self) -> (Caller, P) {
        (std::mem::replace(&mut self.caller, Caller::Gone), std::mem::take(&mut self.mirror))
    }

    /// Returns the state for a member that the server no longer has. This is [`State::Over`],
    /// unless the acquire may still run there, or may have run a second time and queued the member
    /// again. Then the node sends a leave, by which the server refuses the late acquire.
    pub(super) fn gone(&self, now: Moment) -> State {
        match self.may_run_again() || self.answered.is_some() {
            true => self.leaving(now),
            false => State::Over,
        }
    }

    pub(super) fn is_attempt(&self) -> bool {
        self.index_keys().class == Some(Class::Attempt)
    }

    /// Returns true if the table can drop the entry.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state, State::Over) && !matches!(self.caller, Caller::Refused(_))
    }

    /// Sets the refusal that a waiting caller will take. Returns true if there is such a caller,
    /// who must be woken.
    #[must_use]
    pub(super) fn set_refusal(&mut self, refusal: Refusal) -> bool {
        let waits = self.caller == Caller::Waits;
        if waits {
            self.caller = Caller::Refused(refusal);
        }
        waits
    }

    /// Updates the mirror, from which the guards read the state of the hold.
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
