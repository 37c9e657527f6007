//! What the engine asks of a store. The rules of each command stand in `docs/protocol.md`.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;

use crate::error::StoreError;
use crate::key::LockName;
use crate::member::Member;
use crate::token::FencingToken;

/// One node's view of a store. Each command is one atomic step on the server.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Takes the lock, or in [`Mode::Wait`] queues for it.
    fn acquire(
        &self,
        lock: &LockName,
        member: &Member,
        mode: Mode,
        queue_limit: u32,
    ) -> StoreFuture<Reply<Acquired>>;

    /// Gives a hold back.
    fn release(&self, lock: &LockName, member: &Member) -> StoreFuture<Reply<Released>>;

    /// Extends a hold to its member's full lease.
    fn renew(&self, lock: &LockName, member: &Member) -> StoreFuture<Reply<Renewed>>;

    /// Keeps this node's waiting members of one lock alive. Not empty, at most [`MAX_BATCH`] members.
    fn touch(&self, lock: &LockName, members: Vec<Member>) -> StoreFuture<Reply<Touched>>;

    /// Takes members out of the queue, or releases them if they were granted meanwhile.
    /// Not empty, at most [`MAX_BATCH`] members.
    fn leave(&self, lock: &LockName, leaving: Vec<Leaving>) -> StoreFuture<Reply<Vec<Left>>>;

    /// Drops the hold, whoever has it.
    fn force_release(&self, lock: &LockName) -> StoreFuture<Reply<Released>>;

    /// Holder and queue, without changing anything.
    fn inspect(&self, lock: &LockName) -> StoreFuture<Inspection>;

    /// Whether commands get through at all.
    fn ping(&self) -> StoreFuture<()>;

    /// The connection that carries commands.
    fn commands(&self) -> watch::Receiver<Link>;

    /// The connection on which grants arrive.
    fn subscription(&self) -> watch::Receiver<Link>;

    /// Opens the subscription anew: the server does not count it.
    fn reopen_subscription(&self);

    /// Ends the store's background work and closes its connections.
    fn close(&self);
}

/// Hears what the server tells a node without being asked. Called from the store's own tasks: it may not block.
pub trait Listener: Send + Sync + 'static {
    /// One message.
    fn hear(&self, event: Event);
}

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
    /// Milliseconds left of whoever holds the lock; 0 when it is free.
    pub left_ms: u64,
    /// The holder, if it is a member of the calling node.
    pub grant: Option<Grant>,
    /// A foreign member holds the lock, or stopped the hand-over.
    pub foreign: bool,
    /// The server's time, µs since the epoch.
    pub now_us: u64,
    /// Waiting members that the hand-over passed over: their nodes are not connected.
    pub passed_over: u64,
}

/// A hold, as the server tells its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Who holds.
    pub member: Member,
    /// The token of this hold.
    pub token: FencingToken,
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

/// What a node hears without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A waiting member was granted the lock.
    Granted {
        /// Who.
        member: Member,
        /// The token of the hold.
        token: FencingToken,
        /// Milliseconds of its claim.
        left_ms: u64,
    },
    /// A holder was forced off.
    Revoked {
        /// Who.
        member: Member,
    },
    /// A JVM tells a waiting member to come: the lock may be free.
    Poked {
        /// Who.
        member: Member,
    },
    /// The subscription is new: messages may have been missed.
    Resubscribed,
}

/// The state of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Usable.
    Up,
    /// Gone, being re-established.
    Down {
        /// Why, for people.
        reason: Arc<str>,
    },
}

impl Link {
    /// Whether it is usable.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up)
    }
}

/// The answer of a store: there already, or a future.
#[must_use = "futures do nothing unless polled"]
pub enum StoreFuture<T> {
    /// Answered without waiting. Taken on the first poll.
    Ready(Option<Result<T, StoreError>>),
    /// On its way.
    Pending(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> StoreFuture<T> {
    /// An answer that is there already.
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        Self::Ready(Some(answer))
    }

    /// An answer that takes a while.
    pub fn pending(answer: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self::Pending(Box::pin(answer))
    }
}

// `Ready` is only ever moved out of and `Pending` is a box: nothing is pinned in place.
impl<T> Unpin for StoreFuture<T> {}

impl<T> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Ready(answer) => {
                Poll::Ready(answer.take().expect("a StoreFuture is not polled after it is ready"))
            }
            Self::Pending(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(_) => f.write_str("StoreFuture::Ready"),
            Self::Pending(_) => f.write_str("StoreFuture::Pending"),
        }
    }
}
