//! A lock's full name.

use std::fmt;
use std::sync::Arc;

use crate::member::by_text;
use crate::text::joined;
use crate::wire::slot;

/// The prefix of lock keys.
const DOOR: &str = "lock:";

/// A lock's resolved name N, as used in the store: with the namespace and the encoding applied.
#[derive(Clone)]
pub struct LockName {
    /// The lock key, used by every command: composed only once.
    door: Arc<str>,
    /// Whether the lock key has braces around the name.
    is_braced: bool,
}

impl LockName {
    /// The name's text.
    pub fn as_str(&self) -> &str {
        match self.is_braced {
            true => &self.door[DOOR.len() + 1..self.door.len() - 1],
            false => &self.door[DOOR.len()..],
        }
    }

    /// Returns the name of the lock with this key, braces included; `None` for any other key.
    pub fn of_door(key: &str) -> Option<Self> {
        let name = key.strip_prefix(DOOR)?.strip_prefix('{')?.strip_suffix('}')?;
        (!name.contains(['{', '}'])).then(|| Self { door: Arc::from(key), is_braced: true })
    }

    /// The lock's Redis Cluster slot.
    pub fn slot(&self) -> u16 {
        slot::of_key(&self.door)
    }

    /// The lock key; all other keys of the queue are derived from it. Braces choose the Redis
    /// Cluster slot; a name with braces chooses the slot itself.
    pub(crate) fn door(&self) -> &str {
        &self.door
    }
}

impl From<&str> for LockName {
    fn from(name: &str) -> Self {
        let is_braced = !name.contains('{');
        let (open, close) = if is_braced { ("{", "}") } else { ("", "") };
        Self { door: joined(&[DOOR, open, name, close]), is_braced }
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
    fn the_door_is_the_key_of_that_name_and_has_the_name_in_it() {
        for name in ["order:42", "{tenant}:x", "{", "a}b", "", "日本"] {
            let lock = LockName::from(name);
            assert_eq!(lock.door(), Key::door(&lock).to_string());
            assert_eq!((lock.as_str(), LockName::from(lock.as_str())), (name, lock.clone()));
        }
    }

    #[test]
    fn a_name_is_read_off_its_door_and_off_no_other_key() {
        for name in ["order:42", "", "日本"] {
            let lock = LockName::from(name);
            assert_eq!(LockName::of_door(lock.door()), Some(lock));
        }
        for other in
            ["lock:{a}:queue", "lock:{a}:{b}", "lock:a", "lock:{a", "xlock:{a}", "lock:tokens:{7}"]
        {
            assert_eq!(LockName::of_door(other), None, "{other}");
        }
    }
}
