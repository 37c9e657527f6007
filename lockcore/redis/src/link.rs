//! A command connection that is replaced when it fails.
//!
//! # Implementation notes
//!
//! - A timeout is only a suspicion: it fails the request, and triggers a PING. The connection is
//!   replaced when the PING times out as well, when the server closes the connection, or when the
//!   sentinels name another primary. So one slow reply does not fail all pending requests.
//! - Giving up a connection fails all pending requests; whether they ran is unknown. A replaced
//!   server may be frozen, and late replies would not be valid for the new server. On a broken
//!   connection, late replies are valid: each explains why a request failed.
//! - Replies have no ids: if a reply is lost on the way, all later ones go to the wrong requests.
//!   So each PING has a unique text. A connection with any other reply to the PING, or with a reply
//!   of unexpected form, is out of step: it is replaced, and outstanding replies are discarded.
//! - An idle connection is checked before a request is sent on it. A request that finds the
//!   connection closed was not sent, and waits for the next connection.
//! - Nothing is blindly sent twice. The caller decides which requests to retry; the only retry here
//!   is a script that the server lacked, and so did not run.
//! - Connections are numbered, so that many failed requests on a connection cause a single
//!   replacement. The state reports a broken connection before the replacement, and the new
//!   connection before a request can use it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::call::{Packed, ScriptCall, is_unknown};
use crate::connection::{Answered, Connection, Recipient};
use crate::connector::{Connector, Opened};
use crate::error::{ClientError, ClientErrorKind};
use crate::failure;
use crate::hello::Hello;
use crate::link_state::{LinkState, Outage};
use crate::pace::{ConnectAttempt, Pace};
use crate::setup::{self, Compare, ConnectionSetup, Extras, Identity};
use crate::task::{Begin, answer_to};

/// Time without a successful reply before a PING checks the connection.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Interval of the checks for a closed connection.
const LOOK: Duration = Duration::from_millis(100);

/// A connection that broke sooner than this is replaced after a pause.
pub(crate) const LASTED: Duration = Duration::from_millis(100);

/// Hooks for [`CommandLink`] events. Called under the link's mutex: they must neither block nor use
/// the link.
pub trait LinkListener: Send + Sync + 'static {
    /// The next connection leads to the server with this number, whose time is `now_us`, in µs
    /// since the epoch. Called before a command is sent there.
    fn on_server(&self, now_us: u64, number: u64);

    /// The connection state, after each change and where there is reason to check again: the error
    /// that broke the connection or that the last connection attempt failed with; `None` while
    /// connected.
    fn on_state(&self, down: Option<&ClientError>);
}

/// The shared connection; clones share it.
#[derive(Clone)]
pub struct CommandLink(Arc<SharedLink>);

struct SharedLink {
    connector: Arc<Connector>,
    setup: ConnectionSetup,
    request_timeout: Duration,
    /// The connections' runtime, and how to begin a task there.
    runtime: Handle,
    begin: Begin,
    current: Mutex<Current>,
    state: LinkState,
    /// The number of servers seen so far.
    servers: AtomicU64,
    listener: Arc<dyn LinkListener>,
    /// Replies of connections with lower numbers are discarded.
    trusted: AtomicU64,
    /// Wakes the supervisor: a connection broke, or needs a check.
    suspicion: Arc<Notify>,
    closed: CancellationToken,
}

struct Current {
    /// `None` during a replacement, and once the link is closed.
    connection: Option<Connection>,
    /// Numbers connections, so that many failures on a connection cause a single replacement.
    generation: u64,
    /// The connected server's number.
    server: u64,
    opened: Instant,
    last_success: Instant,
    /// Since when requests have timed out without any reply in between.
    silent: Option<Instant>,
    hello: Option<Hello>,
    identity: Identity,
}

/// A reply on the connection. The outer error: the reply must be discarded.
pub type Judged = Result<Result<Value, RedisError>, ClientError>;

/// A connection as used by a request.
#[derive(Debug, Clone)]
pub struct Sender {
    connection: Connection,
    /// The connection number: a replacement has a higher number.
    pub generation: u64,
    /// The connected server's number.
    pub server: u64,
}

