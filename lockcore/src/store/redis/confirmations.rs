//! Runs grants and renewals whose writes must be confirmed before the node relies on them. This
//! needs separate connections, because WAIT and WAITAOF keep their connection busy until the
//! replicas and the disk have the writes.
//!
//! # Implementation notes
//!
//! - The name in a URL, or a pool, may lead a new connection to another server than the commands,
//!   with its own replicas. So nothing is sent on a connection before the run of its server was
//!   compared with the command connection's. Where they differ, either may be the right one: the
//!   command connection is given up only if its own server states that it has become a replica.

use std::sync::Arc;
use std::time::Duration;

use client::failure::is_of_replica;
use client::{
    ClientErrorKind, ConnectAttempt, Connection, Connector, Hello, Opened, Packed, is_unknown,
};
use futures_util::future::{join, join_all};
use proto::node::{RequestGroup, commands};
use proto::wire::{TokenFloors, Wire};
use proto::{LockErrorKind, LockName, StoreError};
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call::Scripted;
use super::failure;
use super::preflight::read_version;
use super::run::{Judged, Run as _, finished_script};
use super::server::Server;
use crate::store::confirmation::{Confirmation, ConfirmedBy};
use crate::store::{Replied, Replies};
use crate::types::error::LockError;

/// Number of connections that can wait for confirmations at the same time.
const CONNECTIONS: usize = 4;
/// Maximum number of scripts sent before each WAIT or WAITAOF, which confirms all of them together.
const MAX_AT_ONCE: usize = 128;

/// Why the command connection is given up if a connection for confirmations finds a replica.
const BECAME_REPLICA: &str = "the server has become a replica";
/// Error text for a connection for confirmations that leads to another server.
const ELSEWHERE: &str = "the address led a connection for confirmations to another server than the \
    commands: all connections must reach the same server";
/// Error text for a server whose runs cannot be told apart.
const UNKNOWN: &str = "allow +info: before Redis 7.0, only INFO shows that confirmations and \
    commands have the same server";

/// The queue of request groups whose writes must be confirmed. Several workers take groups from the
/// queue, each with a separate connection.
pub(crate) struct Confirmations(mpsc::Sender<Pending>);

struct Pending {
    group: RequestGroup,
    /// True if an ASKING command must come directly before the group.
    asking: bool,
    reply: oneshot::Sender<Replied>,
}

impl Confirmations {
    /// Checks that the server can confirm writes, and starts the workers. To check the disk, a
    /// write is made to the keys of `probe`. The workers open their connections when needed, and
    /// keep them until `closed` is cancelled.
    pub(crate) async fn start(
        connector: &Arc<Connector>,
        server: &Arc<Server>,
        confirmation: Confirmation,
        request_timeout: Duration,
        probe: Option<&LockName>,
        closed: &CancellationToken,
    ) -> Result<Self, LockError> {
        let worker = || Worker {
            connector: Arc::clone(connector),
            server: Arc::clone(server),
            confirmation,
            request_timeout,
            connection: None,
        };
        // Without Cluster slots, the user's rights are not known yet.
        if probe.is_some() && !server.link.knows_server() {
            return Err(LockError::with_detail(LockErrorKind::Denied, UNKNOWN));
        }
        let mut first = worker();
        first.check(probe).await.map_err(LockError::of_store)?;
        let (sender, receiver) = mpsc::channel(MAX_AT_ONCE);
        let receiver = Arc::new(Mutex::new(receiver));
        let others = (1..CONNECTIONS).map(|_| worker());
        for mut worker in std::iter::once(first).chain(others) {
            let receiver = Arc::clone(&receiver);
            let closed = closed.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = worker.run(&receiver) => {}
                    () = closed.cancelled() => {}
                }
            });
        }
        Ok(Self(sender))
    }

    /// Runs a request group, and returns the replies once the writes are confirmed. `asking` is
    /// true if an ASKING command must come directly before the group.
    pub(crate) fn run(
        &self,
        group: RequestGroup,
        asking: bool,
    ) -> impl Future<Output = Replied> + Send + use<> {
        let sender = self.0.clone();
        async move {
            let (reply, replied) = oneshot::channel();
            let closed = || StoreError::ambiguous("the store was closed");
            let pending = Pending { group, asking, reply };
            sender.send(pending).await.map_err(|_| closed())?;
            replied.await.unwrap_or_else(|_| Err(closed()))
        }
    }
}

