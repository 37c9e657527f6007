//! What is written to a server and read from it, bare: for this project's own tests with bad inputs.

use redis::{ToRedisArgs, Value};

use super::keys::{Key, Tombstone};
use super::{reply, scripts, subscription};
use crate::error::StoreError;
use crate::key::LockName;
use crate::member::Member;
use crate::store::{Acquired, Event, Inspection, Left, Released, Renewed, Reply, Touched};

/// All keys of a lock, with the tombstone of `member`.
pub fn keys(lock: &LockName, member: &Member) -> [Vec<u8>; 5] {
    let name = lock.as_str().as_bytes().to_vec();
    let [queue, deadlines, token] =
        [Key::queue(lock), Key::deadlines(lock), Key::token(lock)].map(|key| text(&key));
    [name, queue, deadlines, token, text(&Tombstone { lock, member })]
}

fn text(key: &impl ToRedisArgs) -> Vec<u8> {
    key.to_redis_args().concat()
}

/// The script of this name, as it is sent where no queue is shared with JVMs.
pub fn script(name: &str) -> Option<&'static str> {
    scripts::of(false).source(name)
}

/// A message on the node's channel.
pub fn message(payload: &[u8]) -> Option<Event> {
    subscription::read(payload)
}

/// The answer to an acquire of `member`.
///
/// # Errors
/// It has no known form; so all the others.
pub fn acquired(answer: Value, member: &Member) -> Result<Reply<Acquired>, StoreError> {
    reply::acquired(answer, member)
}

/// The answer to a release.
pub fn released(answer: Value) -> Result<Reply<Released>, StoreError> {
    reply::released(answer)
}

/// The answer to a renewal.
pub fn renewed(answer: Value) -> Result<Reply<Renewed>, StoreError> {
    reply::renewed(answer)
}

/// The answer to a touch.
pub fn touched(answer: Value) -> Result<Reply<Touched>, StoreError> {
    reply::touched(answer)
}

/// The answer to a leave.
pub fn left(answer: Value) -> Result<Reply<Vec<Left>>, StoreError> {
    reply::left(answer)
}

/// The answer to an inspection.
pub fn inspection(answer: Value) -> Result<Inspection, StoreError> {
    reply::inspection(answer)
}
