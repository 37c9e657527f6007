//! The rules of each command as pure functions of one lock's state: no I/O, no clock, no chance.
//! The store in memory runs them, and the tests compare the Lua with them.
//!
//! [`queue`] is the protocol of `docs/protocol.md`. [`redisson`] is the dialect that JVMs speak.

mod command;
pub mod queue;
pub mod redisson;
mod reply;
mod sorted_set;

pub use command::{Answer, Command};
pub use reply::{
    Acquired, Grant, Inspection, Leaving, Left, MAX_BATCH, Mode, Presence, Released, Renewed,
    Reply, Touched,
};
pub use sorted_set::SortedSet;

/// The time for which a waiting member's node is believed alive after it was heard of.
pub const PATIENCE_MS: u64 = 15_000;
/// The life of a tombstone.
pub const TOMBSTONE_MS: u64 = 60_000;
/// The shortest claim, unless the lease is shorter still.
const MIN_CLAIM_MS: u64 = 2_000;
/// The longest claim: how long a process that has just frozen keeps the others waiting.
const MAX_CLAIM_MS: u64 = 10_000;

/// The lease of a hold that was handed over, until its first renewal.
pub(crate) fn claim_ms(lease_ms: u64) -> u64 {
    lease_ms.min((lease_ms / 3).clamp(MIN_CLAIM_MS, MAX_CLAIM_MS))
}