/// A task that takes request groups from the queue and runs them on a separate connection.
struct Worker {
    connector: Arc<Connector>,
    server: Arc<Server>,
    confirmation: Confirmation,
    request_timeout: Duration,
    connection: Option<Own>,
}

/// The connection of a [`Worker`].
#[derive(Clone)]
struct Own {
    connection: Connection,
    /// The command connection's generation number when this connection was opened. If the number
    /// changes, the primary may have changed, so this connection is replaced.
    generation: u64,
    /// When this connection was opened: its last reply is no older.
    opened: Instant,
    /// The server's time when this connection was opened, in µs since the epoch. New tokens must be
    /// above it, because the command connection may not have met this server yet.
    opened_us: u64,
    /// True if the server's WAITAOF waits for the disk, whatever `appendfsync` is.
    waits_for_disk: bool,
}

impl Worker {
    async fn run(&mut self, receiver: &Mutex<mpsc::Receiver<Pending>>) {
        loop {
            let mut gathered = Vec::new();
            // Requests gather in the queue while all connections are busy.
            if receiver.lock().await.recv_many(&mut gathered, MAX_AT_ONCE).await == 0 {
                return;
            }
            self.confirm(gathered).await;
        }
    }

    async fn confirm(&mut self, gathered: Vec<Pending>) {
        let confirmed = match self.connection().await {
            Ok(own) => {
                let (link, generation) = (self.server.link.clone(), own.generation);
                let server = link.servers();
                tokio::select! {
                    // Checked before anything is sent: the server's number belongs to this
                    // connection.
                    biased;
                    () = link.replaced(generation) => {
                        self.connection = None;
                        Err(StoreError::ambiguous("the connection to the server was replaced"))
                    }
                    confirmed = self.confirm_on(own, server, &gathered) => Ok(confirmed),
                }
            }
            Err(error) => Err(error),
        };
        let confirmed =
            confirmed.unwrap_or_else(|error| gathered.iter().map(|_| Err(error.clone())).collect());
        for (pending, confirmed) in gathered.into_iter().zip(confirmed) {
            // The send fails only if the caller has gone.
            let _ = pending.reply.send(confirmed);
        }
    }

    /// Runs the request groups on this connection, to the server with this number, and waits until
    /// the writes are confirmed.
    async fn confirm_on(&mut self, own: Own, server: u64, gathered: &[Pending]) -> Vec<Replied> {
        let generation = own.generation;
        let floors = |group: &RequestGroup| {
            let mut floors = self.server.floors(group, server);
            floors.floor_us = floors.floor_us.max(own.opened_us);
            floors
        };
        let runs = gathered.iter().map(|Pending { group, asking, .. }| {
            run(own.connection.clone(), &self.server.wire, group, floors(group), *asking)
        });
        let ran = join_all(runs).await;
        let layout = self.server.wire.layout;
        let is_over = |ran: &Judged| matches!(ran, Ok(Err(error)) if is_over(error));
        let confirmed = if ran.iter().all(is_over) {
            // A wait would only take as long again.
            self.connection = None;
            Ok(None)
        } else {
            self.wait(own, self.confirmation.by).await.map(|unconfirmed| {
                // Another server may take over, or the setting be corrected.
                unconfirmed.map(|error| StoreError { kind: LockErrorKind::Unavailable, ..error })
            })
        };
        let is_of_replica = |ran: &Judged| matches!(ran, Ok(Err(error)) if is_of_replica(error));
        // After the wait, which ends with the command connection.
        if ran.iter().any(is_of_replica) {
            // The command connection leads to the same run. It may have nothing to send but PINGs,
            // which a replica answers.
            self.connection = None;
            self.server.link.give_up_if(generation, BECAME_REPLICA);
        }
        let values = ran.into_iter().map(|ran| finished_script(ran, layout));
        let replied =
            gathered.iter().zip(values).map(|(pending, value)| match (value, &confirmed) {
                (Ok(value), Ok(unconfirmed)) => {
                    let answers = self.server.answers(&pending.group, server, &value);
                    answers.map(|answers| Replies { answers, unconfirmed: unconfirmed.clone() })
                }
                (Err(error), _) => match self.confirmation.by.refusal(&error) {
                    Some(refusal) => {
                        let answers = pending.group.iter().map(|_| Err(error.clone())).collect();
                        Ok(Replies { answers, unconfirmed: Some(refusal) })
                    }
                    None => Err(error),
                },
                (_, Err(error)) => Err(error.clone()),
            });
        replied.collect()
    }

