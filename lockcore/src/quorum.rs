//! A fair lock on a quorum of independent primaries: it is held while a majority of the primaries
//! hold it.
//!
//! An acquisition ([`acquire`]) requests the lock from primary after primary, in list order, which
//! all processes share, until a majority has granted it. A [`hold`] keeps the lock there. A
//! [`primary`] is watched, and counts towards a majority unless it may have lost data. Each primary
//! has a node, which does everything else as for a lock on a single server.
//!
//! *Lower* primaries are earlier in the list, *higher* primaries later. To hold a primary is to
//! hold the lock at this primary.
//!
//! # Implementation notes
//!
//! - *Exclusion.* A guard is valid while a majority of primaries is certainly held. Any two
//!   majorities share a primary, which grants the lock to one holder at a time.
//! - *Order.* An acquisition waits without a timeout only at a primary below all primaries that it
//!   holds, and elsewhere for a few hops (see [`acquire`]), so waits are never circular. All
//!   requests queue at the lowest primary first, so its queue orders them. Where some processes
//!   cannot reach it, the queue at the lowest primary common to all does.
//! - *Lost data.* A primary that has restarted, or was emptied, is treated as another server. It
//!   counts once all leases it may have lost are over. A hold counts only if the
//!   primary is still the server that was known when the acquire was sent.
//! - *Tokens.* A guard's token is the greatest token among its holds at the primaries. Before the
//!   guard is created, the token counter of each held primary has drawn that number or a greater
//!   number. Every later guard shares a primary with this guard, and so has a greater token. The
//!   numbers are drawn while the last primary is acquired. If the token of the last primary is
//!   greater still, the other counters draw again before the guard is created.

mod acquire;
mod context;
mod hold;
#[cfg(feature = "redis")]
mod list;
mod primaries;
mod primary;
mod queues;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use self::acquire::QuorumAcquire;
pub(crate) use self::context::AcquireContext;
pub(crate) use self::hold::Hold;
#[cfg(feature = "redis")]
pub use self::list::Quorum;
pub(crate) use self::primaries::{Primaries, Terms};
pub(crate) use self::primary::{Connect, Connected, NewPrimary};
