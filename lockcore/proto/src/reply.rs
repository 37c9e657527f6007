//! The parts of commands and replies.

use crate::member::{Member, Party};
use crate::token::FencingToken;

/// The most members in a touch or leave; callers split longer lists.
pub const MAX_BATCH: usize = 256;
/// The most members in an acquire, for the same reason as [`MAX_RENEWALS`].
pub const MAX_ACQUIRES: usize = 64;
/// The most holds in a renewal, so that a renewal blocks the server for a millisecond at most.
pub const MAX_RENEWALS: usize = 128;
/// The most locks in a touch, for the same reason.
pub const MAX_LINES: usize = 64;

/// Whether an acquire may queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Acquires immediately or not at all.
    Try,
    /// Queues if the demand cannot be granted immediately.
    Wait,
}

/// A command's outcome, with the facts included in every reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// The command's outcome.
    pub outcome: T,
    /// Holds of the calling node: granted, renewed or reduced by this command, or requested again
    /// by their members. Every reply includes the node's exclusive hold, but not all of its
    /// permits, which may be thousands.
    pub grants: Vec<Grant>,
    /// Milliseconds to the first lease end, at least 1, or 0 without holders. `None` if a
    /// short reply omits it: then nobody waits, or leases were renewed.
    pub first_end_ms: Option<u64>,
    /// The server's time, µs since the epoch. `None` if a short reply omits it.
    pub now_us: Option<u64>,
    /// Waiting members skipped by the hand-off because their nodes are not connected.
    pub passed_over: u64,
    /// More work is left than a command may do: an immediate touch continues it.
    pub more: bool,
}

impl<T> Reply<T> {
    /// Creates a reply that contains only the outcome.
    pub fn short(outcome: T) -> Self {
        Self {
            outcome,
            grants: Vec::new(),
            first_end_ms: None,
            now_us: None,
            passed_over: 0,
            more: false,
        }
    }

    /// Returns the same reply with the outcome mapped by `outcome`.
    pub fn map<U>(self, outcome: impl FnOnce(T) -> U) -> Reply<U> {
        let Self { outcome: of, grants, first_end_ms, now_us, passed_over, more } = self;
        Reply { outcome: outcome(of), grants, first_end_ms, now_us, passed_over, more }
    }
}

/// A hold, as reported by the server to the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The holder.
    pub member: Member,
    /// The token of this hold.
    pub token: FencingToken,
    /// Milliseconds left of the lease or the claim; 0 for a reduction, which does not change it.
    pub left_ms: u64,
    /// For a batch, the ids of the members that are served within this hold, in order; empty for
    /// any other hold. The first member has `token`, and each of the others the next number.
    pub run: Vec<u64>,
}

impl Grant {
    /// Whether the member has the hold, alone or within a batch.
    pub fn serves(&self, member: &Member) -> bool {
        match self.run.as_slice() {
            [] => self.member == *member,
            run => self.member.node() == member.node() && run.contains(&member.number()),
        }
    }

    /// The last served member's token.
    pub fn last_token(&self) -> FencingToken {
        self.token.plus(self.run.len().saturating_sub(1))
    }
}

/// A member's outcome in an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// The member holds; the grant is in the reply.
    Granted,
    /// The member waits; at position 0 it is next.
    Queued {
        /// How many members are ahead.
        position: u64,
    },
    /// Held by others, and the mode was try.
    Busy,
    /// The queue has reached the caller's limit.
    Full {
        /// How many members are in the queue.
        waiting: u64,
    },
    /// The member was given up earlier, and has a tombstone.
    Refused,
    /// The fast path does not serve this lock: the acquire must be sent again by the script.
    NotServed {
        /// Whether the member may hold the lock nonetheless.
        may_hold: bool,
    },
}

/// A release's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// This call released the hold.
    Released,
    /// The hold did not exist, or no longer.
    NotHeld,
}

/// A renewal's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// Extended.
    Held,
    /// Not held any more.
    NotHeld,
}

/// A touch's outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// The presence of each requested member, in order, before this command granted anything.
    pub members: Vec<Presence>,
    /// How many connections subscribe to the node's channel on this server.
    pub listeners: u64,
}

/// A member's state, as found by a touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In the queue.
    Waiting,
    /// Holds: the reply contains the grant.
    Holding,
    /// Has left the queue for a newer member.
    Superseded,
    /// Neither: the position or the hold is lost.
    Gone,
}

/// A member that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The member.
    pub member: Member,
    /// A copy of the member's acquire may still run later, so the server writes a tombstone.
    pub ambiguous: bool,
    /// The member was served in a batch that continues. It leaves only the batch, never a hold:
    /// after an earlier downgrade the hold has this member's name.
    pub served: bool,
}

impl Leaving {
    /// A member that leaves with everything it has.
    pub fn new(member: Member, ambiguous: bool) -> Self {
        Self { member, ambiguous, served: false }
    }
}

/// A member's state, as found by a leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Was waiting or holding, and has been removed.
    Left,
    /// Was not there.
    Absent,
}

/// A hold as shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldView {
    /// The holder; for a batch, the first member that has not left.
    pub party: Party,
    /// The hold's weight.
    pub weight: u64,
    /// Milliseconds left of the lease, 0 if the hold has no end.
    pub left_ms: u64,
}

/// A lock as shown to operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The holders, ordered by the end of their leases.
    pub holds: Vec<HoldView>,
    /// Batch members still to be served, then the queue in order, with each waiter's liveness
    /// deadline (ms since the epoch, by the server's clock).
    pub waiters: Vec<(Party, u64)>,
    /// The number of holds, including holds not shown and shared holds with expired leases.
    pub holding: u64,
    /// The number of waiters, including waiters not shown.
    pub waiting: u64,
    /// The last token issued, if still known.
    pub token: Option<FencingToken>,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
}
