//! The names of a lock's keys and channels in Redisson's layout.

use std::fmt;

use proto::wire::keys::Key;
use proto::{LockName, Member, NodeId, PLAIN_MARKER};

/// Prefix of the channels on which waiters are woken. A JVM, a process with a Redisson client,
/// publishes there when it unlocks. So does lockcore, to wake a JVM thread.
pub(crate) const PEER_CHANNELS: &str = "redisson_lock__channel:";

/// Returns the key of the queue, a list of waiters, the next holder first.
fn queue(lock: &LockName) -> Key<'_> {
    Key::new("redisson_lock_queue", lock)
}

/// Returns the key of the waiters' scores, a sorted set. A JVM, a process with a Redisson client,
/// removes the first waiter of the queue if the score, in ms since the epoch, is not after the
/// JVM's clock.
fn deadlines(lock: &LockName) -> Key<'_> {
    Key::new("redisson_lock_timeout", lock)
}

/// Returns the key of the last fencing token issued for the lock.
pub(crate) fn token(lock: &LockName) -> Key<'_> {
    Key::new("redisson_lock_token", lock)
}

/// Returns a lock's keys in the order that the scripts expect: hold, queue, scores, token, the
/// tombstones of the members `tombstones`, and three keys that Redisson does not know. These three
/// contain the waiters of lockcore with their liveness deadlines, the same waiters in order of
/// arrival, and the waiting JVM threads (Redisson clients) without a subscription.
pub(crate) fn of(lock: &LockName, tombstones: &[&str]) -> impl Iterator<Item = String> {
    let of_tombstone = |member: &&str| Tombstone { lock, member }.to_string();
    let first = [queue(lock), deadlines(lock), token(lock)].map(|key| key.to_string());
    let last = ["redisson_lock_alive", "redisson_lock_arrivals", "redisson_lock_suspects"]
        .map(|prefix| Key::new(prefix, lock).to_string());
    let gone: Vec<_> = tombstones.iter().map(of_tombstone).collect();
    [lock.as_str().to_owned()].into_iter().chain(first).chain(gone).chain(last)
}

/// The key of a tombstone, which refuses late copies of a given-up acquire. Its `Display` form is
/// the key.
#[derive(Debug)]
pub(crate) struct Tombstone<'a> {
    /// The lock that was to be acquired.
    pub(crate) lock: &'a LockName,
    /// The member whose acquire was given up.
    pub(crate) member: &'a str,
}

impl fmt::Display for Tombstone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = Key::new("redisson_lock_gone", self.lock);
        write!(f, "{key}:{}", self.member)
    }
}

/// Returns the pattern of the channels on which JVMs, processes with Redisson clients, wake the
/// waiters of this node when they unlock, for all locks. The node subscribes to the pattern.
pub(crate) fn pokes_pattern(node: &NodeId) -> String {
    format!("{PEER_CHANNELS}*:{PLAIN_MARKER}{node}:*")
}

/// Returns the waiter of this node that a message on `channel` wakes; `None` if the channel is for
/// no waiter of this node.
pub(crate) fn poked_member(channel: &str, node: &NodeId) -> Option<Member> {
    let at = channel.find(&format!(":{PLAIN_MARKER}{node}:"))?;
    Member::parse(&channel[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_redisson() {
        let plain = LockName::from("order:42");
        assert_eq!(queue(&plain).to_string(), "redisson_lock_queue:{order:42}");
        assert_eq!(deadlines(&plain).to_string(), "redisson_lock_timeout:{order:42}");
        assert_eq!(token(&plain).to_string(), "redisson_lock_token:{order:42}");
        let tagged = LockName::from("{tenant}:x");
        assert_eq!(queue(&tagged).to_string(), "redisson_lock_queue:{tenant}:x");
    }

    #[test]
    fn a_poked_member_is_read_off_the_channel_whatever_lock_and_label_hold() {
        let node = NodeId::from(7_u128);
        let member = format!("~1{node}:7:30000:a:{node} b");
        for lock in ["{x}", "{~1:y}", "tenant:{a}:b"] {
            let channel = format!("redisson_lock__channel:{lock}:{member}");
            assert_eq!(poked_member(&channel, &node), Member::parse(&member));
            assert_eq!(poked_member(&channel, &NodeId::from(8_u128)), None);
        }
    }
}