    async fn connection(&mut self) -> Result<Own, StoreError> {
        // Without a command connection, the sentinels may have named another primary. The server of
        // this worker must not grant locks meanwhile.
        let Some(generation) = self.server.link.open_generation() else {
            return Err(being_replaced());
        };
        match &self.connection {
            // A server or a proxy may have closed it while it was idle.
            Some(own)
                if own.generation == generation
                    && own.connection.why_closed(own.opened).is_none() =>
            {
                Ok(own.clone())
            }
            _ => {
                let own = tokio::select! {
                    biased;
                    () = self.server.link.replaced(generation) => return Err(being_replaced()),
                    own = self.open(generation) => own?,
                };
                Ok(self.connection.insert(own).clone())
            }
        }
    }

    async fn open(&self, generation: u64) -> Result<Own, StoreError> {
        let timeout = self.request_timeout + self.confirmation.timeout;
        let attempt = ConnectAttempt::first(self.connector.timeouts());
        let opened = self.connector.more_commands(timeout, &attempt).await;
        let link = &self.server.link;
        let is_same_server = match &opened {
            Ok(opened) => link.is_same_server(opened, generation).await,
            Err(error) => Ok(error.kind != ClientErrorKind::ReadOnly),
        };
        if is_same_server != Ok(true) {
            link.give_up_replica(generation, BECAME_REPLICA).await;
        }
        let Opened { connection, hello } = opened.map_err(failure::of_client)?;
        if !is_same_server.map_err(failure::of_client)? {
            return Err(StoreError::refused(LockErrorKind::Unavailable, ELSEWHERE));
        }
        let waits_for_disk = hello.is_some_and(|hello| waits_for_disk(&hello));
        connection.shorten_timeout(timeout);
        let opened_us = client::time(&connection).await.map_err(failure::of_client)?;
        Ok(Own { connection, generation, opened: Instant::now(), opened_us, waits_for_disk })
    }

    /// Waits until all writes on this connection have the copies required by `by`. Returns
    /// `Ok(None)` if they have, and `Ok(Some)` with the reason if the node must not rely on the
    /// writes. `Err` means that this is unknown.
    async fn wait(&mut self, own: Own, by: ConfirmedBy) -> Result<Option<StoreError>, StoreError> {
        let confirmed = self.ask(&own, by).await;
        confirmed.or_else(|error| {
            if is_over(&error) {
                self.connection = None;
                return Err(failure::of_command(&error));
            }
            let error = failure::of_command(&error);
            by.refusal_to_wait(&error).map(Some).ok_or(error)
        })
    }

    async fn ask(&self, own: &Own, by: ConfirmedBy) -> Result<Option<StoreError>, RedisError> {
        if let ConfirmedBy::Fsync { .. } = by
            && !own.waits_for_disk
        {
            // Checked each time, because an operator may change it while the connection is open.
            // Once it is `always`, earlier writes are on the disk before the next answer is sent.
            let mut policy = redis::cmd("CONFIG");
            policy.arg("GET").arg("appendfsync");
            let answer = own.connection.send(&policy).await?;
            let (_, policy): (String, String) = redis::from_redis_value(answer)?;
            if policy != "always" {
                let detail = format!("appendfsync is {policy}: {ONLY_ALWAYS}");
                return Ok(Some(StoreError::refused(LockErrorKind::Unsupported, detail)));
            }
        }
        let answer = own.connection.send(&by.command(self.confirmation.timeout)).await?;
        by.shortfall(answer)
    }

