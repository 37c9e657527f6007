//! The time in which a primary of a quorum forgets nothing.

use std::time::Duration;

/// The time in which a primary forgets nothing: from one restart or flush to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// The number of its server's run, as this node counts them.
    pub(crate) server: u64,
    /// The time at which its mark was written, µs since the epoch by its own clock.
    pub(crate) mark: u64,
}

/// The time for which a primary has forgotten nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) epoch: Epoch,
    /// The time since that began.
    pub(crate) age: Duration,
}
