//! The fair lock of the crate redisson with its defaults, including a lease of 30 s, except for the
//! number of connections. `lock` fails while another task holds the lock; the call that waits
//! repeats it after 50 ms.

use std::time::Duration;

use lock_peer_kit::{Peer, run};
use redisson::{AsyncRFairLock, AsyncRedissonClient, RedissonConfig};

/// One for each task: more calls at a time than connections, 10 by default, stall for 3 s.
const CONNECTIONS: u32 = 256;

struct Redisson(AsyncRedissonClient);

impl Peer for Redisson {
    type Hold = AsyncRFairLock;

    async fn take(&self, key: String) -> AsyncRFairLock {
        let lock = self.0.get_fair_lock(&key);
        assert!(lock.try_lock_with_timeout(Duration::MAX).await.expect("no error"), "taken");
        lock
    }

    async fn give(&self, hold: AsyncRFairLock) {
        // Returns `false` for a released lock, too.
        hold.unlock().await.expect("no error");
    }
}

fn main() {
    run("redisson 0.1.0", async |url| {
        let config = RedissonConfig::single_server(&url).with_pool_size(CONNECTIONS);
        Redisson(AsyncRedissonClient::new(config).await.expect("connected"))
    });
}
