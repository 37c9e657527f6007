//! The events received by a node from the server, and the state of connections.

use std::sync::Arc;

use crate::error::{LockErrorKind, StoreError};
use crate::token::FencingToken;

/// An event from the server, not a response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Waiting members were granted their demands, in a single step.
    Granted {
        /// The token shared by all these holds.
        token: FencingToken,
        /// The member ids, each with the claim in milliseconds.
        grants: Vec<(u64, u64)>,
    },
    /// Waiting members were granted a hold together, in which they are served in order.
    GrantedRun {
        /// The first member's token; the others have the following tokens.
        token: FencingToken,
        /// The claim in milliseconds.
        left_ms: u64,
        /// The member ids, in order.
        numbers: Vec<u64>,
    },
    /// Holds were force-released.
    Revoked {
        /// The member ids.
        numbers: Vec<u64>,
    },
    /// Waiting members were removed from the queue in favour of a newer member.
    Superseded {
        /// The member ids.
        numbers: Vec<u64>,
    },
    /// A waiting member is woken, because the lock may be free.
    Poked {
        /// The member id.
        number: u64,
    },
    /// The subscription is new: messages may have been missed.
    Resubscribed,
}

impl Event {
    /// The last token contained in the event.
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

/// A connection's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Usable.
    Up,
    /// Disconnected, and being re-established.
    Down {
        /// The kind of the error that broke the connection, or of the last attempt to connect.
        kind: LockErrorKind,
        /// The reason, for people.
        reason: Arc<str>,
    },
}

impl Link {
    /// A connection lost because of this error.
    pub fn broken(error: &StoreError) -> Self {
        Self::Down { kind: error.kind, reason: Arc::clone(&error.detail) }
    }

    /// A connection lost without an error from the server.
    pub fn down(reason: impl Into<Arc<str>>) -> Self {
        Self::Down { kind: LockErrorKind::Unavailable, reason: reason.into() }
    }

    /// The error for a command that cannot be sent while disconnected. To waiters even a lasting
    /// error, such as a replaced password, is `Unavailable`: the next connection may be accepted.
    pub fn why_down(&self) -> Option<StoreError> {
        let Self::Down { kind, reason } = self else { return None };
        let error = StoreError::refused(*kind, Arc::clone(reason));
        let kind = if error.is_transient() { *kind } else { LockErrorKind::Unavailable };
        Some(StoreError { kind, ..error })
    }

    /// Whether the server refused the user or password in the last attempt to connect.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Down { kind: LockErrorKind::Denied, .. })
    }

    /// Whether the connection is usable.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up)
    }
}
