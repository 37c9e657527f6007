//! A connection for commands: our own, or that of redis-rs where the connection is the user's.
//!
//! Our own is for servers that a URL names. A client of the user's, a pool, the newer protocol and
//! TLS without a check of the certificate are matters of redis-rs.

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

/// The answer of the server, or the error that it is or that stands in its place.
pub type Answered = Result<Value, RedisError>;

/// Takes the answer to a command. It is dropped without one if the runtime ends.
pub trait Recipient: Send + 'static {
    /// Takes the answer.
    fn take(self: Box<Self>, answer: Answered);
}

impl<F: FnOnce(Answered) + Send + 'static> Recipient for F {
    fn take(self: Box<Self>, answer: Answered) {
        self(answer);
    }
}

/// A way to send commands to one server.
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

/// A connection for commands; clones are the same one.
#[derive(Clone)]
pub struct Connection(Arc<dyn Transport>);

impl Connection {
    /// Opens a connection: our own if these are all the certificates that it needs. A request may
    /// take as long as the attempt at first, and this `timeout` once the connection is
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
        // redis-rs tells no step: such an attempt is never taken for one that was let in.
        Ok(Self(Arc::new(TheirConnection::open(info, timeout, attempt).await?)))
    }

    /// One of redis-rs, on which a request may take so long.
    #[cfg(feature = "deadpool")]
    pub(crate) fn theirs(connection: MultiplexedConnection, timeout: Duration) -> Self {
        Self(Arc::new(TheirConnection::new(connection, timeout)))
    }

    /// Sends a command, and waits for its answer. Commands of one task are sent in the order in
    /// which these futures are first polled.
    ///
    /// # Errors
    /// The server's, also one that stands within the answer; that there was none in time; or that
    /// the connection broke.
    ///
    /// # Cancel safety
    /// A command whose future was polled runs, whether or not the future is dropped. Its answer is
    /// not taken for that of another.
    pub async fn send(&self, command: &Cmd) -> Answered {
        self.ask(&command.into()).await
    }

    /// As [`send`](Self::send).
    pub async fn ask(&self, command: &Packed) -> Answered {
        self.0.ask(command).await
    }

    /// Sends a command at once, and has its answer taken: by a task of this runtime, or before this
    /// returns.
    pub(crate) fn give(
        &self,
        runtime: (Begin, &Handle),
        command: &Packed,
        recipient: Box<dyn Recipient>,
    ) {
        self.0.give(runtime, command, recipient);
    }

    /// The connection is set up, with no request on its way: each may take so long from now on.
    pub fn settle(&self, timeout: Duration) {
        self.0.settle(timeout);
    }

    /// Whether several commands can be sent as one request, of which the last answer counts.
    pub(crate) fn takes_transactions(&self) -> bool {
        self.0.takes_transactions()
    }

    /// Ends our own: the requests that are on their way fail. One of redis-rs ends with its last
    /// clone.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// The number of requests whose answers are still to come; redis-rs does not tell it.
    pub(crate) fn unanswered(&self) -> Option<usize> {
        self.0.unanswered()
    }

    /// The reason why nothing that is sent from now on goes out; nothing if it may. The server has
    /// last answered at this moment.
    pub(crate) fn why_closed(&self, last_success: Instant) -> Option<RedisError> {
        self.0.why_closed(last_success)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// The answer, or the error that stands within it. redis-rs makes a list anew to look into it.
fn checked(answer: Value) -> Answered {
    if has_error(&answer) { answer.extract_error() } else { Ok(answer) }
}

fn has_error(answer: &Value) -> bool {
    match answer {
        Value::Nil | Value::Okay | Value::Int(_) => false,
        Value::BulkString(_) | Value::SimpleString(_) => false,
        Value::Array(parts) => parts.iter().any(has_error),
        // An error, or a form of the newer protocol, which has more of them.
        _ => true,
    }
}
