//! A redis-rs connection. It serves the application's client or pool, and settings that the
//! connection of this crate does not support.

use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisError};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{Answered, Recipient, Transport, checked};
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
    connection: MultiplexedConnection,
    /// The runtime of the connection. A request has a timer, so it must be polled in a runtime, and
    /// guards and waits may be dropped on any thread.
    runtime: Handle,
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
        Ok(Self { connection, runtime: Handle::current() })
    }

    /// Wraps a connection created by a pool. `timeout` becomes the maximum time to wait for each
    /// reply.
    #[cfg(feature = "deadpool")]
    pub(super) fn new(mut connection: MultiplexedConnection, timeout: Duration) -> Self {
        connection.set_response_timeout(timeout);
        Self { connection, runtime: Handle::current() }
    }
}

impl Transport for TheirConnection {
    fn send_packed<'a>(&'a self, command: &'a Packed) -> BoxFuture<'a, Answered> {
        Box::pin(send_packed(self.connection.clone(), command))
    }

    fn give(&self, begin: Begin, command: &Packed, recipient: Box<dyn Recipient>) {
        let (connection, command) = (self.connection.clone(), command.clone());
        begin(
            &self.runtime,
            Box::pin(async move { recipient.take(send_packed(connection, &command).await) }),
        );
    }

    fn why_closed(&self, last_success: Instant) -> Option<RedisError> {
        if last_success.elapsed() < IDLE {
            return None;
        }
        // redis-rs notices a closed connection only on a send. So a PING is begun, and cancelled
        // before it goes out.
        let mut connection = self.connection.clone();
        polled_once(&self.runtime, async move {
            connection.send_packed_command(&redis::cmd("PING")).await.err()
        })?
    }
}

async fn send_packed(mut connection: MultiplexedConnection, command: &Packed) -> Answered {
    let answer = connection.send_packed_command(&command.into()).await;
    answer.and_then(checked)
}
