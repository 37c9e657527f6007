//! The keys of a lock, and their content: `docs/protocol.md`.

use redis::cmd;

use crate::Raw;

/// The counter of tokens, which all locks of a server share.
pub const COUNTER: &str = "lock:tokens";

/// The time for which a waiting member is believed alive after its node was heard of.
pub const PATIENCE_MS: i64 = 15_000;

/// The time between the end of a lease and the end of its marked door.
const MARGIN_MS: i64 = 60_000;

/// The door of a lock, by the lock's full name.
#[must_use]
pub fn door_key(lock: &str) -> String {
    format!("lock:{{{lock}}}")
}

/// The queue: waiting member → place.
#[must_use]
pub fn queue_key(lock: &str) -> String {
    format!("lock:{{{lock}}}:queue")
}

/// The parts that are held: member → end of its lease, ms.
#[must_use]
pub fn holds_key(lock: &str) -> String {
    format!("lock:{{{lock}}}:holds")
}

/// The tombstones: member → the time at which it is forgotten, ms.
#[must_use]
pub fn gone_key(lock: &str) -> String {
    format!("lock:{{{lock}}}:gone")
}

/// The key that says that the waiting members of a node are alive.
#[must_use]
pub fn patience_key(lock: &str, node: &str) -> String {
    format!("lock:{{{lock}}}:patience:{node}")
}

/// The members of a node that were passed over.
#[must_use]
pub fn passed_key(lock: &str, node: &str) -> String {
    format!("lock:{{{lock}}}:passed:{node}")
}

impl Raw {
    /// Reads the members in the queue of a lock, next first.
    pub async fn queue(&mut self, lock: &str) -> Vec<String> {
        self.ask(cmd("ZRANGE").arg(queue_key(lock)).arg(0).arg(-1)).await
    }

    /// Reads the member that holds all of a lock, with the ms left of its lease; negative without
    /// an end.
    pub async fn hold(&mut self, lock: &str) -> Option<(String, i64)> {
        let look = "return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) }";
        let (door, ends): (Option<String>, i64) =
            self.ask(cmd("EVAL").arg(look).arg(1).arg(door_key(lock))).await;
        let door = door?;
        let member = door.trim_start_matches(['+', '-']);
        let margin = if member.len() < door.len() && ends >= 0 { MARGIN_MS } else { 0 };
        let is_held = member.starts_with('~') && (ends < 0 || ends > margin);
        is_held.then(|| (member.to_owned(), ends - margin))
    }

    /// Reads the member that holds all of a lock.
    pub async fn holder(&mut self, lock: &str) -> Option<String> {
        self.hold(lock).await.map(|(member, _)| member)
    }
}
