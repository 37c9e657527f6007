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
    /// A waiting member is told to come: the lock may be free.
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
        /// The kind of the error that broke it, or of the last attempt to connect.
        kind: LockErrorKind,
        /// The reason, for people.
        reason: Arc<str>,
    },
}

impl Link {
    /// Disconnected by this error.
    pub fn broken(error: &StoreError) -> Self {
        Self::Down { kind: error.kind, reason: Arc::clone(&error.detail) }
    }

    /// Disconnected, and no error of a server says why.
    pub fn down(reason: impl Into<Arc<str>>) -> Self {
        Self::Down { kind: LockErrorKind::Unavailable, reason: reason.into() }
    }

    /// The error of a command that cannot be sent meanwhile. One that lasts, such as a password
    /// that was replaced, is `Unavailable` to waiters: the next connection may be accepted.
    pub fn why_down(&self) -> Option<StoreError> {
        let Self::Down { kind, reason } = self else { return None };
        let error = StoreError::refused(*kind, Arc::clone(reason));
        let kind = if error.is_transient() { *kind } else { LockErrorKind::Unavailable };
        Some(StoreError { kind, ..error })
    }

    /// Whether the server refused the last attempt to connect, for its user or password.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Down { kind: LockErrorKind::Denied, .. })
    }

    /// Whether it is usable.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up)
    }
}
