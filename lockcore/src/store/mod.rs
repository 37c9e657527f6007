//! Where locks are kept: the commands of a store, their rules as one pure function in [`protocol`],
//! and the two places that run them, [`memory`] and [`redis`].
//!
//! The rules of each command stand in `docs/protocol.md`.

pub(crate) mod memory;
pub(crate) mod protocol;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;

pub use protocol::{
    Acquired, Answer, Command, Grant, Inspection, Leaving, Left, MAX_BATCH, Mode, Presence,
    Released, Renewed, Reply, Touched,
};

use crate::error::{LockErrorKind, StoreError};
use crate::key::LockName;
use crate::token::FencingToken;

/// Most holds in one renewal, so that a server does nothing else for a millisecond at most.
pub const MAX_RENEWALS: usize = 128;
/// Most locks in one touch, for the same reason.
pub const MAX_LINES: usize = 64;

/// An answer for each command, in order. One lock at whose keys another program's data stand
/// answers with an error, and keeps no other from its own.
pub type Answers = Vec<Result<Answer, StoreError>>;

/// One node's view of a store. Each command is one atomic step on the server.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Runs one command.
    fn run(&self, lock: &LockName, command: &Command) -> StoreFuture<Answer>;

    /// Runs several renewals, of at most [`MAX_RENEWALS`] holds, or several touches, of at most
    /// [`MAX_LINES`] locks with [`MAX_BATCH`] members; or any command alone.
    fn run_together(&self, commands: &[(&LockName, &Command)]) -> StoreFuture<Answers>;

    /// As [`run_together`](Self::run_together), for renewals, and waits until replicas have them.
    /// Says how many do. Only asked for where replicas are required.
    fn confirm(&self, renewals: &[(&LockName, &Command)]) -> StoreFuture<(Answers, u32)> {
        let _ = renewals;
        StoreFuture::ready(Err(StoreError::refused(
            LockErrorKind::Unsupported,
            "this store has no replicas",
        )))
    }

    /// Whether commands get through at all.
    fn ping(&self) -> StoreFuture<()>;

    /// The connection that carries commands.
    fn commands(&self) -> watch::Receiver<Link>;

    /// Counts the servers that commands have gone to. While the count stays, it is one server, with
    /// all that it has acknowledged, unless it was emptied.
    fn servers(&self) -> u64 {
        0
    }

    /// The connection on which grants arrive.
    fn subscription(&self) -> watch::Receiver<Link>;

    /// Opens the subscription anew: the server does not count it.
    fn reopen_subscription(&self);

    /// Ends the store's background work and closes its connections.
    fn close(&self);
}

/// Hears what the server tells a node without being asked. Called from the store's own tasks: it
/// may not block.
pub trait Listener: Send + Sync + 'static {
    /// One message.
    fn hear(&self, event: Event);
}

/// What a node hears without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Waiting members were granted their demands, in one step.
    Granted {
        /// The token of all these holds.
        token: FencingToken,
        /// Their numbers, and the milliseconds of their claims.
        grants: Vec<(u64, u64)>,
    },
    /// Holds were force-released.
    Revoked {
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// A JVM tells a waiting member to come: the lock may be free.
    Poked {
        /// Its number.
        number: u64,
    },
    /// The subscription is new: messages may have been missed.
    Resubscribed,
}

/// The state of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Usable.
    Up,
    /// Disconnected, being re-established.
    Down {
        /// The kind of error that callers see meanwhile: [`LockErrorKind::ReadOnly`] or
        /// [`LockErrorKind::Unavailable`]. Both may pass by themselves.
        kind: LockErrorKind,
        /// Why, for people.
        reason: Arc<str>,
    },
}

impl Link {
    /// Disconnected by this error. One that lasts, such as a password that was replaced, is
    /// `Unavailable` to waiters: the next connection may be accepted.
    pub fn broken(error: &StoreError) -> Self {
        let kind = if error.is_transient() { error.kind } else { LockErrorKind::Unavailable };
        Self::Down { kind, reason: Arc::clone(&error.detail) }
    }

    /// Disconnected, and no error of a server says why.
    pub fn down(reason: impl Into<Arc<str>>) -> Self {
        Self::Down { kind: LockErrorKind::Unavailable, reason: reason.into() }
    }

    /// The error of a command that cannot be sent meanwhile.
    pub(crate) fn why_down(&self) -> Option<StoreError> {
        match self {
            Self::Up => None,
            Self::Down { kind, reason } => Some(StoreError::refused(*kind, Arc::clone(reason))),
        }
    }

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
