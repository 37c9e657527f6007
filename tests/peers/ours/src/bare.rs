//! The baseline: `SET NX PX`, and compare and delete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lock_peer_kit::Peer;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::{connect, load};

const SET: &str = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A client that does the minimum of a lock: two scripts on one multiplexed connection. It retries
/// at once while the lock is held.
pub struct Bare {
    redis: MultiplexedConnection,
    set: String,
    delete: String,
    mutex: Option<Arc<Mutex<()>>>,
    taken: AtomicU64,
}

/// The value in the key, and the turn among the other tasks of this process.
pub struct BareHold {
    key: String,
    owner: String,
    _first: Option<OwnedMutexGuard<()>>,
}

impl Bare {
    /// Connects. With the mutex, a fair mutex of the process guards the lock; this works for a
    /// single lock only.
    pub async fn connect(url: &str, has_mutex: bool) -> Self {
        let mut redis = connect(url).await;
        let set = load(&mut redis, SET).await;
        let delete = load(&mut redis, DELETE).await;
        Self { redis, set, delete, mutex: has_mutex.then(Arc::default), taken: AtomicU64::new(0) }
    }
}

impl Peer for Bare {
    type Hold = BareHold;

    async fn take(&self, key: String) -> BareHold {
        let first = match &self.mutex {
            Some(mutex) => Some(Arc::clone(mutex).lock_owned().await),
            None => None,
        };
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}:{number}", std::process::id());
        let mut set = cmd("EVALSHA");
        set.arg(&self.set).arg(1).arg(&key).arg(&owner).arg(30_000);
        let mut redis = self.redis.clone();
        while set.query_async::<Option<String>>(&mut redis).await.expect("answered").is_none() {}
        BareHold { key, owner, _first: first }
    }

    async fn give(&self, hold: BareHold) {
        let mut delete = cmd("EVALSHA");
        delete.arg(&self.delete).arg(1).arg(&hold.key).arg(&hold.owner);
        let deleted: i64 = delete.query_async(&mut self.redis.clone()).await.expect("answered");
        assert_eq!(deleted, 1, "the lease is longer than any turn");
    }
}
