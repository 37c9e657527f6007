//! The names of a lock's keys and channels, written straight into a command.

use redis::{RedisWrite, ToRedisArgs, ToSingleRedisArg};

use crate::key::LockName;
use crate::member::{Member, NodeId};

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

    fn text(&self) -> String {
        let name = self.lock.as_str();
        let (open, close) = if name.contains('{') { ("", "") } else { ("{", "}") };
        [self.prefix, ":", open, name, close].concat()
    }
}

impl ToRedisArgs for Key<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.text().as_bytes());
    }
}

impl ToSingleRedisArg for Key<'_> {}

/// The key that says that a member was given up.
pub(crate) struct Tombstone<'a> {
    pub(crate) lock: &'a LockName,
    pub(crate) member: &'a Member,
}

impl ToRedisArgs for Tombstone<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut text = Key { prefix: "redisson_lock_gone", lock: self.lock }.text();
        text.push(':');
        text.push_str(self.member.as_str());
        out.write_arg(text.as_bytes());
    }
}

impl ToSingleRedisArg for Tombstone<'_> {}

/// Where a node hears of its grants.
pub(crate) fn grants_channel(prefix: &str, node: &NodeId) -> String {
    format!("{prefix}:grants:{node}")
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
}
