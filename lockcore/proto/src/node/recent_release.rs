//! A release of which the server that takes over may not know.

use std::time::Duration;

use crate::member::Member;
use crate::name::LockName;
use crate::node::moment::Moment;

/// The longest time by which a replica is behind its primary: the one by which Redis itself takes
/// it for a good one (`min-replicas-max-lag`).
const LAG: Duration = Duration::from_secs(10);

/// A member, and the moment of the answer that said that it is gone.
#[derive(Debug, Clone)]
pub(super) struct RecentRelease {
    pub(super) number: u64,
    pub(super) heard: Moment,
    pub(super) lock: LockName,
    pub(super) member: Member,
}

impl RecentRelease {
    /// Whether a replica may not have heard of its end.
    pub(super) fn may_be_known(&self, now: Moment) -> bool {
        now <= self.heard + LAG
    }
}