impl CommandLink {
    /// Opens the connection, and keeps it open until `closed`.
    pub async fn connect(
        connector: Arc<Connector>,
        request_timeout: Duration,
        scripts: Vec<&'static str>,
        name: String,
        begin: Begin,
        listener: Arc<dyn LinkListener>,
        closed: CancellationToken,
    ) -> Result<(Self, Option<Hello>), ClientError> {
        let attempt = ConnectAttempt::first(connector.timeouts());
        let opened = connector.commands(request_timeout, &attempt).await?;
        opened.connection.settle(request_timeout);
        let hello = opened.hello.clone();
        let current = Current::new(opened, (0, 0), Identity::default());
        let told = Arc::clone(&listener);
        let state = LinkState::up(Box::new(move |down| told.on_state(down)));
        let shared = Arc::new(SharedLink {
            connector,
            setup: ConnectionSetup::new(name, scripts),
            request_timeout,
            runtime: Handle::current(),
            begin,
            current: Mutex::new(current),
            state,
            servers: AtomicU64::new(0),
            listener,
            trusted: AtomicU64::new(0),
            suspicion: Arc::new(Notify::new()),
            closed,
        });
        tokio::spawn(supervise(Arc::clone(&shared)));
        Ok((Self(shared), hello))
    }

    /// Sets up the connection, and each later replacement, as far as the user's rights allow.
    pub async fn settle(&self, extras: Extras) -> Result<(), ClientError> {
        self.0.setup.allow(extras);
        let sender = self.sender().await?;
        let Sender { connection, generation, server } = sender;
        let hello = self.0.current().hello.clone();
        let setup = &self.0.setup;
        let identity = setup.apply(&connection, hello.as_ref(), &Identity::default()).await?;
        let now_us = setup::time(&connection).await?;
        self.0.listener.on_server(now_us, server);
        let mut current = self.0.current();
        if current.generation == generation {
            current.identity = identity;
        }
        Ok(())
    }

    /// Returns the connection number: a replacement has a higher number.
    pub fn generation(&self) -> u64 {
        self.0.current().generation
    }

    /// Returns the number of servers seen so far. Before 7.0, without the right to read the run id,
    /// each connection counts as another server.
    pub fn servers(&self) -> u64 {
        self.0.servers.load(Ordering::Acquire)
    }

    /// Counts the server as another server from now on, because it was emptied.
    pub fn count_as_another(&self) {
        let mut current = self.0.current();
        current.server += 1;
        self.0.servers.store(current.server, Ordering::Release);
        // Wake the tasks that watch the state; they re-read the server count.
        self.0.state.touch();
    }

    /// Returns the address of the server that commands are sent to.
    pub fn address(&self) -> String {
        self.0.connector.server()
    }

    /// Returns the time since the server's last reply.
    pub fn silent_for(&self) -> Duration {
        self.0.current().last_success.elapsed()
    }

    /// Returns the server's outage: the server is not connected, or has sent nothing since a
    /// request that timed out.
    pub fn outage(&self) -> Option<Outage> {
        let down = self.0.state.outage();
        let Some(silent) = self.0.current().silent else { return down };
        let since = down.as_ref().map_or(silent, |outage| outage.since.min(silent));
        let error = down.map_or_else(|| unavailable("no reply in time"), |it| it.error);
        Some(Outage { since, error })
    }

    /// Returns when the connection was last established.
    pub fn up_since(&self) -> Instant {
        self.0.state.up_since()
    }

    /// Returns the number of pending requests; known only for our multiplexed connection.
    pub fn unanswered(&self) -> Option<usize> {
        let connection = self.0.current().connection.clone();
        connection?.unanswered()
    }

    /// Returns a handle to notify when something else suggests that the server is gone.
    pub fn suspicion(&self) -> Arc<Notify> {
        Arc::clone(&self.0.suspicion)
    }

    /// Calls `then` with the connection: at once, or in a task that waits for a connection.
    pub fn with_sender(&self, then: impl FnOnce(Result<Sender, ClientError>) + Send + 'static) {
        if let Some(sender) = self.0.usable() {
            return then(Ok(sender));
        }
        let link = self.clone();
        self.0.runtime.spawn(async move { then(link.sender().await) });
    }

    /// Runs a script by digest, or by source if the server lacks the script. Nothing else is ever
    /// sent twice.
    pub async fn ask_script(&self, call: ScriptCall) -> Judged {
        match self.ask(call.command.clone()).await? {
            Err(error) if is_unknown(&error) => self.ask(call.by_source()).await,
            answer => Ok(answer),
        }
    }

    /// Whether transactions can be sent: all commands together, with a reply each.
    pub fn may_transact(&self, sender: &Sender) -> bool {
        sender.connection.takes_transactions() && self.0.setup.may_transact()
    }

    /// Whether transactions can be sent on the present connection.
    pub fn has_transactions(&self) -> bool {
        let takes = |connection: &Connection| connection.takes_transactions();
        self.0.setup.may_transact() && self.0.current().connection.as_ref().is_some_and(takes)
    }

