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

/// Returns true if the key has something other than a record. Before Redis 7, the server wraps an
/// error inside a script in an `ERR`.
pub(crate) fn is_wrong_type(error: &RedisError) -> bool {
    const CODE: &str = "WRONGTYPE";
    error.code() == Some(CODE) || error.detail().is_some_and(|detail| detail.contains(CODE))
}

/// Returns true if another connection may help. False if the server lacks the script, or has
/// something other than a record at the key.
fn is_of_the_connection(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Server(ServerErrorKind::NoScript) && !is_wrong_type(error)
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

#[cfg(test)]
mod tests {
    use redis::make_extension_error;

    use super::*;

    #[test]
    fn a_key_of_another_type_is_recognized_also_inside_a_script_before_redis_7() {
        let words = "Operation against a key holding the wrong kind of value";
        let direct = make_extension_error("WRONGTYPE".into(), Some(words.into()));
        let detail = format!(
            "Error running script (call to f_0): @user_script:5: @user_script: 5: -WRONGTYPE \
             {words}"
        );
        let wrapped = make_extension_error("ERR".into(), Some(detail));
        for error in [direct, wrapped] {
            assert!(is_wrong_type(&error) && !is_of_the_connection(&error), "{error}");
        }
        let other = make_extension_error("ERR".into(), Some("Error running script".into()));
        assert!(!is_wrong_type(&other) && is_of_the_connection(&other), "{other}");
    }
}
