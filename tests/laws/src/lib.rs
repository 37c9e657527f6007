//! The lock's laws, and a judge for single commands.
//!
//! The model, the simulation and the chaos test observe a server's commands, each as [`Evidence`]:
//! the model knows everything, the simulation knows the server's state and the replies, and the
//! chaos test knows the writes shown by MONITOR. [`judge`] is common to all of them. An observer
//! omits uncertain facts, and only checks laws itself if they concern more than one command.

/// Whether a release in mid-batch never reports a hold as lost while the hold exists.
pub const WHOLE_SECTIONS_ARE_NOT_LOST: bool = true;

/// Whether members of a batch cut short by the holder, by a downgrade or a leak, keep their
/// positions.
pub const CUT_BATCHES_KEEP_THEIR_POSITIONS: bool = true;

/// Whether members served or leaked in a batch that their node did not end are neither set aside
/// nor restored.
pub const SERVED_MEMBERS_STAY_GONE: bool = false;

mod judge;
mod law;
#[cfg(test)]
mod tests;

pub use judge::{Evidence, Held, Kind, Waiting, judge, new_holds};
pub use law::{Broken, Law};
