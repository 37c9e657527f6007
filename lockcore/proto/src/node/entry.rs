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

/// How long a leave is repeated if the server does not acknowledge it. After that time, the server
/// has removed the member by itself.
pub(super) const GIVE_UP: Duration = Duration::from_secs(15);
/// Milliseconds until a failed leave is repeated. The pause doubles with each further failure.
pub(super) const LEAVE_RETRY_MS: u32 = 100;

/// A copy of a hold's state for its guards, which read it without the table's mutex. The table
/// writes it at every change.
pub trait Mirror: Clone + Default {
    /// Called when the hold is known to last until `until`, unless extended. `is_answered` is true
    /// if the last renewal got a response.
    fn certain_until(&self, until: Moment, is_answered: bool);

    /// Called when the hold has ended without a release.
    fn lose(&self);

    /// Called when the server has queued the attempt behind `ahead` other waiters.
    fn queued(&self, ahead: u64);

    /// Called after the lock has passed from this guard to the next batch member. `outcome` states
    /// whether the server still had the hold at that time, or the error why this is unknown.
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
    /// The acquire has not been sent: it waits for room, or for the fast acquire of another
    /// attempt.
    Unsent,
    /// The acquire was sent, and no response has arrived.
    Asking {
        /// The error of the previous acquire, if this is a retry.
        error: Option<StoreError>,
        /// True if the server has woken this member already, although no response has reported it
        /// as queued.
        poked: bool,
    },
    /// The acquire failed with this store error, and is sent again after a pause.
    Parked { error: StoreError },
    /// The member waits in the queue on the server.
    Waiting,
    /// The entry stands for a batch hold, which the server stores under this member id. A renewal
    /// must confirm the hold before it is used. The first member's attempt continues under the next
    /// id.
    ConfirmingBatch,
    /// The entry stands for the confirmed hold of a batch, which serves one member after the other.
    Serving(Lease),
    /// The member was granted the lock in a batch, and waits until the members before it are done.
    InBatch,
    /// The lock was granted, but the hold is in doubt or about to expire, so a renewal must confirm
    /// it first.
    Confirming { token: FencingToken, handed_over: bool },
    /// The lock was granted, and its caller was woken but has not taken it yet. The hold is not
    /// renewed. So a caller who never comes delays the other waiters only by a claim, the short
    /// lease of a handed-off lock.
    Offered(Lease),
    /// The caller did not take the granted lock in time, so it was released. The lock is acquired
    /// again once the caller comes.
    Missed,
    /// A guard has the hold.
    Held(Lease),
    /// The hold is being released: the request is in flight, or is sent at `due`.
    Releasing { due: Option<Moment> },
    /// The member was given up: leaves are sent until the server acknowledges one, or until it has
    /// removed the member by itself at `give_up`.
    Leaving { due: Option<Moment>, pause_ms: u32, give_up: Moment },
    /// The hold is lost, but its guard still exists.
    Lost { since: Moment },
    /// The hold was leaked, so the server keeps it until the lease expires there.
    Leaked { until: Moment },
    /// The server does not have the member any more.
    Over,
}

/// What an attempt's caller does.
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
    /// The node or the server refused for another reason, of this kind.
    Kind(LockErrorKind),
    /// The store reported this error.
    Store(StoreError),
}

