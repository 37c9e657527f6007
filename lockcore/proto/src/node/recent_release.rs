//! A release that a server which takes over may not know.

use std::time::Duration;

use crate::member::Member;
use crate::name::LockName;
use crate::node::moment::Moment;

/// How long a release may take to reach a replica: the lag up to which Redis considers a replica
/// good (`min-replicas-max-lag`).
const LAG: Duration = Duration::from_secs(10);

/// A member that the server has removed, and the time when this node learned of it. Or a member
/// that this node gave up at that time, because the server did not acknowledge its leaves.
#[derive(Debug, Clone)]
pub(super) struct RecentRelease {
    pub(super) number: u64,
    pub(super) heard: Moment,
    /// True if an acquire of the member may still run on the server, because no leave with a
    /// tombstone was acknowledged.
    pub(super) ambiguous: bool,
    pub(super) lock: LockName,
    pub(super) member: Member,
}

impl RecentRelease {
    /// Returns true if some replica may not have received the release at the time `then`, when the
    /// server last responded.
    pub(super) fn may_be_unreplicated(&self, then: Moment) -> bool {
        then <= self.heard + LAG
    }
}
