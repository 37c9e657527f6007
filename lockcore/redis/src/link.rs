//! A connection for commands that is replaced when it fails.
//!
//! # Implementation notes
//!
//! - A time-out is only a suspicion: it ends its request and has a PING sent. The connection is
//!   replaced when the PING is not answered either, when the server closed it, or when the
//!   sentinels name another primary. So one slow answer does not fail all requests that are on
//!   their way.
//! - A connection that is given up ends with its requests; whether they ran is unknown. A server
//!   that was replaced may stand still, and its answers would not count on the new one. On one that
//!   broke, answers that still come do count: each says why its own request failed.
//! - Answers have no names: if one goes missing on the way, all later ones go to requests that are
//!   not theirs. So the PING has a text of its own, and a connection that answers anything else, or
//!   on which an answer has an unexpected form, is distrusted: it is replaced, and no answer that
//!   is still to come on it counts.
//! - An idle connection is looked at before a request is sent on it. A request that finds it closed
//!   was not sent, and waits for the next connection.
//! - Nothing is sent twice blindly. The caller decides which request is repeated; the only
//!   repetition here is a script that the server did not know, and so did not run.
//! - Connections are counted, so that many requests that fail on one connection replace it once.
//!   The state says that a connection broke before it is replaced, and that the new one is up
//!   before a request can use it.

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

/// The time without a success after which a PING shows whether the connection still stands.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The time between two looks whether the connection was closed.
const LOOK: Duration = Duration::from_millis(100);

/// A connection that broke after less than this is replaced with a pause.
pub(crate) const LASTED: Duration = Duration::from_millis(100);

/// Hooks for what happens to a [`CommandLink`]. Called under its mutex: they may neither block nor
/// use the link.
pub trait LinkListener: Send + Sync + 'static {
    /// The next connection leads to the server with this number, whose time is `now_us`, µs since
    /// the epoch. Told before a command goes there.
    fn on_server(&self, now_us: u64, number: u64);

    /// Its state, after each change and where there is reason to look again: the error that broke
    /// it, or that of the last attempt to connect; nothing while it is up.
    fn on_state(&self, down: Option<&ClientError>);
}

/// The shared connection; clones are the same one.
#[derive(Clone)]
pub struct CommandLink(Arc<SharedLink>);

struct SharedLink {
    connector: Arc<Connector>,
    setup: ConnectionSetup,
    request_timeout: Duration,
    /// The runtime of the connections, and the way to begin a task there.
    runtime: Handle,
    begin: Begin,
    current: Mutex<Current>,
    state: LinkState,
    /// Counts the servers that connections have led to.
    servers: AtomicU64,
    listener: Arc<dyn LinkListener>,
    /// Answers of connections with lower numbers do not count.
    trusted: AtomicU64,
    /// Wakes the supervisor: a connection broke, or there is reason to look.
    suspicion: Arc<Notify>,
    closed: CancellationToken,
}

struct Current {
    /// Gone while it is being replaced, and once it is closed.
    connection: Option<Connection>,
    /// Counts connections, so that many failures of one cause one replacement.
    generation: u64,
    /// The number of its server.
    server: u64,
    opened: Instant,
    last_success: Instant,
    /// The moment since which requests have had no answer in time, and none at all.
    silent: Option<Instant>,
    hello: Option<Hello>,
    identity: Identity,
}

/// An answer on the connection. The outer error: it does not count.
pub type Judged = Result<Result<Value, RedisError>, ClientError>;

/// A connection as one request uses it.
#[derive(Debug, Clone)]
pub struct Sender {
    connection: Connection,
    /// The number of the connection: that of its replacement is higher.
    pub generation: u64,
    /// The number of its server.
    pub server: u64,
}

impl CommandLink {
    /// Opens the connection, and keeps it until `closed`.
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

    /// Prepares the connection, and from now on each one that replaces it, as far as the user may.
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

    /// The number of the connection: that of its replacement is higher.
    pub fn generation(&self) -> u64 {
        self.0.current().generation
    }

    /// Counts the servers that connections have led to. Before 7.0, one whose user may not know the
    /// server's run counts each connection.
    pub fn servers(&self) -> u64 {
        self.0.servers.load(Ordering::Acquire)
    }

    /// Counts the server as another one from now on, for it was emptied.
    pub fn count_as_another(&self) {
        let mut current = self.0.current();
        current.server += 1;
        self.0.servers.store(current.server, Ordering::Release);
        // Those that follow it look at the count.
        self.0.state.touch();
    }

    /// The address of the server that commands go to.
    pub fn address(&self) -> String {
        self.0.connector.server()
    }

    /// The time since the server last answered.
    pub fn silent_for(&self) -> Duration {
        self.0.current().last_success.elapsed()
    }

    /// The outage of the server: it is not connected, or it has not answered since a request that
    /// was not answered in time.
    pub fn outage(&self) -> Option<Outage> {
        let down = self.0.state.outage();
        let Some(silent) = self.0.current().silent else { return down };
        let since = down.as_ref().map_or(silent, |outage| outage.since.min(silent));
        let error = down.map_or_else(|| unavailable("it did not answer in time"), |it| it.error);
        Some(Outage { since, error })
    }

    /// The moment at which it last connected.
    pub fn up_since(&self) -> Instant {
        self.0.state.up_since()
    }

