//! [`LocksBuilder`], and the methods that create an in-memory `Locks`.

#[cfg(feature = "deadpool")]
mod pool;
mod quorum;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod servers;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
pub use servers::Servers;

use proto::{ConfigError, Label, MAX_BATCH, NodeId};
use tokio::runtime::Handle;

use crate::api::layout;
use crate::api::locks::Locks;
use crate::backend::Backend;
use crate::node::{Inbox, Node, Settings, WaitLimit};
use crate::option_setters;
use crate::store::Store;
use crate::store::confirmation::{Confirmation, ConfirmedBy};
use crate::store::memory::MemoryStore;
use crate::store::process;
use crate::store::seen::SeenTokens;
use crate::types::error::LockError;
use crate::types::options::LockOptions;
use crate::types::trace_links::TraceLinks;
#[cfg(feature = "redis")]
use client::Credentials;
#[cfg(feature = "redis")]
use client::Provider;
#[cfg(feature = "redis")]
use client::Tls;

/// The default of [`LocksBuilder::batch_limit`], the maximum number of waiters granted a lock
/// together. Batches of 32 save 31 of 32 hand-offs, so a higher limit saves little more. It costs
/// more when a hold is lost, because the unserved waiters of the batch can then fall back by this
/// many queue positions.
const BATCH_LIMIT: u32 = 32;

/// The minimum default of [`store_wait`](LockOptions::store_wait), the longest wait for a store
/// that does not respond, over Sentinel and on a Redis Cluster. It is longer than a failover: in
/// `docs/failures.md`, without `require_replicas` and without a second failover right after, the
/// longest failover took 6.6 s over Sentinel and 7.1 s on a Redis Cluster.
const FAILOVER: Duration = Duration::from_secs(8);

/// A builder for a [`Locks`] with custom settings; made by [`Locks::builder`].
///
/// The last call, such as `connect` or [`in_memory`](Self::in_memory), creates the `Locks`. It
/// checks the settings first, and returns [`InvalidOption`](crate::LockErrorKind::InvalidOption)
/// for a value out of range.
///
/// ```
/// # async fn example() -> Result<(), lockcore::LockError> {
/// # use std::time::Duration;
/// use lockcore::Locks;
///
/// let locks = Locks::builder()
///     .namespace("shop")
///     .label("checkout-7")
///     .lease(Duration::from_secs(10))
///     .in_memory()?;
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Debug, Clone)]
#[must_use = "call connect() or another of the finishing methods"]
pub struct LocksBuilder {
    namespace: Option<Arc<str>>,
    /// The position of the server in the quorum's list of primaries, from 1, for logs and metrics.
    /// `None` if the builder is not for a quorum primary.
    primary: Option<usize>,
    /// Whether another server replaces a failed server, as over Sentinel and on a Redis Cluster.
    /// The default `store_wait` is then at least [`FAILOVER`].
    fails_over: bool,
    channel_prefix: Arc<str>,
    label: Option<Label>,
    class: Option<Box<str>>,
    defaults: LockOptions,
    confirm_grants: bool,
    replicas: Option<(u32, Duration)>,
    fsync: bool,
    redact_names: bool,
    request_timeout: Duration,
    #[cfg(feature = "redis")]
    connect_timeout: Duration,
    max_waiting: u32,
    redisson_peers: bool,
    /// The maximum batch size; `None` for the default. Quorums and queues shared with JVMs have no
    /// batches.
    batch_limit: Option<u32>,
    trace_links: Option<Arc<dyn TraceLinks>>,
    #[cfg(feature = "redis")]
    tls: Tls,
    #[cfg(feature = "redis")]
    credentials: Provider<Credentials>,
}

impl Locks {
    /// Creates a `Locks` in the memory of this process, without a server. Order, leases, tokens and
    /// errors are the same as on a server. For tests and single-process programs.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    pub fn in_memory() -> Self {
        Self::builder().in_memory().expect("the default options are valid")
    }

    /// Returns a builder, to set a namespace, a label, default options and more before connecting.
    pub fn builder() -> LocksBuilder {
        LocksBuilder::new()
    }
}

impl LocksBuilder {
    pub(crate) fn new() -> Self {
        Self {
            namespace: None,
            primary: None,
            fails_over: false,
            channel_prefix: Arc::from("lockcore"),
            label: None,
            class: None,
            defaults: LockOptions::new(),
            confirm_grants: false,
            replicas: None,
            fsync: false,
            redact_names: false,
            request_timeout: Duration::from_secs(2),
            #[cfg(feature = "redis")]
            connect_timeout: Duration::from_secs(5),
            max_waiting: 100_000,
            redisson_peers: false,
            batch_limit: None,
            trace_links: None,
            #[cfg(feature = "redis")]
            tls: Tls::default(),
            #[cfg(feature = "redis")]
            credentials: Provider::default(),
        }
    }

