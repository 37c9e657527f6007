//! What the commands take and what they answer: the vocabulary that both stores share.

use crate::member::Member;
use crate::token::FencingToken;

/// Most members in one touch or leave; more are split by the caller.
pub const MAX_BATCH: usize = 256;

/// Whether an acquire may queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Take it now or not at all.
    Try,
    /// Queue if it is not free.
    Wait,
}

/// What every command answers: its outcome, and the state of the lock after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<T> {
    /// What the command did.
    pub outcome: T,
    /// Milliseconds left of the lock's hold; 0 when it is free.
    pub left_ms: u64,
    /// The holder, if it is a member of the calling node.
    pub grant: Option<Grant>,
    /// A foreign member holds the lock, or stopped the hand-over.
    pub foreign: bool,
    /// The server's time, µs since the epoch; 0 if it was not told.
    pub now_us: u64,
    /// Waiting members that the hand-over passed over: their nodes are not connected.
    pub passed_over: u64,
    /// Of a resource with permits: all that the calling node is told that it holds.
    pub several: Vec<Share>,
    /// Of a resource with permits: there was more to do than one command does.
    pub more: bool,
}

/// A hold, as the server tells its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who holds.
    pub member: Member,
    /// The token of this hold.
    pub token: FencingToken,
}

/// One of several holds, as the server tells its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Who holds.
    pub member: Member,
    /// The token of this hold.
    pub token: FencingToken,
    /// Milliseconds left of its lease, or of its claim.
    pub left_ms: u64,
}

/// Outcome of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acquired {
    /// The member holds the lock; the grant is in the reply.
    Granted,
    /// The member waits; 0 is next.
    Queued {
        /// Members ahead of it.
        position: u64,
    },
    /// Held, and the mode was try.
    Busy,
    /// The queue is as long as the caller allows.
    Full,
    /// The member was given up before.
    Refused,
}

/// Outcome of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// This call freed it.
    Released,
    /// It was not held (any more).
    NotHeld,
}

/// Outcome of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewed {
    /// Extended.
    Held,
    /// Not held any more.
    NotHeld,
}

/// Outcome of a touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// One per member asked for, in order.
    pub members: Vec<Presence>,
    /// Connections that listen to the node's channel on this server.
    pub listeners: u64,
}

/// What a touch found of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In the queue.
    Waiting,
    /// It holds the lock.
    Holding,
    /// Neither: its place is lost.
    Gone,
}

/// One member that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Who.
    pub member: Member,
    /// A copy of its acquire may still run later, so leave a tombstone.
    pub ambiguous: bool,
}

/// What a leave found of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It was there, waiting or holding, and is not any more.
    Left,
    /// It was not there.
    Absent,
}

/// A lock as an operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Who holds it.
    pub holder: Option<Member>,
    /// The last token that was given out, if it is still remembered.
    pub token: Option<FencingToken>,
    /// Milliseconds left of the holder's lease; 0 when free or without end.
    pub left_ms: u64,
    /// The queue in order, with each member's deadline (ms since the epoch, by the server's clock).
    pub waiters: Vec<(Member, u64)>,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
}