    /// Returns an error if the server cannot confirm writes as required, or the user may not send
    /// the command for it.
    async fn check(&mut self, probe: Option<&LockName>) -> Result<(), StoreError> {
        let probe = match self.confirmation.by {
            ConfirmedBy::Replicas(_) => {
                let may = ConfirmedBy::Replicas(0).command(Duration::from_millis(1));
                return self.server.link.run(may).await.map(drop);
            }
            ConfirmedBy::Fsync { .. } => probe,
        };
        // A server of a Redis Cluster without slots has no key to write.
        let Some(probe) = probe else { return Ok(()) };
        let own = self.connection().await?;
        let write: Scripted = self.server.wire.preflight(probe, false);
        let written = own.connection.send_packed(&write.0.by_source()).await;
        written.map_err(|error| failure::of_script(&error, self.server.wire.layout))?;
        // Replicas may come later, as with `require_replicas` alone.
        let unconfirmed = self.wait(own, ConfirmedBy::Fsync { replicas: 0 }).await?;
        unconfirmed.map_or(Ok(()), Err)
    }
}

/// Returns true if the connection has to be replaced after this error: it broke, or the server was
/// silent for the whole timeout.
fn is_over(error: &RedisError) -> bool {
    error.is_timeout() || client::failure::breaks_connection(error)
}

fn being_replaced() -> StoreError {
    let detail = "the connection to the server is being replaced";
    StoreError::refused(LockErrorKind::Unavailable, detail)
}

/// Returns true if WAITAOF waits for the disk on this server even if `appendfsync` is `everysec`.
/// Valkey (8.1.8 and 9.1.2 are measured) and Redis 7.4 count a write as fsynced before it is, until
/// the next second's fsync: <https://github.com/redis/redis/pull/13793>. 8.2 is the oldest measured
/// Redis that waits.
fn waits_for_disk(hello: &Hello) -> bool {
    let is_new = |version: (u32, u32)| version >= (8, 2);
    hello.server == "redis" && read_version(&hello.version).is_some_and(is_new)
}

/// Part of the error text for a server whose `appendfsync` must be `always`, but is not.
const ONLY_ALWAYS: &str = "set it to always, because this server's WAITAOF waits for the disk only \
    then; or use Redis 8.2 or newer";

impl ConfirmedBy {
    /// Returns the command, WAIT or WAITAOF, that waits until all writes on its connection have the
    /// required copies.
    fn command(self, timeout: Duration) -> Cmd {
        let timeout_ms = timeout.as_millis().max(1) as u64;
        match self {
            Self::Replicas(count) => redis::cmd("WAIT").arg(count).arg(timeout_ms).to_owned(),
            Self::Fsync { replicas } => {
                redis::cmd("WAITAOF").arg(1).arg(replicas).arg(timeout_ms).to_owned()
            }
        }
    }

    /// Reads the answer to WAIT or WAITAOF. Returns an error with the number of copies if there are
    /// too few, or `None` if there are enough.
    fn shortfall(self, answer: Value) -> Result<Option<StoreError>, RedisError> {
        let detail = match self {
            Self::Replicas(wanted) => {
                let count: u32 = redis::from_redis_value(answer)?;
                (count < wanted)
                    .then(|| format!("{count} of {wanted} replicas acknowledged the write in time"))
            }
            Self::Fsync { replicas: wanted } => {
                match redis::from_redis_value::<(u32, u32)>(answer)? {
                    (0, _) => Some(NOT_ON_DISK.to_owned()),
                    (_, count) if count < wanted => Some(format!(
                        "the write reached the disks of {count} of {wanted} replicas in time"
                    )),
                    _ => None,
                }
            }
        };
        Ok(detail.map(|detail| StoreError::refused(LockErrorKind::Unavailable, detail)))
    }