    /// Returns the command that deletes a key with a given value, if usable.
    pub fn may_compare(&self, sender: &Sender) -> Option<Compare> {
        self.0.setup.may_compare().filter(|_| sender.connection.takes_transactions())
    }

    /// Runs a command.
    pub async fn ask(&self, command: Packed) -> Judged {
        let sender = self.sender().await?;
        self.ask_on(sender, &command).await
    }

    /// Runs a command on exactly this connection.
    pub async fn ask_on(&self, sender: Sender, command: &Packed) -> Judged {
        let answer = answer_to(|then| {
            let (link, by) = (self.clone(), sender.clone());
            let recipient = move |answer: Answered| then(link.judge(&by, answer));
            self.send(&sender, command, Box::new(recipient));
        });
        let ended = || ClientError::refused(ClientErrorKind::Closed, "the runtime has ended");
        answer.await.unwrap_or_else(|| Err(ended()))
    }

    /// Sends a command at once, or a transaction, of which the last reply is delivered. The
    /// recipient keeps the sender, so that the connection stays open, and passes the reply to
    /// [`judge`](Self::judge).
    pub fn send(&self, sender: &Sender, command: &Packed, recipient: Box<dyn Recipient>) {
        sender.connection.give((self.0.begin, &self.0.runtime), command, recipient);
    }

    /// Updates the connection state after a reply, and decides whether the reply is valid.
    pub fn judge(&self, sender: &Sender, answer: Answered) -> Judged {
        let generation = sender.generation;
        if generation < self.0.trusted.load(Ordering::Acquire) {
            return Err(ClientError::ambiguous("the replies on the connection were out of step"));
        }
        match &answer {
            // The server may be slow, or the peer half gone: a PING shows which.
            Err(error) if error.is_timeout() => {
                self.0.current().note_silence(self.0.request_timeout);
                self.0.suspicion.notify_one();
            }
            Err(error) if failure::breaks_connection(error) => {
                drop(self.0.broke(generation, &why(error)));
            }
            _ => self.0.current().note_success(),
        }
        Ok(answer)
    }

    /// Checks whether the connection is open and a PING is answered. The PING has a separate
    /// timeout: earlier requests may be slow.
    async fn check(&self) {
        let Some(sender) = self.0.usable() else { return };
        let Sender { connection, generation, .. } = sender;
        let text = rand::random::<u64>().to_string();
        match connection.send(redis::cmd("PING").arg(&text)).await {
            Err(error) if failure::breaks_connection(&error) => {
                self.0.broke(generation, &why(&error));
            }
            Ok(answer) if answer != Value::BulkString(text.into_bytes()) => {
                self.distrust(generation);
            }
            _ => self.0.current().note_success(),
        }
    }

    /// Replaces the connection with this number, and discards outstanding replies: a reply had an
    /// unexpected form.
    pub fn distrust(&self, generation: u64) {
        self.0.trusted.fetch_max(generation + 1, Ordering::AcqRel);
        self.0.broke(generation, &unavailable("the replies were out of step"));
    }

    /// Replaces the connection: another server has taken the server's place.
    pub fn give_up(&self, reason: &str) {
        self.0.give_up(self.generation(), reason);
    }

    /// Returns the connection, waiting at most for the request timeout.
    pub async fn sender(&self) -> Result<Sender, ClientError> {
        if let Some(sender) = self.0.usable() {
            return Ok(sender);
        }
        let up = tokio::time::timeout(self.0.request_timeout, self.0.state.until_up());
        tokio::select! {
            _ = up => {}
            () = self.0.closed.cancelled() => {
                return Err(ClientError::refused(ClientErrorKind::Closed, "the store was closed"));
            }
        }
        self.0.usable().ok_or_else(|| {
            let why = self.0.state.why_down();
            why.unwrap_or_else(|| unavailable("the connection broke again"))
        })
    }
}

impl fmt::Debug for CommandLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandLink").finish_non_exhaustive()
    }
}

impl Current {
    fn new(opened: Opened, (generation, server): (u64, u64), identity: Identity) -> Self {
        let now = Instant::now();
        let Opened { connection, hello } = opened;
        let connection = Some(connection);
        Self {
            connection,
            generation,
            server,
            opened: now,
            last_success: now,
            silent: None,
            hello,
            identity,
        }
    }

    fn note_success(&mut self) {
        (self.last_success, self.silent) = (Instant::now(), None);
    }

