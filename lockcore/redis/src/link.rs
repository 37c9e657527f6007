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

use redis::{Cmd, RedisError, Value};
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
use crate::foreign;
use crate::hello::Hello;
use crate::link_state::{LinkState, Outage};
use crate::pace::{ConnectAttempt, Pace};
use crate::setup::{self, Compare, ConnectionSetup, Extras, Identity};
use crate::task::{Begin, answer_to};
use crate::topology::Source;

/// Time since the server's last reply after which a PING checks the connection.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Pause between two lookups of the current primary at the sentinels, by which a failover is
/// noticed.
const LOOKUP_PERIOD: Duration = Duration::from_secs(2);

/// Interval at which the link checks whether the connection was closed.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// Lifetime after which a connection that breaks is replaced without a pause. If it breaks sooner,
/// the server may close connections or refuse all writes, so there is a pause first.
pub(crate) const LASTED: Duration = Duration::from_millis(100);

/// Receives the events of a [`CommandLink`]. The methods except [`log`](Self::log) may be called
/// under the link's mutex, so they must neither block nor log, nor use the link.
pub trait LinkListener: Send + Sync + 'static {
    /// Called when the setup of a connection is complete. The link sends commands of callers on a
    /// replacement connection only after this call. `now_us` is the server's time, in µs since the
    /// epoch. `number` is the server's number, raised each time the link connects to another
    /// server.
    fn on_server(&self, now_us: u64, number: u64);

    /// Called after [`on_server`](Self::on_server), and without the link's mutex, to log what that
    /// call has found.
    fn log(&self);

    /// Called after each change of the connection state. `down` is the error that broke the
    /// connection or with which the last connection attempt failed; `None` while connected. Also
    /// called with the state unchanged, by [`CommandLink::count_as_another`].
    fn on_state(&self, down: Option<&ClientError>);
}

/// A command connection that is replaced when it fails, until the link is closed. Clones share the
/// connection.
#[derive(Clone)]
pub struct CommandLink(Arc<SharedLink>);

struct SharedLink {
    connector: Arc<Connector>,
    setup: ConnectionSetup,
    request_timeout: Duration,
    /// The runtime for requests that wait for a connection.
    runtime: Handle,
    /// Starts the tasks of connections.
    begin: Begin,
    current: Mutex<Current>,
    state: LinkState,
    /// The current server's number: a copy of [`Current::server`], read without the mutex.
    servers: AtomicU64,
    listener: Arc<dyn LinkListener>,
    /// The lowest connection number whose replies are trusted, raised by [`CommandLink::distrust`].
    /// Replies on earlier connections are discarded.
    trusted: AtomicU64,
    /// Wakes the supervisor task, to check the connection with a PING, or to replace a broken
    /// connection.
    suspicion: Arc<Notify>,
    closed: CancellationToken,
}

struct Current {
    /// The connection; `None` while it is being replaced, and once the link is closed.
    connection: Option<Connection>,
    /// The connection's number, raised with each replacement. Errors of earlier connections are
    /// ignored, so that many failures on a connection cause a single replacement.
    generation: u64,
    /// The connected server's number, raised with each change of server.
    server: u64,
    opened: Instant,
    last_success: Instant,
    /// When the server fell silent: the time when a request was sent that has timed out. `None` if
    /// the server has replied since, or no request has timed out.
    silent: Option<Instant>,
    hello: Option<Hello>,
    identity: Identity,
}

/// The result of a request. The inner result is the server's reply, or the server's or the
/// connection's error. The outer error means that there is no valid reply: the request was not
/// sent, the reply was discarded because replies were out of step, or the runtime has ended.
pub type Judged = Result<Result<Value, RedisError>, ClientError>;

/// An open connection on which to send a request, with the numbers of the connection and the
/// server. [`CommandLink::judge`] needs them when the reply arrives.
#[derive(Debug, Clone)]
pub struct Sender {
    connection: Connection,
    /// The connection's number. A replacement has a higher number.
    pub generation: u64,
    /// The number of the server at the other end, raised with each change of server.
    pub server: u64,
}

