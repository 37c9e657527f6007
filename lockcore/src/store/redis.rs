//! The store on Redis: scripts over one shared connection, grants over one subscription.

mod acl;
mod call;
pub(crate) mod cluster;
mod confirmations;
mod connection_name;
mod failure;
mod fast;
mod hooks;
mod in_flight;
mod node_key;
mod preflight;
mod run;
mod search;
mod server;
pub(crate) mod server_time;
mod standing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::{Channels, CommandLink, Connector, Subscription, check_same_server};
use futures_util::FutureExt as _;
use futures_util::future::ready;
use proto::layout::Layout;
use proto::node::Batch;
use proto::wire::{Wire, keys, no_such_command};
use proto::{FencingToken, Label, Link, LockErrorKind, LockName, NodeId, StoreError, Topology};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use confirmations::Confirmations;
pub(crate) use confirmations::Replicas;
pub(crate) use standing::{Mark, Marks, Used};

use crate::operate::status::{Connection, ServerStatus};
use crate::store::process;
use crate::store::{
    Listener, Outage, Replies, Search, Standing, Store, StoreFuture, Then, begin, no_primary,
};
use crate::types::error::LockError;
use acl::{AclCheck, Rights};
use hooks::{OfCommands, OfMessages};
use in_flight::InFlight;
use node_key::NodeKeys;
use run::Run as _;
use search::RedisSearch;
use server::Server;
use server_time::ServerTime;

/// The settings of a store on Redis.
pub(crate) struct RedisSettings {
    pub(crate) connector: Connector,
    pub(crate) node: NodeId,
    /// First part of the grants channels.
    pub(crate) prefix: Arc<str>,
    /// The label of this node, for people, if one is set.
    pub(crate) label: Option<Label>,
    pub(crate) namespace: Option<Arc<str>>,
    /// A name in the namespace that nothing else uses, for checking rights; none where the server
    /// has no slots yet.
    pub(crate) probe: Option<LockName>,
    pub(crate) request_timeout: Duration,
    pub(crate) layout: &'static dyn Layout,
    /// The replicas that have to have a grant.
    pub(crate) replicas: Option<Replicas>,
    /// The floor of tokens.
    pub(crate) server_time: Arc<ServerTime>,
    pub(crate) role: Role,
}

/// The part of a server among others.
pub(crate) enum Role {
    /// It has all locks.
    Alone,
    /// It has some slots of a Redis Cluster.
    Shard,
    /// It is a primary of a quorum, with this mark.
    Primary(Mark),
}

impl Role {
    fn topology(&self) -> Topology {
        match self {
            Self::Alone => Topology::Single,
            Self::Shard => Topology::Cluster,
            Self::Primary(_) => Topology::Quorum,
        }
    }
}

/// One node's view of a Redis server.
pub(crate) struct RedisStore {
    server: Arc<Server>,
    /// The runtime of the connections.
    runtime: Handle,
    of_commands: Arc<OfCommands>,
    subscription: Subscription,
    of_messages: Arc<OfMessages>,
    /// The connections for grants that count only once replicas have them.
    confirmations: Option<Confirmations>,
    mark: Option<Arc<Mark>>,
    node_keys: NodeKeys,
    closed: CancellationToken,
}

