//! The one subscription on which a node hears of its grants, reopened when it fails.
//!
//! # Implementation notes
//!
//! - Messages only save time: only the server decides which client holds a lock. If a message is
//!   lost, the next touch asks the server and acts on the answer. So a message that cannot be read
//!   is ignored, and nothing is repeated here.
//! - After each reconnect the node hears `Resubscribed`, and asks for messages that it may have
//!   missed.
//! - Both connections have to reach the same server. A subscription that the server of the scripts
//!   does not count, or that is at another primary than the commands, is closed and opened again.
//! - When the subscription breaks, the connection for commands is looked at too, since it probably
//!   broke as well.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use proto::wire::{self, keys};
use proto::{Event, Link, LockErrorKind, NodeId, StoreError};
use redis::Msg;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::connector::{Connector, Primary, Subscribed};
use super::failure;
use super::link::LASTED;
use crate::error::LockError;
use crate::store::{LinkState, Listener, Outage};
use client::{ConnectAttempt, Pace};

/// The time between two PINGs, which show that the connection still stands.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The channels of a node.
pub(crate) struct Channels {
    node: NodeId,
    grants: String,
    /// The channels of this node's members, where JVMs are about.
    pokes: Option<String>,
}

impl Channels {
    pub(crate) fn new(prefix: &str, node: &NodeId, peers: bool) -> Self {
        Self {
            node: node.clone(),
            grants: keys::grants_channel(prefix, node.as_str()),
            pokes: peers.then(|| keys::pokes_pattern(node)),
        }
    }

    async fn subscribe(&self, open: &mut PubSub) -> Result<(), StoreError> {
        let subscribed = open.subscribe(&self.grants).await;
        subscribed
            .map_err(|error| failure::of_subscribing(&error, &format!("&{}", self.grants)))?;
        if let Some(pattern) = &self.pokes {
            let subscribed = open.psubscribe(pattern).await;
            // A pattern has to be among the user's channels as it stands, and this one is never
            // twice the same.
            let all = "&* (allchannels), which redisson_peers needs to subscribe to a pattern";
            subscribed.map_err(|error| failure::of_subscribing(&error, all))?;
        }
        Ok(())
    }
}

/// A subscription of one node.
pub(crate) struct Subscription {
    state: LinkState,
    reopen: Arc<Notify>,
}

struct Task {
    connector: Arc<Connector>,
    channels: Channels,
    /// Whether the user may name itself.
    introduce: bool,
    request_timeout: Duration,
    listener: Arc<dyn Listener>,
    state: LinkState,
    reopen: Arc<Notify>,
    /// Notified when this connection goes: the other one probably went too.
    suspicion: Arc<Notify>,
}

impl Subscription {
    /// Subscribed when this returns, and kept so until `closed`.
    pub(crate) async fn connect(
        connector: Arc<Connector>,
        channels: Channels,
        introduce: bool,
        request_timeout: Duration,
        listener: Arc<dyn Listener>,
        suspicion: Arc<Notify>,
        closed: CancellationToken,
    ) -> Result<Self, LockError> {
        let state = LinkState::up();
        let reopen = Arc::new(Notify::new());
        let task = Task {
            connector,
            channels,
            introduce,
            request_timeout,
            listener,
            state: state.clone(),
            reopen: Arc::clone(&reopen),
            suspicion,
        };
        let attempt = ConnectAttempt::first(task.connector.timeouts());
        let first = task.open(&attempt).await.map_err(LockError::of_store)?;
        tokio::spawn(async move {
            tokio::select! {
                () = task.run(first) => {}
                () = closed.cancelled() => {}
            }
            task.state.set(Link::down("closed"));
        });
        Ok(Self { state, reopen })
    }

    pub(crate) fn state(&self) -> watch::Receiver<Link> {
        self.state.subscribe()
    }

    /// The outage, while it is not connected.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.state.outage()
    }

    /// Opens it anew: the server does not count it.
    pub(crate) fn reopen(&self) {
        self.reopen.notify_one();
    }
}

impl Task {
    async fn run(&self, first: Subscribed) {
        let mut open = first;
        let mut pace = Pace::new(self.connector.timeouts());
        loop {
            let Subscribed { connection, primary } = open;
            let (sink, stream) = connection.split();
            let opened = Instant::now();
            let reason = self.serve(sink, stream, primary.as_ref()).await;
            let broke = Instant::now();
            warn!(server = self.connector.server(), %reason, "the subscription to Redis broke");
            self.state.set(Link::down(reason));
            self.suspicion.notify_one();
            if opened.elapsed() > LASTED {
                pace = pace.anew();
            } else {
                pace.after_refusal().await;
            }
            open = self.open_again(&mut pace).await;
            self.state.set(Link::Up);
            let server = self.connector.server();
            info!(server, after = ?broke.elapsed(), "subscribed to Redis again");
            self.listener.hear(Event::Resubscribed);
        }
    }

    async fn open(&self, attempt: &ConnectAttempt) -> Result<Subscribed, StoreError> {
        let mut open = self.connector.subscription(self.introduce, attempt).await?;
        let subscribing = self.channels.subscribe(&mut open.connection);
        match tokio::time::timeout(self.request_timeout.max(attempt.limit), subscribing).await {
            Ok(Ok(())) => Ok(open),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(StoreError::refused(LockErrorKind::Unavailable, "no subscription in time"))
            }
        }
    }

    async fn open_again(&self, pace: &mut Pace) -> Subscribed {
        loop {
            let attempt = pace.attempt();
            match self.open(&attempt).await {
                Ok(open) => return open,
                Err(error) => {
                    self.state.set(Link::broken(&error));
                }
            }
            pace.after(&attempt).await;
        }
    }

    /// Passes messages on until the connection goes. Returns why it did.
    async fn serve(
        &self,
        sink: PubSubSink,
        mut stream: PubSubStream,
        primary: Option<&Primary>,
    ) -> Arc<str> {
        // This connection answers all that asked for one while there was none.
        let _ = self.reopen.notified().now_or_never();
        let heartbeat = heartbeat(sink, self.request_timeout);
        tokio::pin!(heartbeat);
        loop {
            tokio::select! {
                biased;
                message = stream.next() => match message {
                    Some(message) => self.pass_on(&message),
                    None => return Arc::from("connection closed by the server"),
                },
                reason = &mut heartbeat => return reason,
                () = self.connector.switched_server(primary) => return Arc::from("commands go to another server"),
                () = self.reopen.notified() => return Arc::from("the server does not know it"),
            }
        }
    }

    fn pass_on(&self, message: &Msg) {
        let node = &self.channels.node;
        if message.from_pattern() && self.channels.pokes.is_some() {
            if let Some(member) = keys::poked_member(message.get_channel_name(), node) {
                self.listener.hear(Event::Poked { number: member.number() });
            }
            return;
        }
        match wire::message(message.get_payload_bytes(), node) {
            Some(event) => self.listener.hear(event),
            None => debug!("a message on our channel cannot be read"),
        }
    }
}

async fn heartbeat(mut sink: PubSubSink, timeout: Duration) -> Arc<str> {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        match tokio::time::timeout(timeout, sink.ping::<redis::Value>()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return failure::of_connecting(&error).detail,
            Err(_) => return Arc::from("no answer to a ping"),
        }
    }
}