impl CommandLink {
    /// Opens the connection, and keeps it open until `closed` is cancelled. Also returns the
    /// server's reply to HELLO, if the server has this command. Call [`set_up`](Self::set_up) once
    /// the Redis user's rights are known.
    ///
    /// `scripts` are the sources to load into each server, `name` is the name of the connections in
    /// CLIENT LIST, and `begin` starts tasks of connections.
    ///
    /// # Errors
    /// The first connection attempt failed.
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
        opened.connection.shorten_timeout(request_timeout);
        let hello = opened.hello.clone();
        let current = Current::new(opened, (0, 0), Identity::default());
        let state_listener = Arc::clone(&listener);
        let state = LinkState::up(Box::new(move |down| state_listener.on_state(down)));
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

    /// Sets up the connection, and later each replacement: names it, loads the scripts, and reads
    /// what identifies the server, as far as `extras` allows. Then reports the server to the
    /// listener.
    ///
    /// # Errors
    /// There is no connection, or the setup failed.
    pub async fn set_up(&self, extras: Extras) -> Result<(), ClientError> {
        self.0.setup.allow(extras);
        let sender = self.sender().await?;
        let Sender { connection, generation, server } = sender;
        let hello = self.0.current().hello.clone();
        let setup = &self.0.setup;
        let identity = setup.apply(&connection, hello.as_ref(), &Identity::default()).await?;
        let now_us = setup::time(&connection).await?;
        self.0.listener.on_server(now_us, server);
        self.0.listener.log();
        let mut current = self.0.current();
        if current.generation == generation {
            current.identity = identity;
        }
        Ok(())
    }

    /// Returns the current connection's number. Each replacement raises the number, so a change
    /// since an earlier call shows that the connection was replaced in between.
    pub fn generation(&self) -> u64 {
        self.0.current().generation
    }

    /// Returns the current connection's number; `None` while the connection is being replaced, and
    /// once the link is closed.
    pub fn open_generation(&self) -> Option<u64> {
        let current = self.0.current();
        current.connection.as_ref().map(|_| current.generation)
    }

    /// Waits until the connection with this number is not the current connection any more: it
    /// broke, or was given up, or the link was closed. Also ends where only this connection broke,
    /// and the server is the same.
    pub async fn replaced(&self, generation: u64) {
        let mut state = self.0.state.changes();
        while self.open_generation() == Some(generation) {
            // Fails only once the link is dropped, which this handle prevents.
            let _ = state.changed().await;
        }
    }

    /// Returns the current server's number: 0 for the first server, raised with each change of
    /// server. Before Redis 7.0, without the right to read the run id, each new connection counts
    /// as another server.
    pub fn servers(&self) -> u64 {
        self.0.servers.load(Ordering::Acquire)
    }

    /// Raises the server's number without a new connection. Called when the server has lost its
    /// data, and so must not be taken for the same server. Also calls [`LinkListener::on_state`].
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

    /// Returns the time since the server's last reply on this link.
    pub fn silent_for(&self) -> Duration {
        self.0.current().last_success.elapsed()
    }

    /// Returns the current outage; `None` while the server replies. In an outage there is no
    /// connection, or the server has sent nothing since a request that timed out.
    pub fn outage(&self) -> Option<Outage> {
        let down = self.0.state.outage();
        let Some(silent) = self.0.current().silent else { return down };
        let since = down.as_ref().map_or(silent, |outage| outage.since.min(silent));
        let error = down.map_or_else(|| unavailable("no reply in time"), |it| it.error);
        Some(Outage { since, error })
    }

    /// Returns when the current connection was established; without a connection, when the last one
    /// was.
    pub fn up_since(&self) -> Instant {
        self.0.state.up_since()
    }