    /// Sets a prefix for all lock names: in the namespace `shop`, the name `order:42` is stored as
    /// `shop:order:42`. So no name from a request can be a key outside the namespace. 1 to 64
    /// bytes, without colon, braces, percent sign or control characters; none by default. A
    /// restricted Redis user needs access to all keys of the namespace; connecting checks this.
    pub fn namespace(mut self, namespace: impl AsRef<str>) -> Self {
        self.namespace = Some(Arc::from(namespace.as_ref()));
        self
    }

    /// Sets the first part of the names of the Pub/Sub channels that announce grants; `lockcore` by
    /// default. For servers that restrict each tenant to separate channels. All processes that
    /// share a lock must use the same prefix. 1 to 64 bytes, without colon, braces, percent sign or
    /// control characters.
    pub fn channel_prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.channel_prefix = Arc::from(prefix.as_ref());
        self
    }

    /// Sets the label: a text that names this process's holders and waiters in
    /// [`inspect`](Locks::inspect), and the connections in `CLIENT LIST`; cut to 64 bytes. The
    /// default is `host:pid`, which [`processes`](Locks::processes) still returns if a label is
    /// set.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Some(Label::new(label.as_ref()));
        self
    }

    /// Sets the default [class](crate::LockRequest::class), the name under which metrics group
    /// acquisitions, for acquisitions and [sets](Locks::lock_all) that set no class. Cut to 64
    /// bytes. Without this setting, the class is `default`.
    pub fn class(mut self, class: impl AsRef<str>) -> Self {
        self.class = Some(class.as_ref().into());
        self
    }

    /// Sets the default options of acquisitions. An option set by an acquisition takes precedence.
    /// Options that are unset in `defaults` stay as they are.
    pub fn defaults(mut self, defaults: LockOptions) -> Self {
        self.defaults = defaults.or(self.defaults);
        self
    }

    option_setters! { defaults:
        /// Sets the default [`lease`](LockOptions::lease): how long a lock stays held after its
        /// process dies.
        lease,
        /// Sets a default lease that is [never renewed](LockOptions::fixed_lease), so that a hold
        /// ends after this time.
        fixed_lease,
        /// Sets the default [`wait`](LockOptions::wait): how long an acquisition waits for the
        /// lock.
        wait,
        /// Lets acquisitions [wait without a time limit](LockOptions::wait_forever) by default.
        wait_forever,
        /// Sets the default [`store_wait`](LockOptions::store_wait): how long an acquisition waits
        /// for a store that does not respond.
        store_wait,
        /// Sets the default [`queue_limit`](LockOptions::queue_limit): the maximum number of
        /// waiters for a lock.
        queue_limit,
        /// Sets the default [`max_hold`](LockOptions::max_hold): how long a lock may be held.
        max_hold,
        /// Sets the default [`when_busy`](LockOptions::when_busy): what to do when a lock is busy.
        when_busy,
    }

    /// If `true`, confirms each grant that arrives as a message: the hold is renewed on the server
    /// before the guard is returned, which costs an extra round trip per hand-off. So is a message
    /// that a newer request has [replaced](crate::WhenBusy::KeepNewest) a waiter. For servers where
    /// other programs could publish false messages to the channels. Off by default.
    pub fn confirm_grants(mut self, confirm: bool) -> Self {
        self.confirm_grants = confirm;
        self
    }

    /// Returns a guard only after `count` replicas of the primary have acknowledged the grant,
    /// within `timeout`. So after a failover to one of these replicas, the new primary knows the
    /// grant. If fewer acknowledge, the grant is released, and the request fails with
    /// [`Unavailable`](crate::LockErrorKind::Unavailable), which reports how many did.
    ///
    /// Renewals have to be acknowledged, too: a guard's [deadline](crate::LockGuard::deadline)
    /// follows from the last renewal acknowledged by `count` replicas. So a hold is lost when fewer
    /// than `count` replicas are connected for longer than the lease.
    ///
    /// Grants and renewals use up to four separate connections, where a single `WAIT` covers
    /// everything in flight: each grant costs two more round trips, plus the time of the replicas.
    /// Releases do not wait. A failover that forgets a grant becomes rarer, not impossible: the
    /// sentinels may promote a replica that did not acknowledge it, unless all replicas have to.
    /// Protect writes that must not happen twice with the [fencing token](crate::guide::fencing).
    ///
    /// `count` is 1 to 16. `timeout` is at least 1 ms and less than the
    /// [`request_timeout`](Self::request_timeout). It should be below half of the shortest
    /// [claim](crate::guide::leases), the lease of a lock granted after a wait until its first
    /// renewal (a third of the lease, 2 to 10 s). The Redis user needs the right `+wait`, and
    /// before Redis 7.0 `+info`, which shows that confirmations and commands have the same server.
    /// Not for in-memory stores or quorums. Off by default.
    pub fn require_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.replicas = Some((count, timeout));
        self
    }

    /// If `true`, returns a guard only once the grant is on the server's disk, so that the grant
    /// survives a crash of the server and the loss of its power. Set `appendfsync always` on the
    /// server, because with `appendfsync everysec` each grant takes a second or two. Off by
    /// default.
    ///
    /// The server needs `appendonly yes` and Redis or Valkey 7.2 or newer, and the Redis user the
    /// right `+waitaof`. Connecting checks this: it writes once and waits for the disk, and an
    /// error names the setting to change. `everysec` is refused on Valkey and on Redis before 8.2,
    /// where `WAITAOF` does not wait for the disk; on these servers, the Redis user also needs the
    /// right `+config|get`. A grant that is not on the disk in time is released, and the request
    /// fails with [`Unavailable`](crate::LockErrorKind::Unavailable). Renewals have to be on the
    /// disk, too: a guard's [deadline](crate::LockGuard::deadline) follows from the last renewal on
    /// the disk. So a hold is lost when the disk takes longer than the lease.
    ///
    /// The longest time for the disk is the timeout of [`require_replicas`](Self::require_replicas)
    /// if set, else the [`request_timeout`](Self::request_timeout). It has to be below a third of
    /// each lease: building and requests refuse a shorter lease. With `require_replicas(n, …)` *n*
    /// replicas need the write on their disks, too (`WAITAOF 1 n`), so a replica without
    /// `appendonly yes` does not count. `WAITAOF` uses the four connections of `require_replicas`.
    ///
    /// Returns [`InvalidOption`](crate::LockErrorKind::InvalidOption) when connecting to an
    /// in-memory store, to a quorum, or with your own [`redis::Client`](crate::Servers) or pool,
    /// and for requests with [`leave_in_outage`](crate::LockRequest::leave_in_outage), which
    /// `fail_open` of lock-tower's layers sets.
    pub fn require_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// If `true`, keeps lock names out of the logs, and out of the results of
    /// [`activity`](Locks::activity), [`survey`](Locks::survey) and [`hottest`](Locks::hottest).
    /// Off by default. Guards, keys in the store, and possibly errors still contain the names.
    pub fn redact_names(mut self, redact: bool) -> Self {
        self.redact_names = redact;
        self
    }

    /// Sets the time limit for a request to the server; 2 s by default, 50 ms to a minute. A slower
    /// request fails, and a PING checks whether the connection must be replaced. Keep the limit
    /// below [two fifths of the shortest claim](crate::guide::leases#how-long); otherwise a slow
    /// response to a renewal can cost the hold.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets how many acquisitions of this `Locks` may wait at the same time, over all locks;
    /// 100 000 by default, at least 1. Further acquisitions fail with
    /// [`QueueFull`](crate::LockErrorKind::QueueFull), even if the lock is free, because nothing is
    /// sent to find out. Acquisitions that do not wait (`try_lock`, a wait of zero) are not
    /// limited. On a quorum, an acquisition counts once, at however many primaries it waits.
    ///
    /// [`queue_limit`](LockOptions::queue_limit) bounds the queue of a single lock; `max_waiting`
    /// bounds the memory of all waits, where names come from requests. Each wait costs about 1.5 kB
    /// in this process, 1.9 kB with a separate task, and 185 bytes on the server.
    pub fn max_waiting(mut self, attempts: u32) -> Self {
        self.max_waiting = attempts;
        self
    }

    /// Sets the maximum batch size, 1 to 64; 32 by default. Up to this many consecutive waiters of
    /// this `Locks` are granted a lock together: a *batch*. This process serves them in turn,
    /// mostly without [a round trip](crate::guide::choosing#cost) in between. With 1, each waiter
    /// is granted the lock alone. The waiters of a batch have the same
    /// [label](crate::LockRequest::label) and lease. Waiters for reads and permits form no batch.
    ///
    /// The queue order stays the same, and each guard in a batch has a separate token, deadline and
    /// loss. After a [downgrade](crate::LockGuard::downgrade) or a [leak](crate::LockGuard::leak)
    /// of a guard, the unserved batch members return to the head of the queue. They also return
    /// when the hold is lost or [released by force](Locks::force_release), but then behind the
    /// waiters that are granted the lock at that moment. [`inspect`](Locks::inspect) shows a single
    /// batch member as the holder and the others as waiters, up to a second out of date.
    ///
    /// Holds with a [fixed lease](LockOptions::fixed_lease) or a [longest
    /// hold](LockOptions::max_hold) join no batch. There are no batches with
    /// [`redisson_peers`](Self::redisson_peers), or on a quorum, which refuses a limit above 1.
    pub fn batch_limit(mut self, members: u32) -> Self {
        self.batch_limit = Some(members);
        self
    }

    /// Labels each request with the caller's trace context, in place of the [label](Self::label) of
    /// this `Locks`, and links the span of each wait to the requests that hold the lock. A label
    /// set by a request or a layer is kept.
    ///
    /// Off by default. Turns on [`record_holders`](crate::LockRequest::record_holders) for all
    /// requests, at the cost described there. Everyone who may inspect sees the trace contexts.
    /// Requests of different traces share no [batch](Self::batch_limit).
    pub fn trace_links(mut self, links: impl TraceLinks) -> Self {
        self.trace_links = Some(Arc::new(links));
        self
    }

    /// If `true`, shares each lock's queue with JVMs that use Redisson's `getFairLock` on the same
    /// name. Off by default. Without the feature `redisson`, `true` is an
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption).
    ///
    /// When off, a JVM and this process do **not** exclude each other, because their keys differ.
    /// When on, all are served in order of arrival, but only with locks: reads, permits and
    /// downgrades are [`Unsupported`](crate::LockErrorKind::Unsupported). It costs a pattern
    /// subscription per `Locks`, longer hand-offs, and two exceptions to "every key expires": the
    /// keys of a queue live as long as it has a waiter, and each lock's fencing token is kept for
    /// good, because an `RFencedLock` continues from it.
    ///
    /// Set it alike in every process that shares a lock: on and off are two different locks. The
    /// Redis user needs other rights: see [`guide::redis`](crate::guide::redis). The project's
    /// `docs/redisson.md` lists how a JVM can still break a queue.
    pub fn redisson_peers(mut self, peers: bool) -> Self {
        self.redisson_peers = peers;
        self
    }

    /// Creates a `Locks` in the memory of this process, without a server: see [`Locks::in_memory`].
    ///
    /// # Errors
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption) if an option is out of its range, or
    /// if [`require_replicas`](Self::require_replicas) or [`require_fsync`](Self::require_fsync) is
    /// set.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    pub fn in_memory(self) -> Result<Locks, LockError> {
        self.on_memory(&MemoryStore::new())
    }

    /// Creates a `Locks` on an in-memory store, which acts as the server. Each call adds another
    /// client, like a further process: for tests of several processes.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::LockErrorKind::InvalidOption) if an option is out of its range, or
    /// if [`require_replicas`](Self::require_replicas) or [`require_fsync`](Self::require_fsync) is
    /// set.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    pub fn on_memory(self, store: &MemoryStore) -> Result<Locks, LockError> {
        self.check()?;
        if let Some(confirmation) = self.confirmation() {
            let range = "unset: in-memory stores have neither replicas nor a disk";
            return Err(confirmation.refused(range).into());
        }
        Ok(Locks { backend: Backend::of_node(self.memory_node(store, new_node(), None)) })
    }

    fn memory_node(
        &self,
        store: &MemoryStore,
        id: NodeId,
        seen: Option<Arc<SeenTokens>>,
    ) -> Arc<Node> {
        let inbox = Inbox::default();
        let listener = Arc::new(inbox.clone());
        let store = store.connect_as(id.clone(), listener, layout::of(self.redisson_peers), seen);
        self.node(store, id, &inbox)
    }

    #[cfg(any(feature = "redis", test))]
    pub(crate) fn build(&self, store: Arc<dyn Store>, id: NodeId, inbox: &Inbox) -> Locks {
        Locks { backend: Backend::of_node(self.node(store, id, inbox)) }
    }

    /// Returns a copy of this builder for the quorum primary at index `at`, with this position in
    /// logs and metrics.
    pub(crate) fn of_primary(&self, at: usize) -> Self {
        Self { primary: Some(at + 1), ..self.clone() }
    }

    pub(crate) fn node(&self, store: Arc<dyn Store>, id: NodeId, inbox: &Inbox) -> Arc<Node> {
        let settings = Settings {
            namespace: self.namespace.clone(),
            primary: self.primary,
            label: self.label.clone().unwrap_or_else(|| Label::new(&process::of_this())),
            class: self.class.clone().unwrap_or_default(),
            defaults: self.defaults,
            confirm_grants: self.confirm_grants,
            confirmation: self.confirmation(),
            redact_names: self.redact_names,
            request_timeout: self.request_timeout,
            store_wait: self.default_store_wait(),
            layout: layout::of(self.redisson_peers),
            batch_limit: self.batch_limit.unwrap_or(BATCH_LIMIT),
            trace_links: self.trace_links.clone(),
            wait_limit: self.primary.is_none().then(|| WaitLimit::new(self.max_waiting)),
        };
        Node::start(store, id, settings, Handle::current(), inbox)
    }

    /// Returns which confirmation by replicas or by the disk a grant or a renewal needs before it
    /// counts, or `None` if the server's reply is enough. With `require_fsync`, the replicas of
    /// `require_replicas` need the write on their disks, too.
    fn confirmation(&self) -> Option<Confirmation> {
        let by = match (self.fsync, self.replicas) {
            (true, replicas) => {
                ConfirmedBy::Fsync { replicas: replicas.map_or(0, |(count, _)| count) }
            }
            (false, Some((count, _))) => ConfirmedBy::Replicas(count),
            (false, None) => return None,
        };
        let timeout = self.replicas.map_or(self.request_timeout, |(_, timeout)| timeout);
        Some(Confirmation { by, timeout })
    }

    /// Returns the `store_wait` of requests that set none: the request timeout. Where another
    /// server replaces a failed server, it is at least [`FAILOVER`].
    fn default_store_wait(&self) -> Duration {
        match self.fails_over {
            true => self.request_timeout.max(FAILOVER),
            false => self.request_timeout,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.defaults.check()?;
        if let Some(namespace) = &self.namespace {
            check_prefix("namespace", namespace)?;
        }
        check_prefix("channel_prefix", &self.channel_prefix)?;
        layout::check(self.redisson_peers)?;
        if self.max_waiting == 0 {
            return Err(ConfigError::new("max_waiting", "0", "1 or more"));
        }
        if let Some(limit) =
            self.batch_limit.filter(|limit| !(1..=MAX_BATCH as u32).contains(limit))
        {
            return Err(ConfigError::new("batch_limit", limit.to_string(), "1 to 64"));
        }
        if let Some((count, timeout)) = self.replicas {
            let is_in_time = (Duration::from_millis(1)..self.request_timeout).contains(&timeout);
            if !(1..=16).contains(&count) || !is_in_time {
                let range = "1 to 16, with a timeout of at least 1 ms and below request_timeout";
                let value = format!("{count} within {timeout:?}");
                return Err(ConfigError::new("require_replicas", value, range));
            }
        }
        if let Some(confirmation) = self.confirmation() {
            confirmation.check_lease(self.defaults.checked()?.lease)?;
        }
        check_time("request_timeout", self.request_timeout)?;
        #[cfg(feature = "redis")]
        check_time("connect_timeout", self.connect_timeout)?;
        Ok(())
    }
}

fn check_time(option: &'static str, time: Duration) -> Result<(), ConfigError> {
    let is_in_range = (Duration::from_millis(50)..=Duration::from_secs(60)).contains(&time);
    let refused = || ConfigError::new(option, format!("{time:?}"), "50 ms to 60 s");
    is_in_range.then_some(()).ok_or_else(refused)
}

/// Returns a new node id of 128 random bits.
pub(crate) fn new_node() -> NodeId {
    NodeId::from(rand::random::<u128>())
}

/// Checks the length and the characters of a namespace or channel prefix. Colons are refused,
/// because a colon follows the prefix in key and channel names. `option` is the name in the error.
fn check_prefix(option: &'static str, value: &str) -> Result<(), ConfigError> {
    let is_bad = |c: char| c.is_control() || matches!(c, ':' | '{' | '}' | '%');
    if value.is_empty() || value.len() > 64 || value.contains(is_bad) {
        let range = "1 to 64 bytes without colon, brace, percent sign or control character";
        return Err(ConfigError::new(option, format!("{value:?}"), range));
    }
    Ok(())
}
