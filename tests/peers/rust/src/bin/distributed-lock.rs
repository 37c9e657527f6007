//! distributed-lock on Redis with its defaults, including a lease of 30 s. It does not wait for a
//! held lock.

use distributed_lock_core::{DistributedLock as _, LockHandle as _, LockProvider as _};
use distributed_lock_redis::{RedisLockHandle, RedisLockProvider};
use lock_peer_kit::{Peer, run};

struct DistributedLock(RedisLockProvider);

impl Peer for DistributedLock {
    type Hold = RedisLockHandle;

    async fn take(&self, key: String) -> RedisLockHandle {
        self.0.create_lock(&key).acquire(None).await.expect("free")
    }

    async fn give(&self, hold: RedisLockHandle) {
        hold.release().await.expect("held");
    }
}

fn main() {
    run("distributed-lock 0.2.0", async |url| {
        DistributedLock(RedisLockProvider::new(url).await.expect("connected"))
    });
}