    /// Records that a request that timed out after `length` had no reply.
    fn note_silence(&mut self, length: Duration) {
        let sent = Instant::now().checked_sub(length);
        // A request sent before the last reply shows nothing but a slow script.
        if self.silent.is_none() && sent > Some(self.last_success) {
            self.silent = sent;
        }
    }
}

impl SharedLink {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection unless it was closed. A request that finds it closed was not sent,
    /// and can wait for the next connection.
    fn usable(&self) -> Option<Sender> {
        if self.closed.is_cancelled() {
            return None;
        }
        let current = self.current();
        let Current { generation, server, .. } = *current;
        let connection = current.connection.clone()?;
        let last_success = current.last_success;
        drop(current);
        if let Some(error) = connection.why_closed(last_success) {
            self.broke(generation, &why(&error));
            return None;
        }
        Some(Sender { connection, generation, server })
    }

    /// Starts replacing the connection with this number, and returns it on the first call.
    fn broke(&self, generation: u64, error: &ClientError) -> Option<Connection> {
        let mut current = self.current();
        if current.generation != generation {
            return None;
        }
        let connection = current.connection.take()?;
        // Reported before the connection can be replaced.
        self.state.broke(error);
        drop(current);
        let server = self.connector.server();
        warn!(server, reason = %error.detail, "the connection to Redis broke");
        self.suspicion.notify_one();
        Some(connection)
    }

    /// Starts replacing the connection with this number because another server has taken over, and
    /// fails the pending requests: the old server may be frozen.
    fn give_up(&self, generation: u64, reason: &str) {
        if let Some(connection) = self.broke(generation, &unavailable(reason)) {
            connection.end();
        }
    }
}

fn why(error: &RedisError) -> ClientError {
    failure::of_connecting(error)
}

fn unavailable(reason: impl Into<Arc<str>>) -> ClientError {
    ClientError::refused(ClientErrorKind::Unavailable, reason)
}

/// Keeps the connection open until the link is closed.
async fn supervise(shared: Arc<SharedLink>) {
    let work = async {
        let mut pace = Pace::new(shared.connector.timeouts());
        loop {
            if shared.current().connection.is_none() {
                replace(&shared, &mut pace).await;
            }
            let suspicion = tokio::time::timeout(LOOK, shared.suspicion.notified()).await.is_ok();
            let silent = shared.current().last_success.elapsed() >= HEARTBEAT;
            if suspicion || silent {
                CommandLink(Arc::clone(&shared)).check().await;
            } else {
                shared.usable();
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = follow(&shared) => {}
        () = shared.closed.cancelled() => {}
    }
    shared.current().connection = None;
    shared.state.end("closed");
}

/// Replaces the connection when the sentinels name another primary. The old primary may still
/// reply, cut off from all replicas, and such replies are not valid for the new primary.
async fn follow(shared: &SharedLink) {
    loop {
        let place = shared.connector.moved().await;
        let generation = shared.current().generation;
        let reason = format!("the sentinels name another primary: {place}");
        shared.give_up(generation, &reason);
    }
}

async fn replace(shared: &SharedLink, pace: &mut Pace) {
    let broke = Instant::now();
    let (old, opened) = {
        let current = shared.current();
        (current.identity.clone(), current.opened)
    };
    if opened.elapsed() > LASTED {
        *pace = pace.anew();
    } else {
        // The connection broke right after it was opened: a replica that refuses every write, or a
        // server that closes connections.
        pace.after_refusal().await;
    }
    loop {
        let attempt = pace.attempt();
        let open = async {
            let opened = shared.connector.commands(shared.request_timeout, &attempt).await?;
            let hello = opened.hello.as_ref();
            let identity = shared.setup.apply(&opened.connection, hello, &old).await?;
            let now_us = setup::time(&opened.connection).await?;
            Ok::<_, ClientError>((opened, identity, now_us))
        };
        match open.await {
            Ok((opened, identity, now_us)) => {
                opened.connection.settle(shared.request_timeout);
                // Reported before a caller can find the connection broken again.
                let mut current = shared.current();
                let is_another = !identity.is_on_server_of(&current.identity);
                let server = current.server + u64::from(is_another);
                shared.servers.store(server, Ordering::Release);
                shared.listener.on_server(now_us, server);
                let numbers = (current.generation + 1, server);
                *current = Current::new(opened, numbers, identity);
                shared.state.set_up();
                drop(current);
                let server = shared.connector.server();
                info!(server, after = ?broke.elapsed(), "connected to Redis again");
                return;
            }
            Err(error) => {
                shared.state.broke(&error);
            }
        }
        pace.after(&attempt).await;
    }
}
