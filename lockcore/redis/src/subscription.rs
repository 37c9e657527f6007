//! A subscription that is reopened when it fails.
//!
//! # Implementation notes
//!
//! - After each reconnect its listener is told, and asks for messages that it may have missed:
//!   nothing is repeated here.
//! - Both connections have to reach the same server. A subscription that the server of the commands
//!   does not count, or that is at another primary than the commands, is closed and opened again.
//! - When the subscription breaks, the connection for commands is looked at too, since it probably
//!   broke as well.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use redis::Msg;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::connector::{Connector, Primary, Subscribed};
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;
use crate::link::LASTED;
use crate::link_state::{LinkState, Outage};
use crate::pace::{ConnectAttempt, Pace};

/// The time between two PINGs, which show that the connection still stands.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The channels of a subscription.
#[derive(Debug)]
pub struct Channels {
    /// The channel.
    pub channel: String,
    /// A pattern of channels besides, and the rule that allows it, for a user that may not.
    pub pattern: Option<(String, &'static str)>,
}

impl Channels {
    async fn subscribe(&self, open: &mut PubSub) -> Result<(), ClientError> {
        let subscribed = open.subscribe(&self.channel).await;
        subscribed
            .map_err(|error| failure::of_subscribing(&error, &format!("&{}", self.channel)))?;
        if let Some((pattern, rule)) = &self.pattern {
            let subscribed = open.psubscribe(pattern).await;
            subscribed.map_err(|error| failure::of_subscribing(&error, rule))?;
        }
        Ok(())
    }
}

/// Hears what comes on a [`Subscription`]. Called from its task: it may not block.
pub trait Listener: Send + Sync + 'static {
    /// A message.
    fn hear(&self, message: &Msg);

    /// The subscription is new: messages may have been missed.
    fn resubscribed(&self);

    /// Its state, after each change: the error that broke it, or that of the last attempt to
    /// connect; nothing while it is up.
    fn on_state(&self, down: Option<&ClientError>);
}

/// A subscription, reopened when it fails.
pub struct Subscription {
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
    pub async fn connect(
        connector: Arc<Connector>,
        channels: Channels,
        introduce: bool,
        request_timeout: Duration,
        listener: Arc<dyn Listener>,
        suspicion: Arc<Notify>,
        closed: CancellationToken,
    ) -> Result<Self, ClientError> {
        let told = Arc::clone(&listener);
        let state = LinkState::up(Box::new(move |down| told.on_state(down)));
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
        let first = task.open(&attempt).await?;
        tokio::spawn(async move {
            tokio::select! {
                () = task.run(first) => {}
                () = closed.cancelled() => {}
            }
            task.state.end("closed");
        });
        Ok(Self { state, reopen })
    }

    /// Whether it stands.
    pub fn is_up(&self) -> bool {
        self.state.is_up()
    }

    /// The outage, while it is not connected.
    pub fn outage(&self) -> Option<Outage> {
        self.state.outage()
    }

    /// Opens it anew: the server does not count it.
    pub fn reopen(&self) {
        self.reopen.notify_one();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
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
            self.state.end(reason);
            self.suspicion.notify_one();
            if opened.elapsed() > LASTED {
                pace = pace.anew();
            } else {
                pace.after_refusal().await;
            }
            open = self.open_again(&mut pace).await;
            self.state.set_up();
            let server = self.connector.server();
            info!(server, after = ?broke.elapsed(), "subscribed to Redis again");
            self.listener.resubscribed();
        }
    }

    async fn open(&self, attempt: &ConnectAttempt) -> Result<Subscribed, ClientError> {
        let mut open = self.connector.subscription(self.introduce, attempt).await?;
        let subscribing = self.channels.subscribe(&mut open.connection);
        match tokio::time::timeout(self.request_timeout.max(attempt.limit), subscribing).await {
            Ok(Ok(())) => Ok(open),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                Err(ClientError::refused(ClientErrorKind::Unavailable, "no subscription in time"))
            }
        }
    }

    async fn open_again(&self, pace: &mut Pace) -> Subscribed {
        loop {
            let attempt = pace.attempt();
            match self.open(&attempt).await {
                Ok(open) => return open,
                Err(error) => {
                    self.state.broke(&error);
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
                    Some(message) => self.listener.hear(&message),
                    None => return Arc::from("connection closed by the server"),
                },
                reason = &mut heartbeat => return reason,
                () = self.connector.switched_server(primary) => return Arc::from("commands go to another server"),
                () = self.reopen.notified() => return Arc::from("the server does not know it"),
            }
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
