//! Doors into the store for this project's own tests: no stability promise.

#[cfg(feature = "redis")]
mod redis;

use proto::NodeId;
pub use proto::{
    ALL, Acquired, Answer, Answers, Command, Demand, Event, Grant, Inspection, Label, Leaving,
    Left, Link, LockName, MAX_BATCH, MAX_LINES, MAX_RENEWALS, Member, Mode, Party, Presence,
    Released, Renewed, Reply, StoreError, Terms, Touched,
};

pub use crate::store::{Listener, Store, StoreFuture};

#[cfg(feature = "redis")]
pub use redis::*;

/// The protocol as a pure function.
pub mod protocol {
    pub use proto::{MAX_BATCH, PATIENCE_MS, SortedSet, TOMBSTONE_MS, queue, redisson};
}

/// This process's half of the protocol, without I/O.
pub mod node {
    pub use proto::node::{
        Ask, Core, Counts, Due, Effect, Moment, Note, Outcome, Phase, Refusal, Request, Rules, Seat,
    };
}

/// Runs one command.
///
/// # Errors
/// Of the request or of this lock.
pub async fn run(
    store: &dyn Store,
    lock: &LockName,
    command: Command,
) -> Result<Answer, StoreError> {
    store.run(lock, &command).await
}

/// A new node's identity.
pub fn new_node() -> NodeId {
    crate::builder::new_node()
}

/// The node with this text.
pub fn node_of(text: &str) -> NodeId {
    NodeId::from(text)
}
