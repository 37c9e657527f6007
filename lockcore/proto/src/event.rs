//! Events that the server sends to a node without a request, and the state of the node's
//! connections.

use std::sync::Arc;

use crate::error::{LockErrorKind, StoreError};
use crate::token::FencingToken;

/// An event that the server sends to a node without a request, as a message on the node's channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Waiting members of the node were granted the lock by a single command, each with a separate
    /// hold.
    Granted {
        /// The fencing token shared by all these holds.
        token: FencingToken,
        /// The id of each granted member, and the milliseconds until its hold expires unless
        /// renewed.
        grants: Vec<(u64, u64)>,
    },
    /// Waiting members of the node were granted a single hold as a batch. The node serves them in
    /// order, one after the other.
    GrantedBatch {
        /// The first member's fencing token. The token of each later member is greater by 1.
        token: FencingToken,
        /// Milliseconds until the hold expires, unless it is renewed.
        left_ms: u64,
        /// The ids of the batch members, in the order in which they are served.
        numbers: Vec<u64>,
    },
    /// Holds of the node were force-released, so they must not be relied on any more.
    Revoked {
        /// The ids of the members that lost their holds.
        numbers: Vec<u64>,
    },
    /// Waiting members were removed from the queue in favour of a newer member, because they had
    /// requested [`WhenBusy::KeepNewest`](crate::WhenBusy::KeepNewest).
    Superseded {
        /// The ids of the members that were removed.
        numbers: Vec<u64>,
    },
    /// Another program, such as a Redisson client, reports that the lock of a waiting member may be
    /// free. The node then queries the server at once.
    Poked {
        /// The id of the waiting member.
        number: u64,
    },
    /// The subscription to the channel was opened again, so messages may have been missed. The node
    /// queries the server about all waiting members.
    Resubscribed,
}

impl Event {
    /// Returns the greatest fencing token that the event reports. `None` if it reports no grant.
    pub fn last_token(&self) -> Option<FencingToken> {
        match self {
            Self::Granted { token, .. } => Some(*token),
            Self::GrantedBatch { token, numbers, .. } => {
                Some(token.plus(numbers.len().saturating_sub(1)))
            }
            _ => None,
        }
    }
}

/// The state of a node's connection to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// The connection is usable.
    Up,
    /// The connection is lost, and the client reconnects.
    Down {
        /// The kind of the error that broke the connection, or of the last failed attempt to
        /// reconnect.
        kind: LockErrorKind,
        /// The reason for the loss, for people to read.
        reason: Arc<str>,
    },
}

impl Link {
    /// Creates the state of a connection that was lost because of `error`.
    pub fn broken(error: &StoreError) -> Self {
        Self::Down { kind: error.kind, reason: Arc::clone(&error.detail) }
    }

    /// Creates the state of a connection that was lost without an error from the server, with kind
    /// `Unavailable`.
    pub fn down(reason: impl Into<Arc<str>>) -> Self {
        Self::Down { kind: LockErrorKind::Unavailable, reason: reason.into() }
    }

    /// Returns the error for a command that cannot be sent now; `None` if the connection is usable.
    /// A lasting error, such as a wrong password, becomes `Unavailable`, because the next attempt
    /// to connect may succeed.
    pub fn why_down(&self) -> Option<StoreError> {
        let Self::Down { kind, reason } = self else { return None };
        let error = StoreError::refused(*kind, Arc::clone(reason));
        let kind = if error.is_transient() { *kind } else { LockErrorKind::Unavailable };
        Some(StoreError { kind, ..error })
    }

    /// Returns true if the server refused the user or the password in the last attempt to connect.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Down { kind: LockErrorKind::Denied, .. })
    }

    /// Returns true if the connection is usable.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Up)
    }
}
