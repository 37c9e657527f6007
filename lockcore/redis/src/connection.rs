//! A command connection: the multiplexed connection of this crate, or a redis-rs connection.
//!
//! Servers named by a URL get the connection of this crate. The application's client or pool,
//! RESP3, and TLS without certificate verification get a redis-rs connection.

pub(crate) mod decoder;
mod own;
mod redis_rs;
mod socket;

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use futures_util::future::BoxFuture;
#[cfg(feature = "deadpool")]
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionInfo, RedisError, Value};
use tokio::time::Instant;

use crate::call::Packed;
use crate::certificates::Certificates;
use crate::pace::ConnectAttempt;
use crate::task::Begin;
use redis_rs::TheirConnection;
pub(crate) use socket::subscription;

/// The server's reply to a command; or an error if the server refused the command, the request
/// timed out, or the connection broke.
pub type Answered = Result<Value, RedisError>;

/// A callback for the reply to a command. Dropped without a call if the runtime ends before the
/// reply arrives.
pub trait Recipient: Send + 'static {
    /// Receives the server's reply, or the error with which the request failed. It must not block:
    /// it is called in a task of the connection, or by the sender itself if the request cannot be
    /// sent.
    fn take(self: Box<Self>, answer: Answered);
}

impl<F: FnOnce(Answered) + Send + 'static> Recipient for F {
    fn take(self: Box<Self>, answer: Answered) {
        self(answer);
    }
}

/// The operations of a connection to one server, implemented by the connection of this crate and by
/// the connection of redis-rs. The methods of [`Connection`] with the same names document them. The
/// default methods are for redis-rs, where these operations are not possible.
trait Transport: Send + Sync {
    fn send_packed<'a>(&'a self, command: &'a Packed) -> BoxFuture<'a, Answered>;

    fn give(&self, begin: Begin, command: &Packed, recipient: Box<dyn Recipient>);

    fn why_closed(&self, last_success: Instant) -> Option<RedisError>;

    fn takes_transactions(&self) -> bool {
        false
    }

    fn shorten_timeout(&self, _timeout: Duration) {}

    fn end(&self);

    fn unanswered(&self) -> Option<usize> {
        None
    }
}

/// A connection to one server for commands. It does not reconnect. Many requests can wait for
/// replies at the same time. Clones share the connection.
#[derive(Clone)]
pub struct Connection(Arc<dyn Transport>);

impl Connection {
    /// Opens a connection, and logs in. The connection belongs to this crate if possible. redis-rs
    /// opens it if this crate does not support the settings, such as RESP3, or if `certificates` is
    /// `None`: the application's client or pool may have certificates that cannot be read from it.
    ///
    /// Until [`shorten_timeout`](Self::shorten_timeout) is called, each request on a connection of
    /// this crate has at least the timeout of the connection attempt, because a busy server may be
    /// as slow to reply as to accept. From then on, the timeout is `timeout`.
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
        Ok(Self(Arc::new(TheirConnection::open(info, timeout, attempt).await?)))
    }

    /// Wraps a redis-rs connection created by a pool. `timeout` becomes the maximum time to wait
    /// for each reply.
    #[cfg(feature = "deadpool")]
    pub(crate) fn theirs(connection: MultiplexedConnection, timeout: Duration) -> Self {
        Self(Arc::new(TheirConnection::new(connection, timeout)))
    }

    /// Returns a connection over this socket, without a login.
    #[cfg(test)]
    pub(crate) fn over(socket: tokio::io::DuplexStream) -> Self {
        Self(Arc::new(own::OwnConnection::start(socket, Duration::from_secs(5))))
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
        self.send_packed(&command.into()).await
    }

    /// Sends an encoded command, and waits for the reply. Errors and cancel safety are as for
    /// [`send`](Self::send).
    pub async fn send_packed(&self, command: &Packed) -> Answered {
        self.0.send_packed(command).await
    }

    /// Sends a command without waiting, and later calls `recipient` with the reply. If a connection
    /// of this crate cannot send the command, `recipient` gets the error before this returns.
    ///
    /// `begin` starts a task. It is for redis-rs connections, on which a task has to wait for the
    /// reply.
    pub(crate) fn give(&self, begin: Begin, command: &Packed, recipient: Box<dyn Recipient>) {
        self.0.give(begin, command, recipient);
    }

    /// Shortens the timeout of all later requests to `timeout`. Called when the setup of the
    /// connection is complete, because until then requests have the longer timeout of the
    /// connection attempt. No request may be pending, because requests must time out in the order
    /// of sending. Does nothing on a redis-rs connection, which has this timeout from the start.
    pub fn shorten_timeout(&self, timeout: Duration) {
        self.0.shorten_timeout(timeout);
    }

    /// Returns true if several commands can be sent as one request, such as a transaction. Only a
    /// connection of this crate can do this.
    pub(crate) fn takes_transactions(&self) -> bool {
        self.0.takes_transactions()
    }

    /// Fails all pending and later requests at once, and closes the connection. redis-rs closes it
    /// with the last clone, once the pending requests have failed.
    pub(crate) fn end(&self) {
        self.0.end();
    }

    /// Returns the number of requests without a reply yet; `None` for a redis-rs connection,
    /// because it does not report the number.
    pub(crate) fn unanswered(&self) -> Option<usize> {
        self.0.unanswered()
    }

    /// Returns the error that closed the connection; `None` if it seems open. redis-rs notices a
    /// close only when it sends, so a PING is begun and cancelled, unless the server has replied
    /// within the last 10 ms. `last_success` is the time of the last reply. May be called outside
    /// of a runtime.
    pub fn why_closed(&self, last_success: Instant) -> Option<RedisError> {
        self.0.why_closed(last_success)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Creates the error of a connection that this process has closed.
fn closed() -> RedisError {
    io::Error::new(io::ErrorKind::BrokenPipe, "the connection was closed").into()
}

/// Returns the reply, or `Err` if it is an error or a list that contains an error. Most replies
/// contain none. They are recognised here, because `extract_error` of redis-rs rebuilds every list.
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
