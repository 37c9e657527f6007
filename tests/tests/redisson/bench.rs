//! `Bench`: a server, a node of ours that shares queues with JVMs, and a look at the keys.

use std::time::Duration;

use lock_tests::{Raw, RedisServer, eventually};
use lockcore::{LockError, LockGuard, Locks};
use redis::cmd;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::jvm::Jvm;

pub(crate) const KEY: &str = "shared";
pub(crate) const QUEUE: &str = "redisson_lock_queue:{shared}";
pub(crate) const SCORES: &str = "redisson_lock_timeout:{shared}";
pub(crate) const ALIVE: &str = "redisson_lock_alive:{shared}";
pub(crate) const ARRIVALS: &str = "redisson_lock_arrivals:{shared}";
pub(crate) const TOKEN: &str = "redisson_lock_token:{shared}";

/// The bound of anything that happens at once, on a machine that is busy with other things.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) type Waiting = JoinHandle<Result<LockGuard, LockError>>;

pub(crate) struct Bench {
    pub(crate) server: RedisServer,
    pub(crate) redis: Raw,
    pub(crate) locks: Locks,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start();
        let redis = Raw::connect(&server.url()).await;
        let locks = connect(&server.url()).await;
        Self { server, redis, locks }
    }

    pub(crate) async fn jvm(&self) -> Jvm {
        Jvm::start(&self.server.url()).await
    }

    /// Connects another node of ours.
    pub(crate) async fn node(&self) -> Locks {
        connect(&self.server.url()).await
    }

    pub(crate) async fn hold(&self) -> LockGuard {
        timeout(SOON, self.locks.lock(KEY)).await.expect("in time").expect("free")
    }

    /// Starts an attempt, which stands in the queue when this returns.
    pub(crate) async fn wait(&mut self, locks: &Locks) -> Waiting {
        let before = self.waiting().await.len();
        let acquire = locks.lock(KEY);
        let waiting = tokio::spawn(acquire);
        self.until_waiting(before + 1).await;
        waiting
    }

    /// Starts a thread of a JVM, which stands in the queue, and listens, when this returns.
    pub(crate) async fn wait_in(&mut self, jvm: &mut Jvm, what: &str, thread: &str, more: &str) {
        let member = jvm.member(thread).await;
        jvm.begin(what, thread, more);
        self.until_heard(KEY, &member).await;
        assert!(self.waiting().await.contains(&member));
    }

    /// Waits until the thread of a JVM would hear that it is to come for `lock`.
    pub(crate) async fn until_heard(&mut self, lock: &str, member: &str) {
        let channel = format!("redisson_lock__channel:{{{lock}}}:{member}");
        let redis = &mut self.redis;
        let listens = async || redis.subscribers(&channel).await > 0;
        eventually("the thread listens", SOON, listens).await;
    }

    pub(crate) async fn waiting(&mut self) -> Vec<String> {
        self.redis.list(QUEUE).await
    }

    pub(crate) async fn until_waiting(&mut self, count: usize) {
        let redis = &mut self.redis;
        let queued = async || redis.list_length(QUEUE).await == count;
        eventually("as many wait", SOON, queued).await;
    }

    pub(crate) async fn now_ms(&mut self) -> i64 {
        (self.redis.time_us().await / 1_000) as i64
    }

    pub(crate) async fn score(&mut self, member: &str) -> Option<i64> {
        self.redis.ask(cmd("ZSCORE").arg(SCORES).arg(member)).await
    }

    /// Waits until nothing is left of the queue and the hold.
    pub(crate) async fn nothing_is_left(&mut self) {
        for key in [KEY, QUEUE, SCORES, ALIVE, ARRIVALS] {
            assert!(!self.redis.exists(key).await, "{key} is still there");
        }
    }
}

pub(crate) async fn connect(url: &str) -> Locks {
    let connecting = Locks::builder().redisson_peers(true).connect(url);
    timeout(SOON, connecting).await.expect("in time").expect("the server accepts us")
}

/// Waits for the guard of an attempt whose turn comes.
pub(crate) async fn granted(waiting: Waiting) -> LockGuard {
    timeout(SOON, waiting).await.expect("in time").expect("no panic").expect("granted")
}

pub(crate) async fn release(guard: LockGuard) {
    timeout(SOON, guard.release()).await.expect("in time").expect("still held");
}
