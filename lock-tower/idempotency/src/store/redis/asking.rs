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

/// Words in errors of a server that refuses an operation on each connection: it is full, cannot
/// write to its disk, lacks replicas, runs a long script, or the user lacks a right.
const REFUSALS: [&str; 7] = [
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "NOPERM",
    "ACL failure in script",
    "The user executing the script can't", // before Redis 7
];

/// Returns true if the key has something other than a record.
pub(crate) fn is_wrong_type(error: &RedisError) -> bool {
    says(error, "WRONGTYPE")
}

/// Returns true if another connection may help. False if the server lacks the script, has something
/// other than a record at the key, or refuses the operation on each connection.
pub(crate) fn is_of_the_connection(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Server(ServerErrorKind::NoScript)
        && !is_wrong_type(error)
        && !REFUSALS.iter().any(|words| says(error, words))
}

/// Returns true if the error has these words in its code or its text. Before Redis 7, the server
/// wraps an error inside a script in an `ERR`.
fn says(error: &RedisError, words: &str) -> bool {
    [error.code(), error.detail()].into_iter().flatten().any(|text| text.contains(words))
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

    /// Returns an error as a server replies it, and as a server before Redis 7 replies it to a
    /// script.
    fn both(code: &str, words: &str) -> [RedisError; 2] {
        let wrapped = format!(
            "Error running script (call to f_0): @user_script:5: @user_script: 5: -{code} {words}"
        );
        [(code, words), ("ERR", &*wrapped)]
            .map(|(code, detail)| make_extension_error(code.into(), Some(detail.into())))
    }

    #[test]
    fn a_key_of_another_type_is_recognized_also_inside_a_script_before_redis_7() {
        let words = "Operation against a key holding the wrong kind of value";
        for error in both("WRONGTYPE", words) {
            assert!(is_wrong_type(&error) && !is_of_the_connection(&error), "{error}");
        }
        for error in both("READONLY", "You can't write against a read only replica.") {
            assert!(!is_wrong_type(&error) && is_of_the_connection(&error), "{error}");
        }
    }

    #[test]
    fn a_refusal_by_the_server_is_recognized_also_inside_a_script() {
        let full = both("OOM", "command not allowed when used memory > 'maxmemory'.");
        let rights = [
            "ACL failure in script: User default has no permissions to run the 'hset' command",
            "Error running script (call to f_0): @user_script:5: @user_script: 5: The user \
             executing the script can't run this command or subcommand",
        ]
        .map(|detail| make_extension_error("ERR".into(), Some(detail.into())));
        for error in full.into_iter().chain(rights) {
            assert!(!is_of_the_connection(&error) && !is_wrong_type(&error), "{error}");
        }
    }
}
