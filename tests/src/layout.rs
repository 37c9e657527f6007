//! A lock's keys, and their content: `docs/protocol.md`.

use redis::cmd;

use crate::Raw;

/// The token counter shared by all locks of a server.
pub const COUNTER: &str = "lock:tokens";

/// How long a waiting member is assumed alive after the last sign of life of its node.
pub const PATIENCE_MS: i64 = 15_000;

/// The time between the lease end and the expiry of its flagged lock key.
const MARGIN_MS: i64 = 60_000;

/// Returns the lock key of a lock, by the lock's full name.
#[must_use]
pub fn lock_key(lock: &str) -> String {
    format!("lock:{{{lock}}}")
}

/// Returns the key of the queue: waiting member → position.
#[must_use]
pub fn queue_key(lock: &str) -> String {
    format!("lock:{{{lock}}}:queue")
}

/// Returns the key of the held parts: member → end of the lease, in ms since the epoch.
#[must_use]
pub fn holds_key(lock: &str) -> String {
    format!("lock:{{{lock}}}:holds")
}

/// Returns the key of the tombstones: member → when the tombstone is removed, in ms since the
/// epoch.
#[must_use]
pub fn tombstones_key(lock: &str) -> String {
    format!("lock:{{{lock}}}:gone")
}

/// Returns the key that exists while the waiting members of a node count as alive.
#[must_use]
pub fn patience_key(lock: &str, node: &str) -> String {
    format!("lock:{{{lock}}}:patience:{node}")
}

/// Returns the key of the skipped members of a node.
#[must_use]
pub fn aside_key(lock: &str, node: &str) -> String {
    format!("lock:{{{lock}}}:passed:{node}")
}

impl Raw {
    /// Reads the members in a lock's queue, next first.
    pub async fn queue(&mut self, lock: &str) -> Vec<String> {
        self.ask(cmd("ZRANGE").arg(queue_key(lock)).arg(0).arg(-1)).await
    }

    /// Reads the exclusive holder of a lock, with the remaining ms of its lease; negative without
    /// an end.
    pub async fn hold(&mut self, lock: &str) -> Option<(String, i64)> {
        let look = "return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]) }";
        let (lock_key, ends): (Option<String>, i64) =
            self.ask(cmd("EVAL").arg(look).arg(1).arg(lock_key(lock))).await;
        let lock_key = lock_key?;
        let member = lock_key.trim_start_matches(['+', '-']);
        let margin = if member.len() < lock_key.len() && ends >= 0 { MARGIN_MS } else { 0 };
        let is_held = member.starts_with('~') && (ends < 0 || ends > margin);
        is_held.then(|| (member.to_owned(), ends - margin))
    }

    /// Reads the exclusive holder of a lock.
    pub async fn holder(&mut self, lock: &str) -> Option<String> {
        self.hold(lock).await.map(|(member, _)| member)
    }
}
