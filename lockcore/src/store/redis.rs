//! The Redis store: runs the lock scripts on a shared connection, and receives grants by a
//! subscription.

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
use proto::node::RequestGroup;
use proto::wire::{Wire, keys, no_such_command};
use proto::{FencingToken, Label, Link, LockErrorKind, LockName, NodeId, StoreError, Topology};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use confirmations::Confirmations;
pub(crate) use standing::{Mark, Marks, Used};

use crate::operate::status::{Connection, ServerStatus};
use crate::store::confirmation::Confirmation;
use crate::store::process;
use crate::store::{
    Listener, Outage, Replies, Search, Standing, Store, StoreFuture, Then, begin, no_primary,
};
use crate::types::error::LockError;
use acl::{AclCheck, Rights};
use hooks::{OfCommands, OfMessages};
use in_flight::InFlight;
use node_key::NodeKeys;
use preflight::Needs;
use run::Run as _;
use search::RedisSearch;
use server::{Loading, Server};
use server_time::ServerTime;

/// Settings for a Redis store.
pub(crate) struct RedisSettings {
    pub(crate) connector: Connector,
    pub(crate) node: NodeId,
    /// Prefix of the channel names. Servers publish grants on these channels.
    pub(crate) prefix: Arc<str>,
    /// This node's label in the connection name, for operators.
    pub(crate) label: Option<Label>,
    pub(crate) namespace: Option<Arc<str>>,
    /// A lock name for the check of the user's rights. It is in the namespace and not used
    /// otherwise. `None` if the server has no Cluster slots yet.
    pub(crate) probe: Option<LockName>,
    pub(crate) request_timeout: Duration,
    pub(crate) layout: &'static dyn Layout,
    /// How a written grant or renewal is confirmed; `None` if the server's reply suffices.
    pub(crate) confirmation: Option<Confirmation>,
    /// The times and tokens received from the server. New tokens must be above all of them.
    pub(crate) server_time: Arc<ServerTime>,
    pub(crate) role: Role,
}

/// The server's role in its store: the only server, or a part of a Cluster or quorum.
pub(crate) enum Role {
    /// The only server, with all locks.
    Alone,
    /// A Redis Cluster primary, with the locks in some slots.
    Shard,
    /// A quorum primary, with the identity record that it must have: the record shows to which list
    /// of primaries the server belongs.
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

/// A node's connections to a single Redis server.
pub(crate) struct RedisStore {
    server: Arc<Server>,
    /// The runtime of the connections and requests.
    runtime: Handle,
    of_commands: Arc<OfCommands>,
    subscription: Subscription,
    of_messages: Arc<OfMessages>,
    /// Separate connections for requests whose writes must be confirmed; `None` if the settings
    /// require no confirmation.
    confirmations: Option<Confirmations>,
    mark: Option<Arc<Mark>>,
    node_keys: NodeKeys,
    closed: CancellationToken,
}

impl RedisStore {
    /// Connects to the server. Returns once both connections are established, the subscription is
    /// confirmed, and the server's version, the server's settings and the user's rights are
    /// checked.
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
            confirmation,
            server_time,
            role,
        } = settings;
        let topology = role.topology();
        let wire = Wire { node, prefix, layout, topology, of_error: failure::of_text };
        let Wire { node, prefix, .. } = &wire;
        let closed = CancellationToken::new();
        // Also ends the tasks of a store whose connect fails.
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
        preflight::check_server(&link, hello, Needs { topology, confirmation }).await?;
        let namespace = namespace.as_deref();
        let Rights { mut extras, node: may, .. } = match &probe {
            Some(probe) => {
                AclCheck { wire: &wire, namespace, probe, confirmation }.check(&link).await?
            }
            None => Rights::default(),
        };
        let mark = match role {
            Role::Alone | Role::Shard => None,
            Role::Primary(mark) => Some(Arc::new(mark)),
        };
        if mark.is_some() && !extras.info {
            let detail = "allow +info: INFO shows when a quorum primary has restarted";
            return Err(LockError::with_detail(LockErrorKind::Denied, detail));
        }
        // With a single worker thread, locks are released by the script alone. A fast release that
        // finds waiters needs the script afterwards. If the only thread drops a guard and then
        // blocks, nobody reads the first reply, and the next waiter is not granted the lock.
        extras.compare = extras.compare.filter(|_| Handle::current().metrics().num_workers() > 1);
        link.set_up(extras).await?;
        if extras.info {
            preflight::check_settings(&link, is_watched).await?;
        }
        let server = Arc::new(Server {
            wire: wire.clone(),
            link: link.clone(),
            server_time,
            loading: Loading::default(),
        });
        let confirmations = match confirmation {
            Some(by) => {
                let probe = probe.as_ref();
                Some(
                    Confirmations::start(&connector, &server, by, request_timeout, probe, &closed)
                        .await?,
                )
            }
            None => None,
        };
        let channel = keys::grants_channel(prefix, node.as_str());
        // An ACL has to contain a pattern literally, and this pattern is different for each node.
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
        let node_keys = NodeKeys::new(link, node.clone(), may);
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

