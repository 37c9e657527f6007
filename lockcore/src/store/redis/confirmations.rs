//! Grants and renewals that require confirmation by replicas: on separate connections, since WAIT
//! blocks a connection until the replicas have replied.

use std::sync::Arc;
use std::time::Duration;

use client::{ConnectAttempt, Connection, Connector, is_unknown};
use futures_util::future::join_all;
use proto::StoreError;
use proto::node::{Batch, commands};
use proto::wire::{Floors, Wire};
use redis::{RedisError, Value};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::call::Scripted;
use super::failure;
use super::server::Server;
use crate::store::{Replied, Replies};

/// How many connections can wait for replicas at the same time.
const CONNECTIONS: usize = 4;
/// The most scripts before a WAIT, which then counts for all of them.
const MAX_AT_ONCE: usize = 128;

/// How many replicas must have a grant or renewal, and within what time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u32,
    pub(crate) timeout: Duration,
}

/// Sends batches to the confirmation connections.
pub(crate) struct Confirmations(mpsc::Sender<Pending>);

struct Pending {
    batch: Batch,
    reply: oneshot::Sender<Replied>,
}

impl Confirmations {
    /// Starts the workers, which open connections on demand and keep them until `closed`.
    pub(crate) fn start(
        connector: &Arc<Connector>,
        server: &Arc<Server>,
        replicas: Replicas,
        request_timeout: Duration,
        closed: &CancellationToken,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_AT_ONCE);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..CONNECTIONS {
            let mut worker = Worker {
                connector: Arc::clone(connector),
                server: Arc::clone(server),
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

    /// Runs a batch's script, and waits for the replicas.
    pub(crate) fn run(&self, batch: Batch) -> impl Future<Output = Replied> + Send + use<> {
        let sender = self.0.clone();
        async move {
            let (reply, replied) = oneshot::channel();
            let closed = || StoreError::ambiguous("the store was closed");
            let pending = Pending { batch, reply };
            sender.send(pending).await.map_err(|_| closed())?;
            replied.await.unwrap_or_else(|_| Err(closed()))
        }
    }
}

/// A worker with a connection.
struct Worker {
    connector: Arc<Connector>,
    server: Arc<Server>,
    replicas: Replicas,
    request_timeout: Duration,
    connection: Option<Own>,
}

/// A worker's connection.
#[derive(Clone)]
struct Own {
    connection: Connection,
    /// The command connection's generation at that time: a new generation may mean another
    /// primary.
    generation: u64,
    /// The server's time when the connection was opened, µs since the epoch: this server may be
    /// unknown to the command connection.
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
                    // Fails only if the caller has gone.
                    let _ = pending.reply.send(Err(error.clone()));
                }
                return;
            }
        };
        let server = self.server.link.servers();
        let floors = |batch: &Batch| {
            let mut floors = self.server.floors(batch, server);
            floors.floor_us = floors.floor_us.max(own.opened_us);
            floors
        };
        let runs = batch.iter().map(|Pending { batch, .. }| {
            run(own.connection.clone(), &self.server.wire, batch, floors(batch))
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
                    let answers = self.server.answers(&pending.batch, server, &value);
                    answers.map(|answers| Replies { answers, replicas: *replicas })
                }
                (Err(error), _) => Err(error),
                (_, Err(error)) => Err(failure::of_command(error)),
            };
            let _ = pending.reply.send(confirmed);
        }
    }

    async fn connection(&mut self) -> Result<Own, StoreError> {
        let generation = self.server.link.generation();
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

    /// Returns how many replicas have everything written on this connection.
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
    wire: &Wire,
    batch: &Batch,
    floors: Floors,
) -> Result<Value, StoreError> {
    let call: Scripted = wire.write(&commands(batch), floors)?;
    let answer = match connection.ask(&call.0.command).await {
        Err(error) if is_unknown(&error) => connection.ask(&call.0.by_source()).await,
        answer => answer,
    };
    answer.map_err(|error| failure::of_script(&error, wire.layout))
}
