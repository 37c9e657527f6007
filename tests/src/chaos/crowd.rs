//! A crowd: one node that waits for many locks at the same time, behind a proxy.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use lockcore::{LockGuard, Locks};
use redis::cmd;
use tokio::task::JoinSet;

use crate::{PATIENCE_MS, Proxy, Raw, RedisServer, eventually, patience_key, queue_key};

/// The request timeout of the waiting node.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// The holder's lease, so long that nothing is renewed: every script belongs to the waiting node.
const HELD_FOR: Duration = Duration::from_secs(600);
/// How many queues a script reads, and how many acquires are under way at once.
const PART: usize = 250;
const SOON: Duration = Duration::from_secs(60);

/// A script that reads the node's liveness deadline in each queue: how many queues have no waiter,
/// in how many the deadline has passed, and the lowest deadline in ms. KEYS: queues, then the
/// liveness keys.
const LOOK: &str = "
    local time = redis.call('TIME')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    local missing, passed, lowest = 0, 0, 9007199254740991
    local count = #KEYS / 2
    for i = 1, count do
      local left = redis.call('PTTL', KEYS[count + i])
      if redis.call('EXISTS', KEYS[i]) == 0 then
        missing = missing + 1
      elseif left <= 0 then
        passed = passed + 1
      else
        lowest = math.min(lowest, now + left)
      end
    end
    return { missing, passed, lowest }";

/// The server's state of some queues, counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// How many queues have no waiter.
    pub missing: usize,
    /// In how many queues a node was silent for too long.
    pub passed: usize,
    /// The earliest time at which a waiter will have been silent for too long, in ms by the
    /// server's clock.
    pub lowest_ms: u64,
}

/// A node waiting for many locks held by another node.
#[derive(Debug)]
pub struct Crowd {
    /// A connection that bypasses the proxy.
    pub redis: Raw,
    /// The proxy in front of the waiting node only.
    pub proxy: Proxy,
    /// The waiting node.
    pub locks: Locks,
    /// The server of both nodes.
    pub server: RedisServer,
    names: Vec<String>,
    accepted: u64,
    _waiting: JoinSet<()>,
    _held: Vec<LockGuard>,
}

impl Crowd {
    /// Starts a node that waits for `keys` locks.
    ///
    /// # Panics
    ///
    /// If the node does not wait for all of them in time.
    pub async fn start(keys: usize) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.address());
        let mut redis = Raw::connect(&server.url()).await;
        let holder = Locks::connect(server.url()).await.expect("the server accepts a node");
        // Each attempt must be queued, however slow the machine is.
        let builder = Locks::builder().request_timeout(REQUEST_TIMEOUT).store_wait(Duration::MAX);
        let locks = builder.connect(proxy.url()).await.expect("the server accepts a node");
        let names: Vec<String> = (0..keys).map(|key| format!("k{key}")).collect();
        let held = hold_all(&holder, &names, HELD_FOR).await;
        let mut waiting = JoinSet::new();
        for names in names.chunks(PART) {
            for name in names {
                let acquire = locks.lock(name);
                waiting.spawn(async move { drop(acquire.await) });
            }
            eventually("all of this part wait", SOON, async || {
                look_at(&mut redis, &locks, names).await.missing == 0
            })
            .await;
        }
        let accepted = proxy.accepted();
        Self { redis, proxy, locks, server, names, accepted, _waiting: waiting, _held: held }
    }

    /// Reads the server's state of all queues, in parts, so that the server is not kept busy.
    pub async fn look(&mut self) -> Look {
        let mut all = Look { missing: 0, passed: 0, lowest_ms: u64::MAX };
        for part in self.names.chunks(PART) {
            let Look { missing, passed, lowest_ms } =
                look_at(&mut self.redis, &self.locks, part).await;
            all.missing += missing;
            all.passed += passed;
            all.lowest_ms = all.lowest_ms.min(lowest_ms);
        }
        all
    }

    /// Waits until every waiter was touched since the server's clock showed `since_us`.
    ///
    /// # Panics
    ///
    /// If a waiter is missing.
    pub async fn touched_since(&mut self, since_us: u64) {
        eventually("every waiter is touched", SOON, async || {
            let look = self.look().await;
            assert_eq!(look.missing, 0, "gone");
            Self::is_touched_since(&look, since_us)
        })
        .await;
    }

    /// Whether every waiter was touched since the server's clock showed `since_us`.
    pub(super) fn is_touched_since(look: &Look, since_us: u64) -> bool {
        look.lowest_ms > since_us / 1_000 + PATIENCE_MS.unsigned_abs()
    }

    /// Returns how many connections the node has opened since it began to wait.
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.proxy.accepted() - self.accepted
    }
}

async fn look_at(redis: &mut Raw, waiting: &Locks, names: &[String]) -> Look {
    let node = waiting.node();
    let queues = names.iter().map(|name| queue_key(name));
    let patience = names.iter().map(|name| patience_key(name, node.as_str()));
    let keys: Vec<String> = queues.chain(patience).collect();
    let mut look = cmd("EVAL");
    look.arg(LOOK).arg(keys.len()).arg(keys);
    let (missing, passed, lowest_ms) = redis.ask(&look).await;
    Look { missing, passed, lowest_ms }
}

/// Acquires all of these locks with a fixed lease.
async fn hold_all(locks: &Locks, names: &[String], lease: Duration) -> Vec<LockGuard> {
    let acquire = |name: &String| {
        let acquire = locks.key(name).fixed_lease(lease).lock();
        async { acquire.await.expect("the lock is free") }
    };
    stream::iter(names).map(acquire).buffer_unordered(PART).collect().await
}