    /// The number of requests on their way; not known without a connection of our own.
    pub fn unanswered(&self) -> Option<usize> {
        let connection = self.0.current().connection.clone();
        connection?.unanswered()
    }

    /// Notify it when something else suggests that the server is gone.
    pub fn suspicion(&self) -> Arc<Notify> {
        Arc::clone(&self.0.suspicion)
    }

    /// Calls `then` with the connection: at once, or in a task that waits for one.
    pub fn with_sender(&self, then: impl FnOnce(Result<Sender, ClientError>) + Send + 'static) {
        if let Some(sender) = self.0.usable() {
            return then(Ok(sender));
        }
        let link = self.clone();
        self.0.runtime.spawn(async move { then(link.sender().await) });
    }

    /// Runs a script by its digest, or by its source where the server has forgotten it. Nothing
    /// else is ever sent twice.
    pub async fn ask_script(&self, call: ScriptCall) -> Judged {
        match self.ask(call.command.clone()).await? {
            Err(error) if is_unknown(&error) => self.ask(call.by_source()).await,
            answer => Ok(answer),
        }
    }

    /// Whether a transaction can be sent: its commands go together, and have an answer each.
    pub fn may_transact(&self, sender: &Sender) -> bool {
        sender.connection.takes_transactions() && self.0.setup.may_transact()
    }

    /// Whether transactions can be sent on the present connection.
    pub fn has_transactions(&self) -> bool {
        let takes = |connection: &Connection| connection.takes_transactions();
        self.0.setup.may_transact() && self.0.current().connection.as_ref().is_some_and(takes)
    }

    /// The command that deletes a key if it has a value, if it can be sent.
    pub fn may_compare(&self, sender: &Sender) -> Option<Compare> {
        self.0.setup.may_compare().filter(|_| sender.connection.takes_transactions())
    }

    /// Runs a command.
    pub async fn ask(&self, command: Packed) -> Judged {
        let sender = self.sender().await?;
        self.ask_on(sender, &command).await
    }

    /// Runs a command on this very connection.
    pub async fn ask_on(&self, sender: Sender, command: &Packed) -> Judged {
        let answer = answer_to(|then| {
            let (link, by) = (self.clone(), sender.clone());
            let recipient = move |answer: Answered| then(link.judge(&by, answer));
            self.send(&sender, command, Box::new(recipient));
        });
        let ended = || ClientError::refused(ClientErrorKind::Closed, "the runtime has ended");
        answer.await.unwrap_or_else(|| Err(ended()))
    }

    /// Sends a command at once, or a transaction, of which the last answer is taken. The recipient
    /// keeps the sender, so that its connection stays, and has the answer judged.
    pub fn send(&self, sender: &Sender, command: &Packed, recipient: Box<dyn Recipient>) {
        sender.connection.give((self.0.begin, &self.0.runtime), command, recipient);
    }

    /// Draws the conclusions from an answer for its connection.
    pub fn judge(&self, sender: &Sender, answer: Answered) -> Judged {
        let generation = sender.generation;
        if generation < self.0.trusted.load(Ordering::Acquire) {
            return Err(ClientError::ambiguous("the answers on its connection were out of step"));
        }
        match &answer {
            // The server may be slow, or the peer half gone: a PING tells.
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

    /// Whether the connection still stands, and answers a PING. The PING has a time of its own:
    /// earlier requests may be slow.
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

    /// Replaces the connection with this number, and has no answer count that is still to come on
    /// it: one had an unexpected form.
    pub fn distrust(&self, generation: u64) {
        self.0.trusted.fetch_max(generation + 1, Ordering::AcqRel);
        self.0.broke(generation, &unavailable("its answers were out of step"));
    }

    /// Replaces the connection: another server has taken the place of its own.
    pub fn give_up(&self, reason: &str) {
        self.0.give_up(self.generation(), reason);
    }

    /// The connection, waited for as long as one request may take.
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

    /// Notes that a request of this length had no answer.
    fn note_silence(&mut self, length: Duration) {
        let sent = Instant::now().checked_sub(length);
        // One that was sent before the last answer shows nothing but a slow script.
        if self.silent.is_none() && sent > Some(self.last_success) {
            self.silent = sent;
        }
    }
}

impl SharedLink {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, if it was not closed. A request that finds it closed was not sent, and can
    /// wait for the next one.
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

    /// Has the connection with this number replaced, and returns it if it was not yet.
    fn broke(&self, generation: u64, error: &ClientError) -> Option<Connection> {
        let mut current = self.current();
        if current.generation != generation {
            return None;
        }
        let connection = current.connection.take()?;
        // Told before the connection can be replaced.
        self.state.broke(error);
        drop(current);
        let server = self.connector.server();
        warn!(server, reason = %error.detail, "the connection to Redis broke");
        self.suspicion.notify_one();
        Some(connection)
    }

    /// As [`broke`](Self::broke), where another server has taken the place of its own: its requests
    /// end, for its server may stand still.
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

/// Keeps the connection until it is closed.
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

/// Has the connection replaced when the sentinels name another primary. The old one may still
/// answer, cut off from its replicas, and what it answers does not count on the new one.
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
        // It broke as soon as it stood: a replica that refuses every write, or a server that hangs
        // up.
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
                // Told before a caller can find it broken again.
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
