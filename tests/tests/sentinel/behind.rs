//! A promoted replica that lacks the last writes; the test decides which server the sentinel names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_tests::{FakeServer, Raw, RedisServer, eventually};
use lockcore::Locks;
use redis::cmd;

use crate::asked::{master, url};
use crate::common::{SOON, connect, release, soon};

/// The lease, longer than the test: it does not end by itself.
const LEASE: Duration = Duration::from_secs(600);

/// A primary that the sentinel names, and its replica.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    at_primary: Raw,
    at_replica: Raw,
    epoch: Arc<AtomicU64>,
    sentinel: FakeServer,
}

impl Pair {
    async fn start() -> Self {
        let primary = RedisServer::options().arg("repl-diskless-sync-delay", "0").start();
        let source = format!("127.0.0.1 {}", primary.port());
        let replica = RedisServer::options().arg("replicaof", &source).start();
        let at_primary = Raw::connect(&primary.url()).await;
        let at_replica = Raw::connect(&replica.url()).await;
        let ports = [primary.port(), replica.port()];
        let epoch = Arc::new(AtomicU64::new(0));
        let named = Arc::clone(&epoch);
        let sentinel = FakeServer::start(move |words| {
            let epoch = named.load(Ordering::Relaxed);
            master(words, ports[epoch as usize], epoch)
        })
        .await;
        Self { primary, replica, at_primary, at_replica, epoch, sentinel }
    }

    async fn node(&self) -> Locks {
        connect(&url(&[&self.sentinel])).await.expect("accepted")
    }

    /// Cuts the replica off; it has all writes before.
    async fn cut(&mut self) {
        let Self { at_primary, at_replica, .. } = self;
        eventually("the replica has everything", SOON, async || {
            at_primary.ask::<()>(cmd("SET").arg("written").arg(1)).await;
            at_primary.ask::<u32>(cmd("WAIT").arg(1).arg(100)).await == 1
        })
        .await;
        at_replica.ask::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    }

    /// Ends the primary, and makes the sentinel name the replica.
    fn fail_over(self) -> (RedisServer, FakeServer) {
        drop(self.primary);
        self.epoch.store(1, Ordering::Relaxed);
        (self.replica, self.sentinel)
    }
}

/// Acquires, waiting out the time in which there is no primary.
async fn had<F, G, E>(acquire: impl Fn() -> F) -> G
where
    F: IntoFuture<Output = Result<G, E>>,
{
    lock_tests::eventually_some("it is granted", SOON, async || acquire().await.ok()).await
}

// P2: the read shares a token, and the new primary does not know the last one.
#[tokio::test]
async fn a_read_has_a_token_above_that_of_a_write_that_the_failover_lost() {
    let mut pair = Pair::start().await;
    let locks = pair.node().await;
    let before = soon("a read", locks.read("doc")).await.expect("free");
    let shared = before.fencing_token();
    before.release().await.expect("held");
    pair.cut().await;
    let write = soon("a write", locks.write("doc")).await.expect("free");
    let lost = write.fencing_token();
    write.release().await.expect("held");
    assert!(lost > shared);
    let _servers = pair.fail_over();

    let one = had(|| locks.read("doc")).await;
    assert!(one.fencing_token() > lost, "{} after {lost}", one.fencing_token());
    // Reads share it from there on as ever.
    let other = soon("a read", locks.read("doc")).await.expect("it fits");
    assert_eq!(one.fencing_token(), other.fencing_token());
}

// P1: the new primary has a hold whose release it never got.
#[tokio::test]
async fn a_hold_that_was_released_before_the_failover_keeps_nobody_out_after_it() {
    let mut pair = Pair::start().await;
    let locks = pair.node().await;
    let other = pair.node().await;
    let guard = soon("the lock", locks.key("k").lease(LEASE).lock()).await.expect("free");
    let permit =
        soon("a permit", locks.key("smtp").lease(LEASE).permits(1, 1)).await.expect("free");
    pair.cut().await;
    release(guard).await;
    permit.release().await.expect("held");
    let _servers = pair.fail_over();

    // The leases in which the new primary believes are far from their ends.
    release(had(|| other.key("k").lock()).await).await;
    had(|| other.key("smtp").permits(1, 1)).await.release().await.expect("held");
}
