//! The laws of the lock, and the judge of one command.
//!
//! Model, simulation and chaos watch the commands of a server, each with its own [`Evidence`]: the
//! model knows everything, the simulation the server's state and the answers, and chaos the writes
//! that MONITOR shows. [`judge`] is the same for all of them. An observer leaves out facts that it
//! is not certain of, and checks by itself only the laws that need more than one command.

/// Whether a release in mid-run is never told that its hold was lost while that hold is there.
pub const WHOLE_SECTIONS_ARE_NOT_LOST: bool = true;

/// Whether members of a run that its holder has cut short, by a downgrade or a leak, keep their
/// places.
pub const CUT_RUNS_KEEP_THEIR_PLACES: bool = true;

/// Whether members that were served or leaked in a run, which has ended without its node, neither
/// stand aside nor come back.
pub const SERVED_MEMBERS_STAY_GONE: bool = false;

mod judge;
mod law;
#[cfg(test)]
mod tests;

pub use judge::{Evidence, Held, Kind, Waiting, judge, new_holds};
pub use law::{Broken, Law};
