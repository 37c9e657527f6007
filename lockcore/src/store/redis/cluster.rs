//! The Redis Cluster store. Each primary of the Cluster is a *shard* with separate connections, and
//! each lock is on the shard that serves the lock's slot.
//!
//! # Implementation notes
//!
//! - A shard contains the store of a single server, with connections, subscription and times. So a
//!   node is present as on a single server: a script counts the subscribers at the primary that
//!   runs it. The channel names contain the server's name, because a Cluster forwards each message
//!   to all servers.

mod following;
mod routing;
mod slots;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::{Cluster, Credentials, Provider, Timeouts, Tls, nodes_of};
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use proto::node::{Lanes, RequestGroup, commands};
use proto::wire::keys::NodeKey;
use proto::wire::redirect::Route;
use proto::{
    Answer, Command, FencingToken, Label, Link, LockErrorKind, LockName, Mode, NodeId, StoreError,
    Topology,
};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::following::refresh_topology;
use self::routing::Way;
use self::slots::{Shard, Slots};
use super::in_flight::InFlight;
use crate::operate::status::ServerStatus;
use crate::store::confirmation::Confirmation;
use crate::store::{Listener, Outage, Replied, Replies, Search, Store, StoreFuture, Then, begin};
use crate::types::error::LockError;

/// Settings for a Redis Cluster store.
pub(crate) struct ClusterSettings {
    pub(crate) tls: Tls,
    pub(crate) credentials: Provider<Credentials>,
    pub(crate) node: NodeId,
    /// Prefix of the channel names. Servers publish grants on these channels.
    pub(crate) prefix: Arc<str>,
    /// This node's label in the connection names, for operators.
    pub(crate) label: Option<Label>,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) confirmation: Option<Confirmation>,
}

/// A node's connections to a Redis Cluster.
pub(crate) struct ClusterStore(Arc<Shared>);

struct Shared {
    settings: ClusterSettings,
    listener: Arc<dyn Listener>,
    runtime: Handle,
    /// The Cluster servers given by the user. They are queried for the primaries at connect, and
    /// later if no connected primary returns the topology.
    seeds: Vec<ConnectionInfo>,
    slots: Mutex<Slots>,
    /// True if a slot has moved to another shard since the core was last notified of moves.
    has_moved: AtomicBool,
    commands: watch::Sender<Link>,
    subscription: watch::Sender<Link>,
    /// Changes with each connection to a primary.
    server_links: watch::Sender<()>,
    /// Wakes the topology refresh. Notified when the known topology may be outdated.
    outdated: Notify,
    closed: CancellationToken,
}

impl ClusterStore {
    /// Connects to a Cluster. Returns once all primaries that serve a slot are connected.
    pub(crate) async fn connect(
        cluster: &Cluster,
        settings: ClusterSettings,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, LockError> {
        let seeds = nodes_of(cluster)?;
        check(&seeds)?;
        let store = Self(Arc::new(Shared {
            settings,
            listener,
            runtime: Handle::current(),
            seeds,
            slots: Mutex::new(Slots::new()),
            has_moved: AtomicBool::new(false),
            commands: watch::Sender::new(Link::Up),
            subscription: watch::Sender::new(Link::Up),
            server_links: watch::Sender::new(()),
            outdated: Notify::new(),
            closed: CancellationToken::new(),
        }));
        let shared = &store.0;
        let primaries = shared.query_first().await?;
        let serving = primaries.into_iter().filter(|primary| !primary.slots.is_empty());
        let opened = join_all(serving.map(|primary| shared.open(primary))).await;
        for opened in opened {
            let (shard, primary) = opened?;
            shared.take_in(&shard, &primary);
        }
        // The first topology is not a move.
        shared.has_moved.store(false, Ordering::Release);
        tokio::spawn(refresh_topology(Arc::clone(shared)));
        Ok(store)
    }

    /// Sends a request group to the shard that serves the group's slot, and follows redirects.
    /// `send` sends the group to a given shard, and `then` receives the replies.
    fn route(
        &self,
        route: Route,
        group: RequestGroup,
        then: Then,
        send: impl Fn(&Shard, RequestGroup, bool) -> StoreFuture<Replies> + Send + Sync + 'static,
    ) {
        let shared = Arc::clone(&self.0);
        let routed = async move {
            let replied = shared.replied(route, &group, send).await;
            if replied.is_err() {
                // An immediate error may lead to the next request. Yield first, or many such
                // requests would nest on a single stack.
                tokio::task::yield_now().await;
            }
            then.take(group, replied);
        };
        begin(&self.0.runtime, Box::pin(routed));
    }

    /// Sends a request that is not a script to the shard that serves the slot, and follows
    /// redirects.
    fn at_slot<T: Send + 'static>(
        &self,
        slot: u16,
        send: impl Fn(&Shard) -> StoreFuture<T> + Send + Sync + 'static,
    ) -> StoreFuture<T> {
        let shared = Arc::clone(&self.0);
        let sent = async move {
            let route = Route::new(shared.settings.timeouts.request);
            let way = Way { slot, hears: false, route };
            shared.routed(way, |shard, _| send(shard)).await.map(|(_, answer)| answer)
        };
        sent.boxed()
    }
}