    /// Returns the number of requests without a reply yet. `None` without a connection, and for a
    /// redis-rs connection, because it does not report the number.
    pub fn unanswered(&self) -> Option<usize> {
        let connection = self.0.current().connection.clone();
        connection?.unanswered()
    }

    /// Returns a handle that makes the link check its connection when notified. Use it if something
    /// else suggests that the server is gone.
    pub fn suspicion(&self) -> Arc<Notify> {
        Arc::clone(&self.0.suspicion)
    }

    /// Calls `then` with the connection. If there is none, a task waits for the next connection, at
    /// most for the request timeout, and then calls `then` with the connection or an error.
    pub fn with_sender(&self, then: impl FnOnce(Result<Sender, ClientError>) + Send + 'static) {
        if let Some(sender) = self.0.usable() {
            return then(Ok(sender));
        }
        let link = self.clone();
        self.0.runtime.spawn(async move { then(link.sender().await) });
    }

    /// Sends a script call by digest, and waits for the reply. If the server lacks the script,
    /// sends the call again by source. No other command is ever sent twice.
    pub async fn request_script(&self, call: ScriptCall) -> Judged {
        match self.request(call.command.clone()).await? {
            Err(error) if is_unknown(&error) => self.request(call.by_source()).await,
            answer => Ok(answer),
        }
    }

    /// Returns true if transactions can be sent on the connection of `sender`: it is a connection
    /// of this crate, and the Redis user may send MULTI and EXEC.
    pub fn may_transact(&self, sender: &Sender) -> bool {
        sender.connection.takes_transactions() && self.0.setup.may_transact()
    }

    /// Returns true if transactions can be sent on the current connection: it is a connection of
    /// this crate, and the Redis user may send MULTI and EXEC. False without a connection.
    pub fn has_transactions(&self) -> bool {
        let takes = |connection: &Connection| connection.takes_transactions();
        self.0.setup.may_transact() && self.0.current().connection.as_ref().is_some_and(takes)
    }

    /// Returns the server's command that deletes a key only if it has a given value. `None` if the
    /// server or the Redis user lacks the command, and for a redis-rs connection.
    pub fn may_compare(&self, sender: &Sender) -> Option<Compare> {
        self.0.setup.may_compare().filter(|_| sender.connection.takes_transactions())
    }

    /// Records that the server has refused a transaction: it lacks MULTI or EXEC, or the Redis user
    /// lacks the right. None is tried again before the next connection.
    pub fn note_refused_transact(&self) {
        self.0.setup.note_refused_transact();
    }

    /// Does the same for the command of [`may_compare`](Self::may_compare).
    pub fn note_refused_compare(&self) {
        self.0.setup.note_refused_compare();
    }

    /// Sends a command, and waits for the reply. Without a connection, first waits for the next
    /// one, at most for the request timeout.
    pub async fn request(&self, command: Packed) -> Judged {
        let sender = self.sender().await?;
        self.request_on(sender, &command).await
    }

    /// Sends a command on the connection of `sender`, even if that has been replaced, and waits for
    /// the reply.
    pub async fn request_on(&self, sender: Sender, command: &Packed) -> Judged {
        let answer = answer_to(|then| {
            let (link, by) = (self.clone(), sender.clone());
            let recipient = move |answer: Answered| then(link.judge(&by, answer));
            self.send(&sender, command, Box::new(recipient));
        });
        // The task that drops a request may have sent it before.
        let ended = || ClientError {
            may_have_run: true,
            ..ClientError::refused(ClientErrorKind::Closed, "the runtime has ended")
        };
        answer.await.unwrap_or_else(|| Err(ended()))
    }

    /// Sends a command or a transaction without waiting, and later calls `recipient` with the
    /// reply; for a transaction, with the last reply. The recipient has to pass the reply to
    /// [`judge`](Self::judge), and to keep `sender` until then, because without it a replaced
    /// connection closes.
    pub fn send(&self, sender: &Sender, command: &Packed, recipient: Box<dyn Recipient>) {
        sender.connection.give(self.0.begin, command, recipient);
    }

