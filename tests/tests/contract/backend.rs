//! `Backend`: a store shared by several nodes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_tests::{Clustered, RedisOptions, RedisServer, Watched, eventually};
use lockcore::{LockError, LockGuard, LockOptions, Locks, LocksBuilder, MemoryStore, Quorum};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// The bound of anything here; a test that waits this long has failed.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A lease much longer than a test: no event within `SOON` is caused by its end.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) enum Backend {
    Memory(MemoryStore),
    Redis(RedisServer),
    /// The URL of the sentinels.
    Sentinel(String),
    /// The URL of a Redis Cluster, and a namespace.
    Cluster(String, String),
    MemoryQuorum(Vec<MemoryStore>),
    /// The primaries.
    Quorum(Quorum),
}

/// An acquisition in a task of its own.
pub(crate) type Waiting = JoinHandle<Result<LockGuard, LockError>>;

impl Backend {
    pub(crate) fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(RedisServer::start())
    }

    /// Creates a backend on the same servers for all tests, because they take some seconds to find
    /// each other; each backend has a separate database.
    pub(crate) async fn sentinel() -> Self {
        static WATCHED: OnceCell<Watched> = OnceCell::const_new();
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let options = RedisOptions::default().arg("databases", "1024");
        let watched = WATCHED.get_or_init(|| Watched::start(options)).await;
        let database = DATABASES.fetch_add(1, Ordering::Relaxed);
        Self::Sentinel(format!("{}/{database}", watched.url()))
    }

    /// Creates a backend on the same Cluster for all tests, because it takes some seconds to form;
    /// each backend has a separate namespace.
    pub(crate) async fn cluster() -> Self {
        static CLUSTERED: OnceCell<Clustered> = OnceCell::const_new();
        static NAMESPACES: AtomicUsize = AtomicUsize::new(0);
        let clustered = CLUSTERED.get_or_init(Clustered::steady).await;
        let namespace = NAMESPACES.fetch_add(1, Ordering::Relaxed);
        Self::Cluster(clustered.url(), format!("n{namespace}"))
    }

    pub(crate) fn memory_quorum() -> Self {
        Self::MemoryQuorum([(); 3].map(|()| MemoryStore::new()).into())
    }

    /// Creates a backend on the same three servers for all tests; each backend has a separate
    /// database.
    pub(crate) async fn quorum() -> Self {
        static SERVERS: OnceCell<[RedisServer; 3]> = OnceCell::const_new();
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let options = || RedisOptions::default().arg("databases", "1024");
        let servers = SERVERS.get_or_init(async || [(); 3].map(|()| options().start())).await;
        let database = DATABASES.fetch_add(1, Ordering::Relaxed);
        let urls = servers.iter().map(|server| format!("{}{database}", server.url()));
        let quorum = Quorum::new(urls).max_lease(2 * LONG);
        Locks::builder().init_quorum(quorum.clone()).await.expect("the database is new");
        Self::Quorum(quorum)
    }

    /// Connects a new node, whose locks have a long lease.
    pub(crate) async fn node(&self) -> Locks {
        self.build(Locks::builder().defaults(LockOptions::new().lease(LONG))).await
    }

    pub(crate) async fn nodes<const N: usize>(&self) -> [Locks; N] {
        let mut nodes = Vec::with_capacity(N);
        for _ in 0..N {
            nodes.push(self.node().await);
        }
        nodes.try_into().expect("as many as asked for")
    }

    /// Whether it supports no permits, and no tokens for reads.
    pub(crate) fn is_quorum(&self) -> bool {
        matches!(self, Self::MemoryQuorum(_) | Self::Quorum(_))
    }

    /// The full name of a lock, as used by a node of this backend.
    pub(crate) fn named(&self, key: &str) -> String {
        match self {
            Self::Cluster(_, namespace) => format!("{namespace}:{key}"),
            _ => key.to_owned(),
        }
    }

    pub(crate) async fn build(&self, builder: LocksBuilder) -> Locks {
        self.try_build(builder).await.expect("a node connects")
    }

    pub(crate) async fn try_build(&self, builder: LocksBuilder) -> Result<Locks, LockError> {
        match self {
            Self::Memory(store) => builder.on_memory(store),
            Self::Redis(server) => builder.connect(server.url()).await,
            Self::Sentinel(url) => builder.connect(url).await,
            Self::Cluster(url, namespace) => builder.namespace(namespace).connect(url).await,
            Self::MemoryQuorum(stores) => builder.on_memory_quorum(stores),
            Self::Quorum(quorum) => builder.connect(quorum.clone()).await,
        }
    }
}

/// Starts to wait; on return the waiter is the last of `length` in the queue.
pub(crate) async fn wait_as(length: usize, locks: &Locks, key: &str) -> Waiting {
    let waiting = tokio::spawn(locks.lock(key));
    until_waiting(length, locks, key).await;
    waiting
}

pub(crate) async fn until_waiting(length: usize, locks: &Locks, key: &str) {
    let seen = async || waiters(locks, key).await == length;
    eventually(&format!("{length} wait for {key}"), SOON, seen).await;
}

pub(crate) async fn waiters(locks: &Locks, key: &str) -> usize {
    locks.inspect(key).await.expect("an inspection").waiters.len()
}

pub(crate) async fn is_free(locks: &Locks, key: &str) -> bool {
    let seen = locks.inspect(key).await.expect("an inspection");
    seen.holders.is_empty() && seen.waiters.is_empty()
}

/// Waits until nothing is left on the store or in the node (L3).
pub(crate) async fn until_nothing_is_left(locks: &Locks, key: &str) {
    eventually("none holds or waits", SOON, async || is_free(locks, key).await).await;
    let idle = async || {
        let status = locks.status();
        (status.waiting, status.holding, status.releasing) == (0, 0, 0)
    };
    eventually("the node has nothing left to do", SOON, idle).await;
}

/// Waits for the guard of an acquisition that ends soon.
pub(crate) async fn granted(waiting: Waiting) -> LockGuard {
    let joined = timeout(SOON, waiting).await.expect("granted in time");
    joined.expect("no panic").expect("granted")
}

/// Bounds a test: a test that hangs has failed.
pub(crate) async fn in_time(test: impl Future<Output = ()>) {
    timeout(3 * SOON, test).await.expect("the test ends");
}

/// Waits for a future that ends soon, and by itself: the final poll of a timeout does not count.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let end = timeout(SOON, what).await.expect("an end in time");
    assert!(started.elapsed() < SOON - ms(100), "ended, but none was woken");
    end
}
