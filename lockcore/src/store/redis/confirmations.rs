//! Grants and renewals that count only once replicas have them: connections of their own, since
//! WAIT keeps its connection busy until the replicas have answered.

use std::sync::Arc;
use std::time::Duration;

use client::{CommandLink, ConnectAttempt, Connection, Connector, is_unknown};
use futures_util::future::join_all;
use proto::wire::{Asked, Floors};
use proto::{Answers, StoreError};
use redis::{RedisError, Value};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::call::Scripted;
use super::failure;
use super::wire::TimedWire;

/// The number of connections that wait for replicas at the same time.
const CONNECTIONS: usize = 4;
/// Most scripts before one WAIT, which then counts for all of them.
const MAX_AT_ONCE: usize = 128;

/// The number of replicas that have to have a grant or a renewal, and the time that they may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

/// The way to those connections.
pub(crate) struct Confirmations(mpsc::Sender<Pending>);

/// The answers, and how many replicas have the writes.
type Confirmed = Result<(Answers, u32), StoreError>;

struct Pending {
    asked: Asked,
    answer: oneshot::Sender<Confirmed>,
}

impl Confirmations {
    /// Opens the connections when they are needed, and keeps them until `closed`.
    pub(crate) fn start(
        connector: &Arc<Connector>,
        link: &CommandLink,
        wire: &Arc<TimedWire>,
        replicas: Replicas,
        request_timeout: Duration,
        closed: &CancellationToken,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_AT_ONCE);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..CONNECTIONS {
            let mut worker = Worker {
                connector: Arc::clone(connector),
                link: link.clone(),
                wire: Arc::clone(wire),
                replicas,
                request_timeout,
                connection: None,
            };
            let receiver = Arc::clone(&receiver);
            let closed = closed.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = worker.run(&receiver) => {}
                    () = closed.cancelled() => {}
                }
            });
        }
        Self(sender)
    }

    /// Runs a script, and waits for the replicas.
    pub(crate) fn run(&self, asked: Asked) -> impl Future<Output = Confirmed> + Send + use<> {
        let sender = self.0.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let closed = || StoreError::ambiguous("the store was closed");
            let pending = Pending { asked, answer };
            sender.send(pending).await.map_err(|_| closed())?;
            answered.await.unwrap_or_else(|_| Err(closed()))
        }
    }
}

/// One connection.
struct Worker {
    connector: Arc<Connector>,
    link: CommandLink,
    wire: Arc<TimedWire>,
    replicas: Replicas,
    request_timeout: Duration,
    connection: Option<Own>,
}

/// The connection of a worker.
#[derive(Clone)]
struct Own {
    connection: Connection,
    /// The number of the connection for commands at that time: when that one is replaced, the
    /// primary may be another.
    generation: u64,
    /// The time of its server when it was opened, µs since the epoch: it may be a server that the
    /// connection for commands does not know yet.
    opened_us: u64,
}

impl Worker {
    async fn run(&mut self, receiver: &Mutex<mpsc::Receiver<Pending>>) {
        loop {
            let mut batch = Vec::new();
            // While all connections are busy, requests gather here.
            if receiver.lock().await.recv_many(&mut batch, MAX_AT_ONCE).await == 0 {
                return;
            }
            self.confirm(batch).await;
        }
    }

    async fn confirm(&mut self, batch: Vec<Pending>) {
        let own = match self.connection().await {
            Ok(own) => own,
            Err(error) => {
                for pending in batch {
                    // Nothing is left of a caller that went away.
                    let _ = pending.answer.send(Err(error.clone()));
                }
                return;
            }
        };
        let server = self.link.servers();
        let floors = |asked: &Asked| {
            let mut floors = self.wire.floors(asked, server);
            floors.floor_us = floors.floor_us.max(own.opened_us);
            floors
        };
        let runs = batch.iter().map(|Pending { asked, .. }| {
            run(own.connection.clone(), &self.wire, asked, floors(asked))
        });
        let values = join_all(runs).await;
        let replicas = self.wait(own.connection).await;
        let is_broken =
            |error: &RedisError| error.is_timeout() || client::failure::breaks_connection(error);
        if replicas.as_ref().is_err_and(is_broken) {
            self.connection = None;
        }
        for (pending, value) in batch.into_iter().zip(values) {
            let confirmed = match (value, &replicas) {
                (Ok(value), Ok(replicas)) => {
                    let answers = self.wire.answers(&pending.asked, server, &value);
                    answers.map(|answers| (answers, *replicas))
                }
                (Err(error), _) => Err(error),
                (_, Err(error)) => Err(failure::of_command(error)),
            };
            let _ = pending.answer.send(confirmed);
        }
    }

    async fn connection(&mut self) -> Result<Own, StoreError> {
        let generation = self.link.generation();
        match &self.connection {
            Some(own) if own.generation == generation => Ok(own.clone()),
            _ => {
                let timeout = self.request_timeout + self.replicas.timeout;
                let attempt = ConnectAttempt::first(self.connector.timeouts());
                let connection = self.connector.commands(timeout, &attempt).await;
                let connection = connection.map_err(failure::of_client)?.connection;
                connection.settle(timeout);
                let opened_us = client::time(&connection).await.map_err(failure::of_client)?;
                Ok(self.connection.insert(Own { connection, generation, opened_us }).clone())
            }
        }
    }

    /// The number of replicas that have all that was written on this connection.
    async fn wait(&self, connection: Connection) -> Result<u32, RedisError> {
        let Replicas { count, timeout } = self.replicas;
        let mut command = redis::cmd("WAIT");
        command.arg(count).arg(timeout.as_millis().max(1) as u64);
        let answer = connection.send(&command).await?;
        redis::from_redis_value(answer).map_err(RedisError::from)
    }
}

async fn run(
    connection: Connection,
    wire: &TimedWire,
    asked: &Asked,
    floors: Floors,
) -> Result<Value, StoreError> {
    let call: Scripted = wire.wire.write(asked, floors)?;
    let answer = match connection.ask(&call.0.command).await {
        Err(error) if is_unknown(&error) => connection.ask(&call.0.by_source()).await,
        answer => answer,
    };
    answer.map_err(|error| failure::of_script(&error, wire.wire.layout))
}