/// A request to acquire a lock, as the caller makes it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The lock to acquire.
    pub lock: LockName,
    /// The options for the wait and the hold.
    pub options: Terms,
    /// Whether the attempt waits in the queue if the lock is busy.
    pub mode: Mode,
    /// The label that shows people who waits or holds.
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
    /// True if a copy of the acquire got no response, so that it may still run on the server.
    pub(super) ambiguous: bool,
    /// True if the grant arrived before the response to the acquire. Until then a copy may still
    /// run, because a proxy may run a request twice before it forwards the response.
    pub(super) unanswered: bool,
    /// The time when that response arrived. Before this time a copy may have queued the member
    /// again.
    pub(super) answered: Option<Moment>,
    /// True if the member may have been in a batch whose hold expired before this node learned of
    /// it. A late message may still report that hold, so a grant by message is doubted. A response
    /// cannot be so late, because a hold reported by a response lasts for the stated time from the
    /// request on.
    pub(super) unheard: bool,
    /// The time when the server last reported a force-release of this member's hold, or when the
    /// batch was cut short. The response to an earlier request may still report the old hold, and
    /// so may any message.
    pub(super) revoked: Option<Moment>,
    /// The latest time at which the member certainly did not hold the lock. A grant that arrives as
    /// a message is newer, so its lease is counted from here.
    pub(super) anchor: Moment,
    pub(super) started: Moment,
    /// True if the member leaves a second time, only because another server has taken over. Its end
    /// was known before.
    pub(super) leaves_again: bool,
    /// True if a fast acquire that could not be completed may have made the member the holder. The
    /// script's response shows whether it did.
    pub(super) may_hold: bool,
    /// The attempts that wait for this fast acquire, while it is in flight: see `fence`. The table
    /// sends them when the state changes.
    pub(super) fence: Option<BTreeSet<u64>>,
    /// True if the attempt waits for another attempt's fast acquire of the same lock: see `fence`.
    pub(super) is_fenced: bool,
    pub(super) mirror: P,
}

/// The keys under which the table indexes an entry. They depend only on the entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct IndexKeys {
    /// The time when a hold, an offer to the caller, or a leaked hold ends by itself.
    pub(super) end: Option<Moment>,
    /// The time when the renewal is due.
    pub(super) renew: Option<Moment>,
    /// The time when the release is due.
    pub(super) release: Option<Moment>,
    /// The time when the leave is due.
    pub(super) leave: Option<Moment>,
    pub(super) waits_in_line: bool,
    /// True if the acquire is sent as soon as there is room.
    pub(super) is_unsent: bool,
    /// True if the acquire is sent after the response to the fast acquire of the lock.
    pub(super) is_fenced: bool,
    /// True if the acquire is in flight or not sent yet.
    pub(super) is_asked_for: bool,
    pub(super) is_parked: bool,
    pub(super) class: Option<Class>,
}

/// The kind of an entry, by which entries are counted.
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
            leaves_again: false,
            may_hold: false,
            fence: None,
            is_fenced: false,
            mirror,
        }
    }

    /// Returns true if an acquire copy may run after the release or leave, so that a tombstone is
    /// needed.
    pub(super) fn may_run_again(&self) -> bool {
        self.ambiguous || self.unanswered
    }

    /// Returns true if an acquire copy may have queued the member again after a request sent at
    /// `sent`.
    pub(super) fn may_be_back_since(&self, sent: Moment) -> bool {
        self.answered.is_some_and(|answered| sent < answered)
    }

    /// Records that the response to a request sent at `sent` reports the member as waiting. If a
    /// claim fits between this time and the previous one, the member may meanwhile have been in a
    /// batch whose hold expired, and be queued again. A message about that hold may still be in
    /// flight.
    pub(super) fn found_waiting(&mut self, sent: Moment, now: Moment) {
        self.unheard |= lease::certain_until(self.anchor, lease::claim(&self.options)) <= now;
        self.anchor = self.anchor.max(sent);
    }

    /// Returns true if a hold reported by the response to a request sent at `sent` may have been
    /// force-released since.
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

    /// Returns the time until which the caller must take an offered lock with this lease.
    pub(super) fn lapses_at(&self, lease: &Lease) -> Moment {
        let claim = lease.since + lease::claim(&self.options);
        claim.min(lease.notice_at(&self.options))
    }

    /// Returns the state in which the member leaves at once, and repeats the leave until the server
    /// has removed the member by itself.
    pub(super) fn leaving(&self, now: Moment) -> State {
        let give_up = now + self.options.lease.max(GIVE_UP);
        State::Leaving { due: Some(now), pause_ms: LEAVE_RETRY_MS, give_up }
    }

    /// Removes and returns the caller, together with the mirror that wakes the caller.
    pub(super) fn take_caller(&mut self) -> (Caller, P) {
        (std::mem::replace(&mut self.caller, Caller::Gone), std::mem::take(&mut self.mirror))
    }

    /// Returns the state for a member that the server no longer has. This is `Over`, unless an
    /// acquire copy may still run, or may have queued the member again since the hold was
    /// force-released. Then the member leaves, so that a tombstone refuses the copy.
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

    /// Updates the mirror that the guards read.
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