impl RedisStore {
    /// Both connections stand, the subscription is confirmed and the rights are there when this
    /// returns.
    pub(crate) async fn connect(
        settings: RedisSettings,
        listener: Arc<dyn Listener>,
    ) -> Result<Self, LockError> {
        let RedisSettings {
            connector,
            node,
            prefix,
            label,
            namespace,
            probe,
            request_timeout,
            layout,
            replicas,
            server_time,
            role,
        } = settings;
        let topology = role.topology();
        let wire = Wire { node, prefix, layout, topology, of_error: failure::of_text };
        let Wire { node, prefix, .. } = &wire;
        let closed = CancellationToken::new();
        // Ends the tasks of a store that is not finished, too.
        let guard = closed.clone().drop_guard();
        let label = label.as_ref().map(Label::as_str);
        let name = connection_name::of(label, &process::of_this(), node.as_str());
        let connector = Arc::new(connector.named(name.clone()));
        let is_watched = connector.is_watched();
        let state = watch::Sender::new(Link::Up);
        let of_commands = Arc::new(OfCommands { server_time: Arc::clone(&server_time), state });
        let (link, hello) = CommandLink::connect(
            Arc::clone(&connector),
            request_timeout,
            layout.usual_scripts(topology).into_iter().map(|script| &*script.source).collect(),
            name,
            begin,
            Arc::clone(&of_commands) as _,
            closed.clone(),
        )
        .await?;
        preflight::check_server(&link, hello, topology).await?;
        let namespace = namespace.as_deref();
        let Rights { mut extras, node: may_tell } = match &probe {
            Some(probe) => AclCheck { wire: &wire, namespace, probe }.check(&link).await?,
            None => Rights::default(),
        };
        let mark = match role {
            Role::Alone | Role::Shard => None,
            Role::Primary(mark) => Some(Arc::new(mark)),
        };
        if mark.is_some() && !extras.info {
            let detail = "allow +info: it tells when a primary of a quorum has restarted";
            return Err(LockError::with_detail(LockErrorKind::Denied, detail));
        }
        // Where somebody waits, a release without a script needs its answer read, for the script.
        // A thread that drops a guard and then blocks must not be the one that reads it.
        extras.compare = extras.compare.filter(|_| Handle::current().metrics().num_workers() > 1);
        link.settle(extras).await?;
        if extras.info {
            preflight::check_settings(&link, is_watched).await?;
        }
        if replicas.is_some() {
            // Whether the user may.
            link.run(redis::cmd("WAIT").arg(0).arg(1).to_owned())
                .await
                .map_err(LockError::of_store)?;
        }
        let server = Arc::new(Server { wire: wire.clone(), link: link.clone(), server_time });
        let confirmations = replicas.map(|replicas| {
            Confirmations::start(&connector, &server, replicas, request_timeout, &closed)
        });
        let channel = keys::grants_channel(prefix, node.as_str());
        // A pattern has to be among the user's channels as it stands, and this one is never twice
        // the same.
        let pattern = layout.pattern(node);
        let state = watch::Sender::new(Link::Up);
        let of_messages = Arc::new(OfMessages { node: node.clone(), layout, listener, state });
        let subscription = Subscription::connect(
            connector,
            Channels { channel: channel.clone(), pattern },
            extras.introduce,
            request_timeout,
            Arc::clone(&of_messages) as _,
            link.suspicion(),
            closed.clone(),
        )
        .await?;
        check_same_server(&link, &subscription, &channel).await?;
        guard.disarm();
        let node_keys = NodeKeys::new(link, node.clone(), may_tell);
        Ok(Self {
            server,
            runtime: Handle::current(),
            of_commands,
            subscription,
            of_messages,
            confirmations,
            mark,
            node_keys,
            closed,
        })
    }