    /// Updates the connection state after a reply, and returns the reply. A broken connection is
    /// replaced, and after a timeout it is checked with a PING. The outer error means that the
    /// reply must be discarded, because the replies on the connection were out of step.
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

    /// Sends a PING, and replaces the connection if the reply is late or wrong. A request that
    /// timed out is not enough to replace the connection: the server may be busy with it, and reply
    /// to the PING in time.
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

    /// Replaces the connection with this number, and discards all its later replies. Called after a
    /// reply of unexpected form, which shows that replies reach the wrong requests.
    pub fn distrust(&self, generation: u64) {
        self.0.trusted.fetch_max(generation + 1, Ordering::AcqRel);
        self.0.broke(generation, &unavailable("the replies were out of step"));
    }

    /// Closes the connection, which fails all pending requests, and opens another. Called if
    /// another server has taken over from the connected server. `reason` is logged.
    pub fn give_up(&self, reason: &str) {
        self.0.give_up(self.generation(), reason);
    }

    /// Does the same, but only if the connection has this number.
    pub fn give_up_if(&self, generation: u64, reason: &str) {
        self.0.give_up(generation, reason);
    }

    /// Gives up the connection with this number if its server states that it is a replica. A
    /// replica answers PINGs, so that the link would keep the connection.
    pub async fn give_up_replica(&self, generation: u64, reason: &str) {
        let Some(sender) = self.0.usable().filter(|sender| sender.generation == generation) else {
            return;
        };
        let hello = sender.connection.send(&Hello::command()).await.ok();
        if hello.as_ref().and_then(Hello::read).is_some_and(|hello| hello.is_replica()) {
            self.give_up_if(generation, reason);
        }
    }

    /// Returns true if the current server's run can be recognised. False before Redis 7.0
    /// without the right to read the run id.
    pub fn knows_server(&self) -> bool {
        self.0.current().identity.is_known()
    }

    /// Returns true if `opened`, a further connection, leads to the same run of the same server as
    /// the connection with this number. False if that connection was replaced, or the run cannot be
    /// recognised.
    ///
    /// # Errors
    /// A connection broke, or a server runs no commands at present.
    pub async fn is_same_server(
        &self,
        opened: &Opened,
        generation: u64,
    ) -> Result<bool, ClientError> {
        let (connection, ours) = {
            let current = self.0.current();
            let connection = current.connection.clone();
            (connection.filter(|_| current.generation == generation), current.identity.clone())
        };
        let Some(connection) = connection else { return Ok(false) };
        setup::load_mark(&connection, &ours).await?;
        let hello = opened.hello.as_ref();
        let theirs = self.0.setup.identify(&opened.connection, hello, &ours).await?;
        if ours.has_run_id() == theirs.has_run_id() {
            return Ok(theirs.is_on_run_of(&ours));
        }
        // The right to INFO has changed between both connections.
        setup::is_same_run(&connection, &opened.connection, hello).await
    }

    /// Returns the connection. Without one, waits for the next connection, at most for the request
    /// timeout.
    ///
    /// # Errors
    /// There was no connection in time, or the link was closed.
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

impl Source for CommandLink {
    async fn run(&self, command: &Cmd) -> Result<Value, ClientError> {
        self.request(Packed::from(command)).await?.map_err(|error| failure::of_command(&error))
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

    /// Records that the server has just replied. Ends an outage that began with a timeout.
    fn note_success(&mut self) {
        (self.last_success, self.silent) = (Instant::now(), None);
    }

    /// Records that a request had no reply within its timeout, `length`. This begins an outage if
    /// the server has sent nothing since the request was sent.
    fn note_silence(&mut self, length: Duration) {
        let sent = Instant::now().checked_sub(length);
        // If the server has replied since the request was sent, it is only slow.
        if self.silent.is_none() && sent > Some(self.last_success) {
            self.silent = sent;
        }
    }
}

impl SharedLink {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection for a request that is about to be sent. `None` if the link is closed,
    /// or the connection is broken. If this call is the first to find it broken, wakes the
    /// supervisor task, which opens another connection.
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

