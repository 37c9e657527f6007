//! `Three`: three servers, the primaries of a quorum.

use std::time::Duration;

use lock_tests::RedisServer;
use lockcore::{Locks, LocksBuilder, Quorum};

/// The bound of anything here; a test that waits this long has failed.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The longest lease: a primary that has restarted counts after this time and a second.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(3);

pub(crate) struct Three(pub(crate) [RedisServer; 3]);

impl Three {
    /// Servers unused by any process.
    pub(crate) fn start() -> Self {
        Self([(); 3].map(|()| RedisServer::start()))
    }

    /// The same servers, which count at once.
    pub(crate) async fn begun() -> Self {
        let three = Self::start();
        Locks::builder().lease(MAX_LEASE).init_quorum(three.quorum()).await.expect("they are new");
        three
    }

    pub(crate) fn quorum(&self) -> Quorum {
        Quorum::new(self.0.iter().map(RedisServer::url)).max_lease(MAX_LEASE)
    }

    pub(crate) async fn locks(&self) -> Locks {
        self.build(Locks::builder()).await
    }

    pub(crate) async fn build(&self, builder: LocksBuilder) -> Locks {
        builder.lease(MAX_LEASE).connect(self.quorum()).await.expect("connected")
    }
}
