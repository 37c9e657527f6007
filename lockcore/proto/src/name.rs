//! The full name of a lock, with the namespace, and the key derived from it.

use std::fmt;
use std::sync::Arc;

use crate::member::by_text;
use crate::text::joined;
use crate::wire::slot;

const KEY_PREFIX: &str = "lock:";

/// The full name of a lock as the store knows it: with the namespace in front, and with special
/// characters encoded.
#[derive(Clone)]
pub struct LockName {
    /// The Redis key of the lock. Every command needs it, so it is composed only once.
    lock_key: Arc<str>,
    /// True if the Redis key has braces around the name, because the name has none.
    is_braced: bool,
}

impl LockName {
    /// Returns the name as text, without the key prefix and the braces.
    pub fn as_str(&self) -> &str {
        match self.is_braced {
            true => &self.lock_key[KEY_PREFIX.len() + 1..self.lock_key.len() - 1],
            false => &self.lock_key[KEY_PREFIX.len()..],
        }
    }

    /// Returns the name of the lock that is stored under the Redis key `key`, such as
    /// `lock:{name}`. `None` for any other key.
    pub fn of_lock_key(key: &str) -> Option<Self> {
        let name = key.strip_prefix(KEY_PREFIX)?.strip_prefix('{')?.strip_suffix('}')?;
        (!name.contains(['{', '}'])).then(|| Self { lock_key: Arc::from(key), is_braced: true })
    }

    /// Returns the Redis Cluster slot that stores the lock.
    pub fn slot(&self) -> u16 {
        slot::of_key(&self.lock_key)
    }

    /// Returns the Redis key of the lock, from which all its other keys are derived. In a Redis
    /// Cluster the part in braces determines the slot. The whole name is in braces, unless it
    /// contains braces and so chooses the slot itself.
    pub(crate) fn lock_key(&self) -> &str {
        &self.lock_key
    }
}

impl From<&str> for LockName {
    fn from(name: &str) -> Self {
        let is_braced = !name.contains('{');
        let (open, close) = if is_braced { ("{", "}") } else { ("", "") };
        Self { lock_key: joined(&[KEY_PREFIX, open, name, close]), is_braced }
    }
}

impl From<Arc<str>> for LockName {
    fn from(name: Arc<str>) -> Self {
        Self::from(&*name)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockName({:?})", self.as_str())
    }
}

by_text!(LockName);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::keys::Key;

    #[test]
    fn the_lock_key_is_the_key_of_that_name_and_has_the_name_in_it() {
        for name in ["order:42", "{tenant}:x", "{", "a}b", "", "日本"] {
            let lock = LockName::from(name);
            assert_eq!(lock.lock_key(), Key::lock_key(&lock).to_string());
            assert_eq!((lock.as_str(), LockName::from(lock.as_str())), (name, lock.clone()));
        }
    }

    #[test]
    fn a_name_is_read_off_its_lock_key_and_off_no_other_key() {
        for name in ["order:42", "", "日本"] {
            let lock = LockName::from(name);
            assert_eq!(LockName::of_lock_key(lock.lock_key()), Some(lock));
        }
        for other in
            ["lock:{a}:queue", "lock:{a}:{b}", "lock:a", "lock:{a", "xlock:{a}", "lock:tokens:{7}"]
        {
            assert_eq!(LockName::of_lock_key(other), None, "{other}");
        }
    }
}