/// Returns an error if the servers given by the user differ in their connection settings, use
/// sockets, or have a database other than 0.
fn check(seeds: &[ConnectionInfo]) -> Result<(), LockError> {
    let refused = |detail| Err(LockError::with_detail(LockErrorKind::InvalidOption, detail));
    let Some(first) = seeds.first() else {
        return refused("give at least one Cluster node");
    };
    if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
        return refused("a Redis Cluster has only database 0: write the URL without a database");
    }
    if seeds.iter().any(|seed| matches!(seed.addr(), ConnectionAddr::Unix(_))) {
        return Err(not_by_tcp());
    }
    let way = |seed: &ConnectionInfo| {
        let settings = seed.redis_settings();
        let login =
            (settings.username().map(str::to_owned), settings.password().map(str::to_owned));
        let is_tls = matches!(seed.addr(), ConnectionAddr::TcpTls { .. });
        (login, settings.protocol(), is_tls)
    };
    if seeds.iter().any(|seed| way(seed) != way(first)) {
        return refused(
            "all nodes of a Redis Cluster need the same scheme, user, password and protocol: write \
             the same in each URL",
        );
    }
    Ok(())
}

fn not_by_tcp() -> LockError {
    let detail = "Redis Cluster nodes are reachable only by TCP: write redis://host:port";
    LockError::with_detail(LockErrorKind::InvalidOption, detail)
}

/// Opens a shard's subscription again if the server has no subscriber for this node. The server
/// reports this in the reply to a touch, which was sent at `sent`.
fn note_listeners(shard: &Shard, sent: Instant, answer: &Answer) {
    if let Answer::Touched(reply) = answer
        && reply.outcome.listeners == 0
    {
        shard.store.subscription.reopen(sent);
    }
}

