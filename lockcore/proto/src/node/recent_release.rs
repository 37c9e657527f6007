//! A release possibly unknown to a server that takes over.

use std::time::Duration;

use crate::member::Member;
use crate::name::LockName;
use crate::node::moment::Moment;

/// Maximum replica lag: the limit up to which Redis considers a replica good
/// (`min-replicas-max-lag`).
const LAG: Duration = Duration::from_secs(10);

/// A member that is gone, and when this node learned of it.
#[derive(Debug, Clone)]
pub(super) struct RecentRelease {
    pub(super) number: u64,
    pub(super) heard: Moment,
    pub(super) lock: LockName,
    pub(super) member: Member,
}

impl RecentRelease {
    /// Returns whether a replica may not have received the release yet.
    pub(super) fn may_be_known(&self, now: Moment) -> bool {
        now <= self.heard + LAG
    }
}
