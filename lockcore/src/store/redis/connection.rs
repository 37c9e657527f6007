//! A connection for commands: our own, or that of redis-rs where the connection is the user's.
//!
//! Our own is for servers that a URL names. A client of the user's, a pool, the newer protocol and
//! TLS without a check of the certificate are matters of redis-rs.

pub(crate) mod decoder;
mod own;
mod socket;

use std::time::Duration;

use futures_util::FutureExt as _;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, RedisError, Value};
use tokio::runtime::Handle;

use crate::certificates::Certificates;
use crate::store::begin;
use client::ConnectAttempt;
use client::Packed;
use own::OwnConnection;
pub(super) use socket::subscription;

/// Commands that may wait for the socket of redis-rs. More than the node sends at once: those for
/// which there is no room are written in any order, and each wakes its task once more.
const BUFFERED: usize = 1_024;

/// The answer of the server, or the error that it is or that stands in its place.
pub(crate) type Answered = Result<Value, RedisError>;

/// Takes the answer to a command. It is dropped without one if the runtime ends.
pub(crate) trait Recipient: Send + 'static {
    fn take(self: Box<Self>, answer: Answered);
}

impl<F: FnOnce(Answered) + Send + 'static> Recipient for F {
    fn take(self: Box<Self>, answer: Answered) {
        self(answer);
    }
}

/// A connection for commands; clones are the same one.
#[derive(Clone)]
pub(crate) enum Connection {
    Own(OwnConnection),
    Theirs(MultiplexedConnection),
}

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
            return Ok(Self::Own(socket::open(&info, certificates, timeout, attempt).await?));
        }
        // redis-rs tells no step: such an attempt is never taken for one that was let in.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(attempt.limit))
            .set_response_timeout(Some(timeout))
            .set_pipeline_buffer_size(BUFFERED);
        let connection =
            Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self::Theirs(connection))
    }

    /// One of redis-rs, on which a request may take so long.
    #[cfg(feature = "deadpool")]
    pub(crate) fn theirs(mut connection: MultiplexedConnection, timeout: Duration) -> Self {
        connection.set_response_timeout(timeout);
        Self::Theirs(connection)
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
    pub(crate) async fn send(&self, command: &Cmd) -> Answered {
        self.ask(&command.into()).await
    }

    /// As [`send`](Self::send).
    pub(crate) async fn ask(&self, command: &Packed) -> Answered {
        match self {
            Self::Own(connection) => connection.ask(command).await,
            Self::Theirs(connection) => {
                let answer = connection.clone().send_packed_command(&command.into()).await;
                answer.and_then(checked)
            }
        }
    }

    /// Sends a command at once, and has its answer taken: by a task of this runtime, or before this
    /// returns.
    pub(crate) fn give(&self, runtime: &Handle, command: &Packed, recipient: Box<dyn Recipient>) {
        match self {
            Self::Own(connection) => connection.give(command, recipient),
            Self::Theirs(_) => {
                let (connection, command) = (self.clone(), command.clone());
                begin(
                    runtime,
                    Box::pin(async move { recipient.take(connection.ask(&command).await) }),
                );
            }
        }
    }

    /// The connection is set up, with no request on its way: each may take so long from now on.
    pub(crate) fn settle(&self, timeout: Duration) {
        if let Self::Own(connection) = self {
            connection.settle(timeout);
        }
    }

    /// Whether it is our own, which also sends transactions.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// Ends our own: the requests that are on their way fail. One of redis-rs ends with its last
    /// clone.
    pub(crate) fn end(&self) {
        if let Self::Own(connection) = self {
            connection.end();
        }
    }

    /// The number of requests whose answers are still to come; redis-rs does not tell it.
    pub(crate) fn unanswered(&self) -> Option<usize> {
        match self {
            Self::Own(connection) => Some(connection.unanswered()),
            Self::Theirs(_) => None,
        }
    }

    /// The reason why nothing that is sent from now on goes out; nothing if it may.
    pub(crate) fn why_closed(&self) -> Option<RedisError> {
        match self {
            Self::Own(connection) => connection.why_closed(),
            // It says so only to one that sends: the PING is taken back before it goes out.
            Self::Theirs(connection) => {
                let mut connection = connection.clone();
                connection.send_packed_command(&redis::cmd("PING")).now_or_never()?.err()
            }
        }
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
