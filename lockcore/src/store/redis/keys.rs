//! The names of a lock's keys and channels, written straight into a command.

use std::fmt;

use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

use crate::key::LockName;
use crate::member::{Member, NodeId, REDISSON_MARKER};

/// One key of a lock. Redisson puts braces around a name only if it has none itself.
pub(crate) struct Key<'a> {
    prefix: &'static str,
    lock: &'a LockName,
}

impl<'a> Key<'a> {
    pub(crate) fn queue(lock: &'a LockName) -> Self {
        Self { prefix: "redisson_lock_queue", lock }
    }

    pub(crate) fn deadlines(lock: &'a LockName) -> Self {
        Self { prefix: "redisson_lock_timeout", lock }
    }

    pub(crate) fn token(lock: &'a LockName) -> Self {
        Self { prefix: "redisson_lock_token", lock }
    }

    /// What a queue that is shared with JVMs has besides, in the order in which the scripts know
    /// them: up to when waiting members of ours are believed alive, the order in which they came,
    /// and the foreign members that do not hear.
    pub(crate) fn of_peers(lock: &'a LockName) -> [Self; 3] {
        ["redisson_lock_alive", "redisson_lock_arrivals", "redisson_lock_suspects"]
            .map(|prefix| Self { prefix, lock })
    }

    /// The door of the queue; all its other keys are named after it.
    pub(crate) fn door(lock: &'a LockName) -> Self {
        Self { prefix: "lock", lock }
    }

    /// The parts of its text.
    fn parts(&self) -> [&str; 5] {
        let name = self.lock.as_str();
        let (open, close) = if name.contains('{') { ("", "") } else { ("{", "}") };
        [self.prefix, ":", open, name, close]
    }

    #[cfg(test)]
    fn text(&self) -> String {
        self.parts().concat()
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

impl ToRedisArgs for Key<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

impl ToSingleRedisArg for Key<'_> {}

/// The key that says that a member was given up.
pub(crate) struct Tombstone<'a> {
    pub(crate) lock: &'a LockName,
    pub(crate) member: &'a str,
}

impl ToRedisArgs for Tombstone<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let key = Key { prefix: "redisson_lock_gone", lock: self.lock };
        out.write_arg_fmt(format_args!("{key}:{}", self.member));
    }
}

impl ToSingleRedisArg for Tombstone<'_> {}

/// The counter of tokens, which all locks of a server share.
pub(crate) const COUNTER: &str = "lock:tokens";

/// How the channels begin on which JVMs tell each other of a lock.
pub(crate) const PEER_CHANNELS: &str = "redisson_lock__channel:";

/// Where a node hears of its grants; `*` for a node is those of all.
pub(crate) fn grants_channel(prefix: &str, node: &str) -> String {
    format!("{prefix}:grants:{node}")
}

/// On which a JVM's unlock tells a node's waiting members to come, whatever the lock.
pub(crate) fn pokes_pattern(node: &NodeId) -> String {
    format!("{PEER_CHANNELS}*:{REDISSON_MARKER}{node}:*")
}

/// The member of a node that is told to come, by the channel.
pub(crate) fn poked_member(channel: &str, node: &NodeId) -> Option<Member> {
    let at = channel.find(&format!(":{REDISSON_MARKER}{node}:"))?;
    Member::parse(&channel[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_redisson() {
        let plain = LockName::from("order:42");
        assert_eq!(Key::queue(&plain).text(), "redisson_lock_queue:{order:42}");
        assert_eq!(Key::deadlines(&plain).text(), "redisson_lock_timeout:{order:42}");
        assert_eq!(Key::token(&plain).text(), "redisson_lock_token:{order:42}");
        let tagged = LockName::from("{tenant}:x");
        assert_eq!(Key::queue(&tagged).text(), "redisson_lock_queue:{tenant}:x");
    }

    #[test]
    fn a_poked_member_is_read_off_the_channel_whatever_lock_and_label_hold() {
        let node = NodeId::random();
        let member = format!("~1{node}:7:30000:a:{node} b");
        for lock in ["{x}", "{~1:y}", "tenant:{a}:b"] {
            let channel = format!("redisson_lock__channel:{lock}:{member}");
            assert_eq!(poked_member(&channel, &node), Member::parse(&member));
            assert_eq!(poked_member(&channel, &NodeId::random()), None);
        }
    }
}