    /// Reads the mark of a primary of a quorum. Refuses that of another list.
    pub(crate) async fn look(&self) -> Result<(), LockError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        mark.look(&self.server.link).await.map_err(|error| self.error(error))
    }

    /// The use of a primary of a quorum so far. Refuses one that is not new in its present run.
    pub(crate) async fn used(&self) -> Result<Used, LockError> {
        let Some(mark) = &self.mark else { return Ok(Used::Not) };
        mark.used(&self.server.link).await.map_err(|error| self.error(error))
    }

    /// Marks a primary of a quorum that has granted nothing yet.
    pub(crate) async fn begin(&self) -> Result<(), LockError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        mark.begin(&self.server.link).await.map_err(|error| self.error(error))
    }

    /// The error, with the address of the server.
    pub(crate) fn error(&self, error: StoreError) -> LockError {
        LockError::of_store(error).at(self.server.link.address())
    }

    /// As [`Store::confirm`], once this is polled.
    fn confirmed(&self, batch: Batch) -> StoreFuture<Replies> {
        match &self.confirmations {
            Some(confirmations) => confirmations.run(batch).boxed(),
            None => ready(Err(no_such_command())).boxed(),
        }
    }

    /// The state of both connections; `slots` of a Cluster are served by the server.
    fn status(&self, slots: Option<u16>) -> ServerStatus {
        ServerStatus {
            address: self.server.link.address(),
            commands: Connection::of(&self.commands()),
            subscription: Connection::of(&Store::subscription(self)),
            silent_for: self.server.link.silent_for(),
            unanswered: self.server.link.unanswered(),
            slots,
        }
    }
}

impl Store for RedisStore {
    fn send(&self, batch: Batch, then: Then) {
        InFlight::send(Arc::clone(&self.server), batch, then);
    }

    fn topology(&self) -> Topology {
        self.server.wire.topology
    }

    fn has_fast_path(&self) -> bool {
        self.server.wire.has_fast_acquire() && self.server.link.has_transactions()
    }

    fn confirm(&self, batch: Batch, then: Then) {
        let confirmed = self.confirmed(batch.clone());
        begin(&self.runtime, Box::pin(async move { then.take(batch, confirmed.await) }));
    }

    fn ping(&self) -> StoreFuture<()> {
        let link = self.server.link.clone();
        async move { link.run(redis::cmd("PING")).await.map(drop) }.boxed()
    }

    fn commands(&self) -> watch::Receiver<Link> {
        self.of_commands.state.subscribe()
    }

    fn outage(&self, _lock: &LockName, hears: bool) -> Option<Outage> {
        let of_messages = || {
            let client::Outage { since, error } = self.subscription.outage()?;
            let error = failure::of_client(error);
            // After an outage of the server it comes back a little later than the commands.
            let since = since.max(self.server.link.up_since());
            let detail = format!("subscription: {}", error.detail);
            Some(Outage { since, error: StoreError::refused(error.kind, detail) })
        };
        let of_commands = self.server.link.outage();
        let of_commands = of_commands.map(|client::Outage { since, error }| Outage {
            since,
            error: failure::of_client(error),
        });
        of_commands.or_else(|| of_messages().filter(|_| hears))
    }

    fn now_us(&self) -> u64 {
        self.server.server_time.now_us()
    }

    fn note_token(&self, lock: &LockName, token: FencingToken) {
        let Server { wire, link, server_time, .. } = &*self.server;
        server_time.note_token(token, (wire.topology.slot(lock), link.servers()));
    }

    fn servers(&self) -> u64 {
        self.server.link.servers()
    }

    fn standing(&self) -> StoreFuture<Standing> {
        let Some(mark) = self.mark.clone() else { return ready(Err(no_primary())).boxed() };
        let (link, server_time) = (self.server.link.clone(), Arc::clone(&self.server.server_time));
        async move { mark.standing(&link, &server_time).await }.boxed()
    }

    fn server_status(&self) -> Vec<ServerStatus> {
        vec![self.status(None)]
    }

    fn searches(&self, namespace: Option<&str>) -> Vec<Arc<dyn Search>> {
        vec![Arc::new(RedisSearch::new(&self.server.link, namespace))]
    }

    fn tell_process(&self) -> StoreFuture<()> {
        self.node_keys.write()
    }

    fn process_of(&self, node: &str) -> StoreFuture<Option<String>> {
        self.node_keys.read(node)
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.of_messages.state.subscribe()
    }

    fn reopen_subscription(&self) {
        self.subscription.reopen();
    }

    fn close(&self) {
        self.closed.cancel();
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("node", &self.server.wire.node).finish_non_exhaustive()
    }
}
