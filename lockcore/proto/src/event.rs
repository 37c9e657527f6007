//! The events that a node hears without asking, and the state of its connections.

use std::sync::Arc;

use crate::error::{LockErrorKind, StoreError};
use crate::token::FencingToken;

/// An event that a node receives unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Waiting members were granted their demands, in one step.
    Granted {
        /// The token of all these holds.
        token: FencingToken,
        /// Their numbers, and the milliseconds of their claims.
        grants: Vec<(u64, u64)>,
    },
    /// Waiting members were granted one hold, within which they are served one after the other.
    GrantedRun {
        /// The token of the first; each of the others has the next.
        token: FencingToken,
        /// The milliseconds of the claim.
        left_ms: u64,
        /// Their numbers, in order.
        numbers: Vec<u64>,
    },
    /// Holds were force-released.
    Revoked {
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// Waiting members have left the queue for a newer one.
    Superseded {
        /// Their numbers.
        numbers: Vec<u64>,
    },
    /// A JVM tells a waiting member to come: the lock may be free.
    Poked {
        /// The number of the member.
        number: u64,
    },
    /// The subscription is new: messages may have been missed.
    Resubscribed,
}

impl Event {
    /// The last token that it tells.
    pub fn last_token(&self) -> Option<FencingToken> {
        match self {
            Self::Granted { token, .. } => Some(*token),
            Self::GrantedRun { token, numbers, .. } => {
                Some(token.plus(numbers.len().saturating_sub(1)))
            }
            _ => None,
        }
    }
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
        /// The reason, for people.
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
    pub fn why_down(&self) -> Option<StoreError> {
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