impl Shared {
    /// Sends a request group to the shard that serves the group's slot, and returns the replies.
    async fn replied(
        &self,
        route: Route,
        group: &RequestGroup,
        send: impl Fn(&Shard, RequestGroup, bool) -> StoreFuture<Replies> + Send + Sync,
    ) -> Replied {
        let Some(request) = group.first() else { return Err(proto::wire::no_such_command()) };
        // A waiter would not receive the grant without a subscription.
        let hears = matches!(request.command, Command::Acquire { mode: Mode::Wait, .. });
        let way = Way { slot: request.lock.slot(), hears, route };
        let send = |shard: &Shard, asking| send(shard, group.clone(), asking);
        let sent = Instant::now();
        let (shard, reply) = self.routed(way, send).await?;
        reply.answers.iter().flatten().for_each(|answer| note_listeners(&shard, sent, answer));
        Ok(reply)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(detail: String) -> StoreError {
    StoreError::refused(LockErrorKind::Unavailable, detail)
}

impl Store for ClusterStore {
    fn topology(&self) -> Topology {
        Topology::Cluster
    }

    fn lanes(&self) -> Option<Lanes> {
        Some(self.0.slots().lanes())
    }

    fn send(&self, group: RequestGroup, then: Then) {
        let route = Route::of(&commands(&group), self.0.settings.timeouts.request);
        self.route(route, group, then, |shard, group, asking| {
            InFlight::run(Arc::clone(&shard.store.server), group, asking).boxed()
        });
    }

    fn confirm(&self, group: RequestGroup, then: Then) {
        let route = Route::of(&commands(&group), self.0.settings.timeouts.request);
        self.route(route, group, then, |shard, group, asking| shard.store.confirmed(group, asking));
    }

    /// Pings all primaries that serve a slot. Succeeds if at least one of them responds.
    fn ping(&self) -> StoreFuture<()> {
        let shards: Vec<_> = self.0.slots().serving().cloned().collect();
        let first = async move {
            let ping = |shard: Arc<Shard>| async move {
                shard.check(false)?;
                shard.store.ping().await
            };
            let mut pings: FuturesUnordered<_> =
                shards.into_iter().map(|shard| ping(shard).boxed()).collect();
            let mut refused = unavailable("no primary serves any slot".to_owned());
            while let Some(answer) = pings.next().await {
                match answer {
                    Ok(()) => return Ok(()),
                    Err(error) => refused = error,
                }
            }
            Err(refused)
        };
        first.boxed()
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.0.commands.subscribe()
    }

    fn why_down(&self, lock: &LockName) -> Option<StoreError> {
        match self.0.slots().owner(lock.slot()) {
            Some(shard) => shard.check(false).err(),
            None => Some(unavailable("no primary serves the slot".to_owned())),
        }
    }

    fn outage(&self, lock: &LockName, hears: bool) -> Option<Outage> {
        let shard = self.0.slots().owner(lock.slot()).cloned()?;
        let Outage { since, error } = shard.store.outage(lock, hears)?;
        let detail = format!("{}: {}", shard.place, error.detail);
        Some(Outage { since, error: StoreError::refused(error.kind, detail) })
    }

    fn now_us(&self) -> u64 {
        self.0.slots().open().map(|shard| shard.store.now_us()).max().unwrap_or_default()
    }

    fn note_token(&self, lock: &LockName, token: FencingToken) {
        if let Some(shard) = self.0.slots().owner(lock.slot()) {
            shard.store.note_token(lock, token);
        }
    }

    fn server_status(&self) -> Vec<ServerStatus> {
        let counted = self.0.slots().counted();
        let of = |(shard, slots): (Arc<Shard>, u16)| shard.store.status(Some(slots));
        let mut all: Vec<_> = counted.into_iter().map(of).collect();
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all
    }

    fn server_links(&self) -> watch::Receiver<()> {
        self.0.server_links.subscribe()
    }

    /// Returns a search for each primary that serves a slot now. The searches find only locks in
    /// `namespace`, or all locks if it is `None`.
    fn searches(&self, namespace: Option<&str>) -> Vec<Arc<dyn Search>> {
        let shards: Vec<_> = self.0.slots().serving().cloned().collect();
        shards.iter().flat_map(|shard| shard.store.searches(namespace)).collect()
    }

    fn record_process(&self) -> StoreFuture<()> {
        let slot = NodeKey(self.0.settings.node.as_str()).slot();
        self.at_slot(slot, |shard| shard.store.record_process())
    }

    fn process_of(&self, node: &str) -> StoreFuture<Option<String>> {
        let slot = NodeKey(node).slot();
        let node = node.to_owned();
        self.at_slot(slot, move |shard| shard.store.process_of(&node))
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.0.subscription.subscribe()
    }

    /// Does nothing. Each shard opens its own subscription again, because only the shard knows
    /// which server has no subscriber for this node.
    fn reopen_subscription(&self) {}

    fn close(&self) {
        self.0.close();
    }
}

impl Shared {
    fn close(&self) {
        self.closed.cancel();
        for shard in self.slots().open() {
            shard.store.close();
        }
        self.commands.send_replace(Link::down("closed"));
        self.subscription.send_replace(Link::down("closed"));
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterStore").field("node", &self.0.settings.node).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(nodes: &[&str]) -> Option<String> {
        let seeds = nodes_of(&Cluster::new(nodes)).expect("URLs");
        check(&seeds).err().map(|error| error.to_string())
    }

    #[test]
    fn nodes_are_spoken_to_alike_by_tcp_and_in_database_0() {
        assert_eq!(refusal(&["redis://app:s@a:1/0", "valkey://app:s@b?db=0"]), None);
        for (nodes, word) in [
            (&[] as &[&str], "at least one"),
            (&["redis://a/3"], "database 0"),
            (&["redis://a", "redis://b?db=3"], "database 0"),
            (&["unix:///run/redis"], "TCP"),
            (&["redis://app:s@a", "redis://b"], "the same scheme"),
            (&["redis://app:s@a", "redis://app:t@b"], "the same scheme"),
            (&["redis://a", "redis://b?protocol=3"], "the same scheme"),
            #[cfg(feature = "tls")]
            (&["redis://a", "rediss://b"], "the same scheme"),
        ] {
            let error = refusal(nodes).unwrap_or_else(|| panic!("{nodes:?} are accepted"));
            assert!(error.contains(word), "{nodes:?}: {error}");
        }
    }
}