    /// Returns the reason why a write counts as unconfirmed after WAIT or WAITAOF failed with this
    /// error. `None` if the error leaves open whether the write is confirmed.
    fn refusal_to_wait(self, error: &StoreError) -> Option<StoreError> {
        let advice = match self {
            Self::Replicas(_) => return None,
            Self::Fsync { .. } if error.detail.contains("appendonly") => ": set appendonly to yes",
            Self::Fsync { .. } => "",
        };
        let detail = format!("{}{advice}", error.detail);
        Some(StoreError::refused(LockErrorKind::Unsupported, detail))
    }

    /// Returns the reason why a write counts as unconfirmed after its script failed with this
    /// error, because the server cannot write to its disk. `None` for any other error.
    fn refusal(self, error: &StoreError) -> Option<StoreError> {
        match self {
            Self::Fsync { .. } if error.detail.contains("MISCONF") => {
                Some(StoreError::refused(LockErrorKind::Unavailable, error.detail.clone()))
            }
            Self::Fsync { .. } | Self::Replicas(_) => None,
        }
    }
}

/// Error text for a write that was not on the server's disk in time, according to WAITAOF.
const NOT_ON_DISK: &str = "the write was not on the server's disk in time: set appendfsync to \
    always or everysec, and check the disk's latency";

async fn run(
    connection: Connection,
    wire: &Wire,
    group: &RequestGroup,
    floors: TokenFloors,
    asking: bool,
) -> Judged {
    let call: Scripted = wire.write(&commands(group), floors)?;
    let send = async |command: &Packed| {
        if asking {
            // Both are sent in this order before either response is awaited.
            join(connection.send(&redis::cmd("ASKING")), connection.send_packed(command)).await.1
        } else {
            connection.send_packed(command).await
        }
    };
    match send(&call.0.command).await {
        Err(error) if is_unknown(&error) => Ok(send(&call.0.by_source()).await),
        answer => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(server: &str, version: &str) -> Hello {
        let field = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = ["server", server, "version", version, "mode", "standalone", "role", "master"]
            .map(field)
            .into_iter()
            .chain([field("proto"), Value::Int(2)]);
        Hello::read(&Value::Array(answer.collect())).expect("an answer")
    }

    #[test]
    fn everysec_is_trusted_only_where_waitaof_was_seen_to_wait() {
        for (server, version, expected) in [
            ("redis", "8.2.3", true),
            ("redis", "8.6.3", true),
            ("redis", "10.0.0", true),
            ("redis", "8.0.0", false),
            ("redis", "7.4.1", false),
            // What a Valkey says of itself that poses as a Redis.
            ("redis", "7.2.4", false),
            ("valkey", "8.1.8", false),
            ("valkey", "9.1.2", false),
            ("redis", "", false),
        ] {
            assert_eq!(waits_for_disk(&hello(server, version)), expected, "{server} {version}");
        }
    }

    #[test]
    fn fewer_copies_than_required_confirm_nothing() {
        let pair = |local, replicas| Value::Array(vec![Value::Int(local), Value::Int(replicas)]);
        let fsync = |replicas| ConfirmedBy::Fsync { replicas };
        for (by, answer, expected) in [
            (ConfirmedBy::Replicas(2), Value::Int(2), None),
            (ConfirmedBy::Replicas(2), Value::Int(1), Some("1 of 2 replicas")),
            (fsync(0), pair(1, 0), None),
            (fsync(0), pair(0, 0), Some("appendfsync")),
            (fsync(1), pair(1, 1), None),
            (fsync(1), pair(1, 0), Some("the disks of 0 of 1 replicas")),
            (fsync(1), pair(0, 1), Some("appendfsync")),
        ] {
            let shortfall = by.shortfall(answer.clone()).expect("an answer");
            match (shortfall, expected) {
                (None, None) => {}
                (Some(error), Some(words)) => {
                    assert_eq!(error.kind, LockErrorKind::Unavailable);
                    assert!(error.detail.contains(words), "{}", error.detail);
                }
                (shortfall, _) => panic!("{by:?}, {answer:?}: {shortfall:?}"),
            }
        }
        assert!(fsync(0).shortfall(Value::Int(1)).is_err(), "an answer of another form");
    }
}
