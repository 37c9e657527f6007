//! A command connection: our multiplexed connection, or a redis-rs connection.
//!
//! Ours serves servers named by a URL. The user's client or pool, RESP3, and TLS without
//! certificate verification need redis-rs.

pub(crate) mod decoder;
mod own;
mod redis_rs;
mod socket;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
#[cfg(feature = "deadpool")]
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionInfo, RedisError, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::call::Packed;
use crate::certificates::Certificates;
use crate::pace::ConnectAttempt;
use crate::task::Begin;
use redis_rs::TheirConnection;
pub(crate) use socket::subscription;

/// The server's reply, or an error instead.
pub type Answered = Result<Value, RedisError>;

/// Receives the reply to a command. Dropped without a reply if the runtime ends.
pub trait Recipient: Send + 'static {
    /// Receives the reply.
    fn take(self: Box<Self>, answer: Answered);
}

impl<F: FnOnce(Answered) + Send + 'static> Recipient for F {
    fn take(self: Box<Self>, answer: Answered) {
        self(answer);
    }
}

/// Sends commands to one server.
trait Transport: Send + Sync {
    /// As [`Connection::ask`].
    fn ask<'a>(&'a self, command: &'a Packed) -> BoxFuture<'a, Answered>;

    /// As [`Connection::give`].
    fn give(&self, runtime: (Begin, &Handle), command: &Packed, recipient: Box<dyn Recipient>);

    /// As [`Connection::why_closed`].
    fn why_closed(&self, last_success: Instant) -> Option<RedisError>;

    /// As [`Connection::takes_transactions`].
    fn takes_transactions(&self) -> bool {
        false
    }

    /// As [`Connection::settle`].
    fn settle(&self, _timeout: Duration) {}

    /// As [`Connection::end`].
    fn end(&self) {}

    /// As [`Connection::unanswered`].
    fn unanswered(&self) -> Option<usize> {
        None
    }
}

/// A command connection; clones share it.
#[derive(Clone)]
pub struct Connection(Arc<dyn Transport>);

impl Connection {
    /// Opens a connection: our multiplexed connection if `certificates` are complete. At first, a
    /// request may take as long as the attempt, and `timeout` once the connection is
    /// [settled](Self::settle).
    pub(crate) async fn open(
        info: ConnectionInfo,
        certificates: Option<&Certificates>,
        timeout: Duration,
        attempt: &ConnectAttempt,
    ) -> Result<Self, RedisError> {
        if let Some(certificates) = certificates.filter(|_| socket::is_ours(&info)) {
            let timeout = timeout.max(attempt.limit);
            let own = socket::open(&info, certificates, timeout, attempt).await?;
            return Ok(Self(Arc::new(own)));
        }
        // redis-rs reports no step: such an attempt never counts as accepted by the server.
        Ok(Self(Arc::new(TheirConnection::open(info, timeout, attempt).await?)))
    }

    /// Wraps a redis-rs connection with this response timeout.
    #[cfg(feature = "deadpool")]
    pub(crate) fn theirs(connection: MultiplexedConnection, timeout: Duration) -> Self {
        Self(Arc::new(TheirConnection::new(connection, timeout)))
    }

    /// Sends a command, and waits for the reply. Commands of one task are sent in the order in
    /// which these futures are first polled.
    ///
    /// # Errors
    /// The server returned an error, at the top level or within the reply; the request timed out;
    /// or the connection broke.
    ///
    /// # Cancel safety
    /// Once polled, the command runs, even if this future is dropped. The reply is discarded, and
    /// not delivered to another request.
    pub async fn send(&self, command: &Cmd) -> Answered {
        self.ask(&command.into()).await
    }

    /// As [`send`](Self::send).
    pub async fn ask(&self, command: &Packed) -> Answered {
        self.0.ask(command).await
    }

    /// Sends a command at once. The reply is delivered by a task of this runtime, or before this
    /// returns.
    pub(crate) fn give(
        &self,
        runtime: (Begin, &Handle),
        command: &Packed,
        recipient: Box<dyn Recipient>,
    ) {
        self.0.give(runtime, command, recipient);
    }

    /// Sets the timeout of each request. The connection is set up, and no request is pending.
    pub fn settle(&self, timeout: Duration) {
        self.0.settle(timeout);
    }

    /// Whether several commands can be sent as one request, of which the last reply counts.
    pub(crate) fn takes_transactions(&self) -> bool {
        self.0.takes_transactions()
    }

    /// Closes our multiplexed connection: pending requests fail. A redis-rs connection closes with
    /// its last clone.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Returns the number of pending requests; unknown with redis-rs.
    pub(crate) fn unanswered(&self) -> Option<usize> {
        self.0.unanswered()
    }

    /// Returns why nothing can be sent any more; `None` if sending may work. `last_success` is when
    /// the server last replied.
    pub(crate) fn why_closed(&self, last_success: Instant) -> Option<RedisError> {
        self.0.why_closed(last_success)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Returns the reply, or the error within. redis-rs rebuilds a list to search it for errors.
fn checked(answer: Value) -> Answered {
    if has_error(&answer) { answer.extract_error() } else { Ok(answer) }
}

fn has_error(answer: &Value) -> bool {
    match answer {
        Value::Nil | Value::Okay | Value::Int(_) => false,
        Value::BulkString(_) | Value::SimpleString(_) => false,
        Value::Array(parts) => parts.iter().any(has_error),
        // An error, or a RESP3 type, some of which may contain errors.
        _ => true,
    }
}
