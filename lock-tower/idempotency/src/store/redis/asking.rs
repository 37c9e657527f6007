//! `Asking`: a command that waits for its reply on the shared connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, RedisFuture, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::connect::{Connect, Lent};

/// How long a dropped command still waits for the reply, before the connection is given up.
const GRACE: Duration = Duration::from_millis(500);

/// A command that waits for its reply on the shared connection. The connection is given up if the
/// command fails.
///
/// If the future is dropped, a task waits for the reply instead, at most for [`GRACE`], and then
/// gives the connection up. So a connection on which no reply arrives is replaced even if no caller
/// waits for the connection's own timeout. Giving it up at once would be wrong: any client that
/// disconnects early would end a working connection.
pub(crate) struct Asking {
    /// The reply; `None` once it has arrived.
    reply: Option<RedisFuture<'static, Value>>,
    connect: Arc<dyn Connect>,
    number: u64,
}

impl Asking {
    pub(crate) fn new(connect: &Arc<dyn Connect>, lent: Lent, command: Cmd) -> Self {
        let Lent { mut connection, number, .. } = lent;
        let gives_up = Arc::clone(connect);
        let reply = Box::pin(async move {
            let reply = connection.req_packed_command(&command).await;
            let answer = reply.and_then(Value::extract_error);
            if answer.as_ref().is_err_and(is_of_the_connection) {
                gives_up.give_up(number);
            }
            answer
        });
        Self { reply: Some(reply), connect: Arc::clone(connect), number }
    }
}

/// Returns true if another connection may help. False if the server lacks the script, or has
/// something other than a record at the key.
fn is_of_the_connection(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Server(ServerErrorKind::NoScript)
        && error.code() != Some("WRONGTYPE")
}

impl Future for Asking {
    type Output = Result<Value, RedisError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = self.reply.as_mut().expect("not polled after completion");
        let answer = ready!(reply.as_mut().poll(cx));
        self.reply = None;
        Poll::Ready(answer)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(reply) = self.reply.take() else { return };
        let (connect, number) = (Arc::clone(&self.connect), self.number);
        // Without a runtime, nobody will use the connection any more.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(async move {
                if timeout(GRACE, reply).await.is_err() {
                    connect.give_up(number);
                }
            }));
        }
    }
}
