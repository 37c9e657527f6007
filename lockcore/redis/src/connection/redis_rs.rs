//! A redis-rs connection. It serves the application's client or pool, and settings that the
//! connection of this crate does not support.

use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Answered, Recipient, Transport, checked, closed};
use crate::call::Packed;
use crate::pace::{ConnectAttempt, Step};
use crate::task::{Begin, polled_once};

/// Capacity, in commands, of the buffer in front of a redis-rs connection. It is larger than
/// lockcore ever needs, because tasks that wait for room send in any order, and each is woken once
/// more.
const BUFFERED: usize = 1_024;

/// Minimum time since the server's last reply before a check whether the connection was closed. The
/// check costs a cancelled PING, and is not needed if the server has just replied.
const IDLE: Duration = Duration::from_millis(10);

/// A multiplexed connection of redis-rs, used where a connection of this crate is not possible.
pub(super) struct TheirConnection {
    requests: Requests,
    /// The runtime of the connection. A request has a timer, so it must be polled in a runtime, and
    /// guards and waits may be dropped on any thread.
    runtime: Handle,
}

/// Sends requests on a connection.
#[derive(Clone)]
struct Requests {
    connection: MultiplexedConnection,
    /// The maximum time of a request. The timeout of redis-rs does not include the wait for a
    /// permit if a pool's connections have a concurrency limit.
    timeout: Duration,
    /// Cancelled when the connection is given up, which fails all requests.
    ended: CancellationToken,
}

impl TheirConnection {
    pub(super) async fn open(
        info: ConnectionInfo,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(attempt.limit))
            .set_response_timeout(Some(timeout))
            .set_pipeline_buffer_size(BUFFERED);
        attempt.begins(Step::RedisRs);
        let connection =
            Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self::new(connection, timeout))
    }

    /// Wraps a connection, for example one created by a pool. `timeout` becomes the maximum time of
    /// each request.
    pub(super) fn new(mut connection: MultiplexedConnection, timeout: Duration) -> Self {
        connection.set_response_timeout(timeout);
        let requests = Requests { connection, timeout, ended: CancellationToken::new() };
        Self { requests, runtime: Handle::current() }
    }
}

impl Transport for TheirConnection {
    fn send_packed<'a>(&'a self, command: &'a Packed) -> BoxFuture<'a, Answered> {
        Box::pin(self.requests.clone().send_packed(command))
    }

    fn give(&self, begin: Begin, command: &Packed, recipient: Box<dyn Recipient>) {
        let (requests, command) = (self.requests.clone(), command.clone());
        begin(
            &self.runtime,
            Box::pin(async move { recipient.take(requests.send_packed(&command).await) }),
        );
    }

    fn why_closed(&self, last_success: Instant) -> Option<RedisError> {
        if self.requests.ended.is_cancelled() {
            return Some(closed());
        }
        if last_success.elapsed() < IDLE {
            return None;
        }
        // redis-rs notices a closed connection only on a send. So a PING is begun, and cancelled
        // before it goes out.
        let mut connection = self.requests.connection.clone();
        polled_once(&self.runtime, async move {
            connection.send_packed_command(&redis::cmd("PING")).await.err()
        })?
    }

    fn end(&self) {
        self.requests.ended.cancel();
    }
}

impl Requests {
    async fn send_packed(mut self, command: &Packed) -> Answered {
        let command = Cmd::from(command);
        let sending = self.connection.send_packed_command(&command);
        let sending = tokio::time::timeout(self.timeout, sending);
        match self.ended.run_until_cancelled(sending).await {
            Some(Ok(answer)) => answer.and_then(checked),
            Some(Err(late)) => Err(io::Error::from(late).into()),
            None => Err(closed()),
        }
    }
}
