//! The wire, bare: for this project's own tests with bad inputs.

use proto::wire::{Asked, Floors, Wire};
use proto::{Answer, Answers, Command, LockName, NodeId, StoreError};
use redis::{RedisError, Value};

use super::call::{Scripted, value};
use super::failure;

pub use proto::wire::message;

/// The meaning of an error of a command.
pub fn error(error: &RedisError) -> StoreError {
    failure::of_command(error)
}

fn wire(node: &NodeId, prefix: &str, peers: bool) -> Wire {
    Wire { node: node.clone(), prefix: prefix.into(), peers, of_error: failure::of_text }
}

fn asked(command: &Command) -> Asked {
    Asked::One(LockName::from(""), command.clone())
}

/// The queue.
pub mod queue {
    use super::*;
    use proto::wire::{queue_script, scripts};
    use redis::Cmd;

    /// The script of this name.
    pub fn script(name: &str) -> Option<&'static str> {
        scripts::of_queue().source(name)
    }

    /// The name of the script that runs the command.
    pub fn script_name(command: &Command) -> &'static str {
        queue_script(command).name
    }

    /// The call of a script that runs the command, for a server that knows it, by a node that has
    /// seen these times: the greatest on any server, and the latest on servers before this one.
    ///
    /// # Panics
    /// Never: the queue has every command.
    pub fn command(
        lock: &LockName,
        node: &NodeId,
        prefix: &str,
        command: &Command,
        [floor_us, elsewhere_us]: [u64; 2],
    ) -> Cmd {
        let floors = Floors { floor_us, elsewhere_us, latest_us: floor_us };
        let asked = Asked::One(lock.clone(), command.clone());
        let call: Result<Scripted, _> = wire(node, prefix, false).write(&asked, floors);
        call.expect("the queue has every command").command
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
        wire(node, "", false).answer(&asked(command), floors, &value(answer))
    }
}

/// A queue that JVMs share.
pub mod redisson {
    use super::*;
    use proto::Member;
    use proto::wire::keys::{Key, Tombstone};
    use proto::wire::scripts;

    /// All keys of a lock, with the tombstone of `member`.
    pub fn keys(lock: &LockName, member: &Member) -> [Vec<u8>; 5] {
        let name = lock.as_str().as_bytes().to_vec();
        let [queue, deadlines, token] = [Key::queue(lock), Key::deadlines(lock), Key::token(lock)]
            .map(|key| key.to_string().into_bytes());
        let gone = Tombstone { lock, member: member.as_str() };
        [name, queue, deadlines, token, gone.to_string().into_bytes()]
    }

    /// The script of this name.
    pub fn script(name: &str) -> Option<&'static str> {
        scripts::of_redisson().source(name)
    }

    /// The answer to one command.
    ///
    /// # Errors
    /// If the answer has no known form, or reports another program's key.
    pub fn answer(command: &Command, answer: &Value) -> Result<Answer, StoreError> {
        let wire = wire(&NodeId::from(""), "", true);
        wire.answer(&asked(command), Floors::default(), &value(answer))
    }

    /// The answers to several renewals, or to several touches.
    ///
    /// # Errors
    /// They have no known form.
    pub fn answers(commands: &[&Command], answer: &Value) -> Result<Answers, StoreError> {
        let lock = LockName::from("");
        let commands = commands.iter().map(|command| (lock.clone(), Command::clone(command)));
        let wire = wire(&NodeId::from(""), "", true);
        wire.answers(&Asked::Together(commands.collect()), Floors::default(), &value(answer))
    }
}