    /// Reads the identity record of a quorum primary. Fails if the record belongs to another list
    /// of primaries. Does nothing if the server is not a quorum primary.
    pub(crate) async fn check_identity(&self) -> Result<(), LockError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        mark.check_identity(&self.server.link).await.map_err(|error| self.error(error))
    }

    /// Returns how a quorum primary has been used so far. Fails if the server has an identity
    /// record but was not recorded as new in its present run: it may have granted locks before.
    pub(crate) async fn used(&self) -> Result<Used, LockError> {
        let Some(mark) = &self.mark else { return Ok(Used::Not) };
        mark.used(&self.server.link).await.map_err(|error| self.error(error))
    }

    /// Writes the identity record on a quorum primary that has granted no locks yet. Does nothing
    /// if the server is not a quorum primary.
    pub(crate) async fn begin(&self) -> Result<(), LockError> {
        let Some(mark) = &self.mark else { return Ok(()) };
        mark.begin(&self.server.link).await.map_err(|error| self.error(error))
    }

    /// Converts a store error to the error for the caller, with the server's address.
    pub(crate) fn error(&self, error: StoreError) -> LockError {
        LockError::of_store(error).at(self.server.link.address())
    }

    /// Returns the replies to a request group once its writes are confirmed, like
    /// [`Store::confirm`]. Sends the group when first polled. `asking` is true if an ASKING command
    /// must come directly before it, because the slot is migrating to this server.
    fn confirmed(&self, group: RequestGroup, asking: bool) -> StoreFuture<Replies> {
        match &self.confirmations {
            Some(confirmations) => confirmations.run(group, asking).boxed(),
            None => ready(Err(no_such_command())).boxed(),
        }
    }

    /// Returns the state of both connections. `slots` is the number of Cluster slots that the
    /// server serves; `None` outside a Cluster.
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
    fn send(&self, group: RequestGroup, then: Then) {
        InFlight::send(Arc::clone(&self.server), group, then);
    }

    fn topology(&self) -> Topology {
        self.server.wire.topology
    }

    fn has_fast_path(&self) -> bool {
        self.server.wire.has_fast_acquire() && self.server.link.has_transactions()
    }

    fn confirm(&self, group: RequestGroup, then: Then) {
        let confirmed = self.confirmed(group.clone(), false);
        begin(&self.runtime, Box::pin(async move { then.take(group, confirmed.await) }));
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
            // After a server outage the subscription recovers a little later than the commands.
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

    fn record_process(&self) -> StoreFuture<()> {
        self.node_keys.write()
    }

    fn process_of(&self, node: &str) -> StoreFuture<Option<String>> {
        self.node_keys.read(node)
    }

    fn subscription(&self) -> watch::Receiver<Link> {
        self.of_messages.state.subscribe()
    }

    fn reopen_subscription(&self) {
        self.subscription.reopen(Instant::now());
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
