//! The layout of the keys of a `Locks`: that of the queue, or that which JVMs share.

use proto::layout::{Layout, QUEUE};
use proto::redisson::REDISSON;

/// The reason why a foreign name is refused where other programs have named no lock.
pub(crate) const NO_FOREIGN_NAMES: &str = "a foreign name is for a lock that JVMs share: build this Locks with \
    redisson_peers(true)";

/// The layout that JVMs share, or that of the queue.
pub(crate) fn of(peers: bool) -> &'static dyn Layout {
    if peers { REDISSON } else { QUEUE }
}