    /// Marks the connection with this number as broken, so that the supervisor task replaces it.
    /// Returns the connection on the first call, so that the caller can close it; `None` if it was
    /// marked or replaced before.
    fn broke(&self, generation: u64, error: &ClientError) -> Option<Connection> {
        let mut current = self.current();
        if current.generation != generation {
            return None;
        }
        let connection = current.connection.take()?;
        // Reported before the connection can be replaced.
        self.state.broke(error);
        drop(current);
        self.suspicion.notify_one();
        let server = self.connector.server();
        foreign::log(|| warn!(server, reason = %error.detail, "the connection to Redis broke"));
        Some(connection)
    }

    /// Closes the connection with this number, because another server has taken over. The
    /// supervisor task then replaces it. The pending requests fail at once, because the old server
    /// may be frozen.
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

/// The supervisor task: until the link is closed, it checks the connection and replaces a broken
/// connection.
async fn supervise(shared: Arc<SharedLink>) {
    let work = async {
        let mut pace = Pace::new(shared.connector.timeouts());
        loop {
            if shared.current().connection.is_none() {
                replace(&shared, &mut pace).await;
            }
            let suspicion =
                tokio::time::timeout(CHECK_PERIOD, shared.suspicion.notified()).await.is_ok();
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
        () = replace_on_failover(&shared) => {}
        () = shared.closed.cancelled() => {}
    }
    shared.current().connection = None;
    shared.state.end("closed");
}

/// Replaces the connection whenever the sentinels name another primary. The old primary may still
/// reply although it is cut off from all replicas, and its replies are not valid for the new
/// primary.
async fn replace_on_failover(shared: &SharedLink) {
    loop {
        tokio::time::sleep(LOOKUP_PERIOD).await;
        // Before the lookup: meanwhile, the connection may be replaced by one to the new primary.
        let generation = shared.current().generation;
        if let Some(place) = shared.connector.moved().await {
            let reason = format!("the sentinels name another primary: {place}");
            shared.give_up(generation, &reason);
        }
    }
}

/// Replaces a broken connection: tries to connect until an attempt succeeds, reports the server to
/// the listener, and makes the new connection current. `pace` has the timeouts and pauses of the
/// attempts. It starts over if the broken connection was open for longer than [`LASTED`], and if
/// the sentinels name another primary.
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
            let set_up = async {
                let (connection, hello) = (&opened.connection, opened.hello.as_ref());
                let identity = shared.setup.apply(connection, hello, &old).await?;
                Ok::<_, ClientError>((identity, setup::time(connection).await?))
            };
            // Several requests, to which a replaced primary may be slow to reply.
            let (identity, now_us) = tokio::select! {
                done = set_up => done?,
                () = shared.connector.failed_over(&attempt) => {
                    return Err(unavailable("the sentinels name another primary"));
                }
            };
            Ok((opened, identity, now_us))
        };
        match open.await {
            Ok((opened, identity, now_us)) => {
                opened.connection.shorten_timeout(shared.request_timeout);
                // Reported under the mutex, before a caller can find the connection broken again.
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
                shared.listener.log();
                foreign::log(
                    || info!(server, after = ?broke.elapsed(), "connected to Redis again"),
                );
                return;
            }
            Err(error) => {
                shared.state.broke(&error);
            }
        }
        tokio::select! {
            () = pace.after(&attempt) => {}
            // The new primary has refused nothing yet.
            () = shared.connector.failed_over(&attempt) => *pace = pace.anew(),
        }
    }
}
