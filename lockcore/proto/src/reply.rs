//! The parts of commands and replies: outcomes, grants, and each command's maximum size.

use crate::member::{Member, Party};
use crate::token::FencingToken;

/// The maximum number of members in a touch or a leave, the commands that keep waiters alive and
/// remove them. Callers split longer lists into several commands.
pub const MAX_MEMBERS: usize = 256;
/// The maximum number of members in an acquire, so that an acquire does not block the server for
/// long.
pub const MAX_ACQUIRES: usize = 64;
/// The maximum number of holds in a renewal, so that a renewal blocks the server for a millisecond
/// at most.
pub const MAX_RENEWALS: usize = 128;
/// The maximum number of locks whose touches are sent in one script call, so that the call does not
/// block the server for long.
pub const MAX_LINES: usize = 64;

/// Whether an acquire waits in the queue if the lock is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The acquire succeeds immediately or is refused; the member is never queued.
    Try,
    /// The member is queued if it cannot be granted immediately.
    Wait,
}

/// A reply: a command's outcome, and the values that the reply to any command contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// The command's outcome, for example [`Released`].
    pub outcome: T,
    /// The calling node's holds that the command granted, confirmed or reduced, and the holds that
    /// members of an acquire or a touch already had. A layout may also report another hold of the
    /// node.
    pub grants: Vec<Grant>,
    /// Milliseconds until the first lease of this lock ends: at least 1, or 0 if nobody holds the
    /// lock. `None` if the server left it out to shorten the reply.
    pub first_end_ms: Option<u64>,
    /// The server's time when the command ran, in µs since the epoch. `None` if the server left it
    /// out to shorten the reply.
    pub now_us: Option<u64>,
    /// The number of waiters that the command skipped because their nodes are not connected.
    pub skipped: u64,
    /// True if the command stopped at its work limit, although it could have granted more. The node
    /// then sends a touch immediately, so that the server continues.
    pub more: bool,
}

impl<T> Reply<T> {
    /// Creates a reply with this outcome and nothing else: no grants, no times.
    pub fn short(outcome: T) -> Self {
        Self {
            outcome,
            grants: Vec::new(),
            first_end_ms: None,
            now_us: None,
            skipped: 0,
            more: false,
        }
    }

    /// Returns the reply with the outcome converted by the function `outcome`. Everything else
    /// stays.
    pub fn map<U>(self, outcome: impl FnOnce(T) -> U) -> Reply<U> {
        let Self { outcome: of, grants, first_end_ms, now_us, skipped, more } = self;
        Reply { outcome: outcome(of), grants, first_end_ms, now_us, skipped, more }
    }
}

/// A hold that the server reports to the holder's node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The holder. For a batch, the member under which the server stores the hold.
    pub member: Member,
    /// This hold's fencing token; for a batch, the first member's token.
    pub token: FencingToken,
    /// Milliseconds until the hold expires. 0 in the reply to a reduction, because a reduction does
    /// not change the lease.
    pub left_ms: u64,
    /// The ids of the batch members that share this hold, in the order in which they are served;
    /// empty outside a batch. The first member has `token`, and each later member the next number.
    pub batch: Vec<u64>,
}

impl Grant {
    /// Returns true if this hold belongs to `member`, alone or as a member of the batch.
    pub fn serves(&self, member: &Member) -> bool {
        match self.batch.as_slice() {
            [] => self.member == *member,
            batch => self.member.node() == member.node() && batch.contains(&member.number()),
        }
    }

    /// Returns the token of the last member in the batch; outside a batch, `token` itself.
    pub fn last_token(&self) -> FencingToken {
        self.token.plus(self.batch.len().saturating_sub(1))
    }
}

/// An acquire's outcome for a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// The member holds the lock. The reply contains the [`Grant`].
    Granted,
    /// The member waits in the queue.
    Queued {
        /// The number of members ahead in the queue; 0 for the next member to be granted the lock.
        position: u64,
    },
    /// The lock is busy, and the member was not queued because of [`Mode::Try`].
    Busy,
    /// The member was not queued, because the queue has reached the `queue_limit` of the acquire.
    Full {
        /// The number of members in the queue.
        waiting: u64,
    },
    /// The member was refused, because it has a tombstone, or because a newer member with
    /// `KeepNewest` waits or holds. A tombstone shows that the node has given the member up, or
    /// that a newer member has superseded it.
    Refused,
    /// The fast path, plain Redis commands instead of a script, could not acquire the lock, for
    /// example because the lock is busy. The node must send the acquire again as a script.
    NotServed {
        /// True if the member may hold the lock nonetheless, but without a usable token.
        may_hold: bool,
    },
}

/// A release's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// This command ended the hold.
    Released,
    /// There was no such hold: it had expired, or was released earlier.
    NotHeld,
}

/// The outcome of a renewal, a confirmation or a reduction for one hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// The hold exists, and the command took effect.
    Held,
    /// There is no such hold any more, so nothing was changed.
    NotHeld,
}

/// The outcome of a touch, the command that keeps waiters alive and returns their state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The state of each touched member in the command's order, before this command granted
    /// anything.
    pub members: Vec<Presence>,
    /// The number of connections subscribed to the node's message channel on this server. 0 means
    /// that the node misses its messages.
    pub listeners: u64,
}

/// The state of a waiter on the server, as a touch returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The member waits in the queue.
    Waiting,
    /// The member holds the lock. The reply contains the [`Grant`].
    Holding,
    /// The server removed the member from the queue in favour of a newer member.
    Superseded,
    /// The server does not know the member: its queue position or its hold is lost.
    Gone,
}

/// A member to be removed by [`Command::Leave`](crate::Command::Leave).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The member to remove.
    pub member: Member,
    /// True if an acquire of the member may still arrive after this command, for example because
    /// the acquire got no reply. The server then stores a tombstone, which refuses such an acquire.
    pub ambiguous: bool,
    /// True if the member's turn in a batch is over, and other members of the batch keep the hold.
    /// The command then only removes the member from the batch, and never ends a hold: after a
    /// downgrade, another member's hold may be stored under this member's name.
    pub served: bool,
}

impl Leaving {
    /// Creates the entry for a member that gives up its queue position or its hold. `served` is
    /// false.
    pub fn new(member: Member, ambiguous: bool) -> Self {
        Self { member, ambiguous, served: false }
    }
}

/// A leave's outcome for a member that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The member was waiting or holding, and has been removed.
    Left,
    /// The member was neither waiting nor holding.
    Absent,
}

/// A hold, as an inspection shows it to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldView {
    /// The holder. For a batch, the member that is served now.
    pub party: Party,
    /// The hold's weight: the number of permits, 1 for a read, 2^30 for a lock.
    pub weight: u64,
    /// Milliseconds until the lease expires; 0 if it never expires.
    pub left_ms: u64,
}

/// A lock's state, as an inspection shows it to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The holds, ordered by the time at which their leases expire.
    pub holds: Vec<HoldView>,
    /// The waiters in the order in which they are served, each with the liveness deadline of its
    /// node, in ms since the epoch by the server's clock. Batch members that wait for their turn
    /// come first; their deadline is the end of the lease.
    pub waiters: Vec<(Party, u64)>,
    /// The number of holds, including holds left out of `holds` and shared holds whose leases have
    /// expired.
    pub holding: u64,
    /// The number of waiters, including waiters left out of `waiters`.
    pub waiting: u64,
    /// The last fencing token of this lock, if the server stores it. In the queue layout only
    /// present shared holds have a stored token, which they share.
    pub token: Option<FencingToken>,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
}
