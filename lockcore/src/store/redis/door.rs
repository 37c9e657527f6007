//! What is written to a server and read from it, bare: for this project's own tests with bad
//! inputs.

use redis::RedisError;

use super::{failure, subscription};
use crate::error::StoreError;
use crate::member::NodeId;
use crate::store::Event;

/// A message on the node's channel.
pub fn message(payload: &[u8], node: &NodeId) -> Option<Event> {
    subscription::read(payload, node)
}

/// What an error of a command means.
pub fn error(error: &RedisError) -> StoreError {
    failure::of_command(error)
}

/// The queue.
pub mod queue {
    use redis::{Cmd, Value};

    use crate::error::StoreError;
    use crate::key::LockName;
    use crate::member::NodeId;
    use crate::store::redis::seen::Floors;
    use crate::store::redis::terms::Terms;
    use crate::store::redis::{queue, scripts};
    use crate::store::{Answer, Command};

    /// The script of this name.
    pub fn script(name: &str) -> Option<&'static str> {
        scripts::of_queue().source(name)
    }

    /// The name of the script that runs the command.
    pub fn script_name(command: &Command) -> &'static str {
        queue::script(command).name
    }

    /// The call of a script that runs the command, for a server that knows it, by a node that has
    /// seen these times: the greatest on any server, and the latest on servers before this one.
    pub fn command(
        lock: &LockName,
        node: &NodeId,
        prefix: &str,
        command: &Command,
        [floor_us, elsewhere_us]: [u64; 2],
    ) -> Cmd {
        let floors = Floors { floor_us, elsewhere_us, latest_us: floor_us };
        queue::command(lock, Terms { node, prefix, floors }, command)
    }

    /// The answer to the command.
    ///
    /// # Errors
    /// It has no known form.
    pub fn answer(
        command: &Command,
        node: &NodeId,
        floor_us: u64,
        answer: &Value,
    ) -> Result<Answer, StoreError> {
        let floors = Floors { floor_us, ..Floors::default() };
        queue::reply::answer(command, Terms { node, prefix: "", floors }, answer)
    }
}

/// A queue that JVMs share.
pub mod redisson {
    use redis::{ToRedisArgs, Value};

    use crate::error::StoreError;
    use crate::key::LockName;
    use crate::member::Member;
    use crate::store::redis::keys::{Key, Tombstone};
    use crate::store::redis::{redisson, scripts};
    use crate::store::{Answer, Answers, Command};

    /// All keys of a lock, with the tombstone of `member`.
    pub fn keys(lock: &LockName, member: &Member) -> [Vec<u8>; 5] {
        let name = lock.as_str().as_bytes().to_vec();
        let [queue, deadlines, token] =
            [Key::queue(lock), Key::deadlines(lock), Key::token(lock)].map(|key| text(&key));
        [name, queue, deadlines, token, text(&Tombstone { lock, member: member.as_str() })]
    }

    fn text(key: &impl ToRedisArgs) -> Vec<u8> {
        key.to_redis_args().concat()
    }

    /// The script of this name.
    pub fn script(name: &str) -> Option<&'static str> {
        scripts::of_redisson().source(name)
    }

    /// The answer to one command.
    ///
    /// # Errors
    /// It has no known form, or reports a strange key of the lock.
    pub fn answer(command: &Command, answer: &Value) -> Result<Answer, StoreError> {
        redisson::reply::answer(command, answer)
    }

    /// The answers to several renewals, or to several touches.
    ///
    /// # Errors
    /// They have no known form.
    pub fn answers(commands: &[&Command], answer: &Value) -> Result<Answers, StoreError> {
        redisson::reply::answers(commands, answer)
    }
}
