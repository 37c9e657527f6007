//! A subscription that is reopened when it fails.
//!
//! # Implementation notes
//!
//! - After each reconnect the listener is notified, and requests messages that it may have missed:
//!   nothing is repeated here.
//! - Both connections must reach the same server. A subscription that the command server does not
//!   count, or that leads to another primary than the commands, is closed and reopened.
//! - When the subscription breaks, the command connection is checked too, since it probably broke
//!   as well.

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

use crate::connector::{Connector, Subscribed};
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;
use crate::foreign;
use crate::link::LASTED;
use crate::link_state::{LinkState, Outage};
use crate::pace::{ConnectAttempt, Pace};
use crate::sentinel_primary::Primary;

/// The interval at which a PING checks the subscription's connection.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The channel and the optional pattern that a subscription receives messages from.
#[derive(Debug)]
pub struct Channels {
    /// The name of the channel to subscribe to.
    pub channel: String,
    /// A pattern of further channels, and the ACL rule to suggest if the Redis user may not
    /// subscribe to the pattern. `None` to subscribe to the channel only.
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

/// Receives the events of a [`Subscription`]. The methods are called in the subscription's task, so
/// they must not block.
pub trait Listener: Send + Sync + 'static {
    /// Called for each message, in the order of arrival.
    fn hear(&self, message: &Msg);

    /// Called after the subscription was reopened. Messages published in the meantime were missed.
    fn resubscribed(&self);

    /// Called after each change of the connection state. `down` is the error that broke the
    /// connection or with which the last connection attempt failed; `None` while connected.
    fn on_state(&self, down: Option<&ClientError>);
}

/// A subscription that is reopened when it fails, by a task that runs until the subscription is
/// closed.
pub struct Subscription {
    state: LinkState,
    reopen: Arc<Notify>,
}

/// The task that reads a subscription's messages, and reopens the subscription when it fails.
struct Task {
    connector: Arc<Connector>,
    channels: Channels,
    /// True if the Redis user may send CLIENT SETINFO, to set the name of this library on each
    /// connection.
    introduce: bool,
    request_timeout: Duration,
    listener: Arc<dyn Listener>,
    state: LinkState,
    reopen: Arc<Notify>,
    /// Notified when the subscription breaks, because the command connection probably broke too.
    suspicion: Arc<Notify>,
}

impl Subscription {
    /// Subscribes to `channels`, and stays subscribed until `closed` is cancelled. `introduce` is
    /// true if the Redis user may send CLIENT SETINFO, which sets the name of this library.
    /// `suspicion` is notified when the subscription breaks, because then the command connection
    /// should be checked too.
    ///
    /// # Errors
    /// The first attempt to connect and to subscribe failed.
    pub async fn connect(
        connector: Arc<Connector>,
        channels: Channels,
        introduce: bool,
        request_timeout: Duration,
        listener: Arc<dyn Listener>,
        suspicion: Arc<Notify>,
        closed: CancellationToken,
    ) -> Result<Self, ClientError> {
        let state_listener = Arc::clone(&listener);
        let state = LinkState::up(Box::new(move |down| state_listener.on_state(down)));
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

    /// Returns true if the subscription is connected. If the server falls silent without closing
    /// the connection, this is noticed when the next PING, sent every 5 s, has no reply in time.
    pub fn is_up(&self) -> bool {
        self.state.is_up()
    }

    /// Returns the current outage of the subscription; `None` while connected.
    pub fn outage(&self) -> Option<Outage> {
        self.state.outage()
    }

    /// Has the subscription closed and opened again. Call it if the server that runs the commands
    /// reports no subscriber for the channel, because the messages from that server would not
    /// arrive. Does nothing if the subscription was opened after `sent`, when the request for the
    /// report was sent: the report may concern the subscription before it.
    pub fn reopen(&self, sent: Instant) {
        if self.state.is_up_since(sent) {
            self.reopen.notify_one();
        }
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
            self.state.end(Arc::clone(&reason));
            self.suspicion.notify_one();
            let server = self.connector.server();
            foreign::log(|| warn!(server, %reason, "the subscription to Redis broke"));
            if opened.elapsed() > LASTED {
                pace = pace.anew();
            } else {
                pace.after_refusal().await;
            }
            open = self.open_again(&mut pace).await;
            self.state.set_up();
            self.listener.resubscribed();
            let server = self.connector.server();
            foreign::log(|| info!(server, after = ?broke.elapsed(), "subscribed to Redis again"));
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

    /// Tries to open the subscription until an attempt succeeds. If commands go to another server
    /// meanwhile, gives up the current attempt or pause, which may take long: the former server may
    /// be frozen.
    async fn open_again(&self, pace: &mut Pace) -> Subscribed {
        loop {
            let attempt = pace.attempt();
            let primary = self.connector.command_server();
            tokio::select! {
                opened = self.try_open(&attempt, pace) => {
                    if let Some(open) = opened {
                        return open;
                    }
                }
                () = self.connector.switched_server(primary.as_ref()) => *pace = pace.anew(),
            }
        }
    }

    /// Opens the subscription. After a failure, reports it, pauses, and returns `None`.
    async fn try_open(&self, attempt: &ConnectAttempt, pace: &mut Pace) -> Option<Subscribed> {
        match self.open(attempt).await {
            Ok(open) => Some(open),
            Err(error) => {
                self.state.broke(&error);
                pace.after(attempt).await;
                None
            }
        }
    }

    /// Delivers messages until the subscription has to be reopened, and returns why: the connection
    /// broke, commands go to another server, or [`reopen`](Subscription::reopen) was called.
    async fn serve(
        &self,
        sink: PubSubSink,
        mut stream: PubSubStream,
        primary: Option<&Primary>,
    ) -> Arc<str> {
        // This new connection satisfies all earlier requests to reopen.
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
                () = self.reopen.notified() => return Arc::from("the server has no such \
                    subscription"),
            }
        }
    }
}

/// Sends a PING every 5 s. Returns the reason, for the log, when a PING fails or gets no reply
/// within `timeout`.
async fn heartbeat(mut sink: PubSubSink, timeout: Duration) -> Arc<str> {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        match tokio::time::timeout(timeout, sink.ping::<redis::Value>()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return failure::of_connecting(&error).detail,
            Err(_) => return Arc::from("no reply to a ping"),
        }
    }
}
