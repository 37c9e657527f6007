//! The names of Redis keys and channels, which can be written into a command without an allocation.

use std::fmt;
use std::sync::LazyLock;

use super::slot::{self, SLOTS};
use crate::Topology;
use crate::name::LockName;

/// The name of a lock's key: a prefix and the lock name. The lock name is in braces, unless it
/// contains braces.
#[derive(Debug)]
pub struct Key<'a> {
    prefix: &'static str,
    lock: &'a LockName,
}

impl<'a> Key<'a> {
    /// Creates the key of `lock` with this prefix.
    pub fn new(prefix: &'static str, lock: &'a LockName) -> Self {
        Self { prefix, lock }
    }

    /// Creates the lock key of `lock`. The names of all other keys are derived from it.
    pub fn lock_key(lock: &'a LockName) -> Self {
        Self { prefix: "lock", lock }
    }

    fn text_parts(&self) -> [&str; 5] {
        let name = self.lock.as_str();
        let (open, close) = if name.contains('{') { ("", "") } else { ("{", "}") };
        [self.prefix, ":", open, name, close]
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text_parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

/// Returns a Redis pattern that matches the lock keys in a namespace, or all lock keys for `None`.
/// Other keys may match, too.
pub fn lock_keys_pattern(namespace: Option<&str>) -> String {
    let mut pattern = String::from("lock:{");
    if let Some(namespace) = namespace {
        for character in namespace.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push(':');
    }
    pattern.push_str("*}");
    pattern
}

/// The key of the token counter that all locks on a server share.
pub const COUNTER: &str = "lock:tokens";
/// The prefix of the token counters' keys on quorum primaries.
pub const PRIMARY_COUNTERS: &str = "lockcore:quorum:tokens:";

/// A token counter, as a set of locks that share it. Its `Display` form is the Redis key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// The counter that all locks on the server share.
    Server,
    /// The counter that all locks in this Redis Cluster slot share. The key has the slot's hash
    /// tag: the lowest number whose text hashes to the slot.
    Slot(u16),
    /// The counter that all locks on a quorum primary share, in the epoch that began at this time,
    /// in µs since 1970. It is created when the epoch begins, so a server without it has lost its
    /// data, and the epoch is over.
    Epoch(u64),
}

impl Counter {
    /// Returns the counter that issues the tokens of a lock. `epoch_us` is used only on a quorum
    /// primary: the time when its epoch began.
    pub fn of(lock: &LockName, topology: Topology, epoch_us: u64) -> Self {
        match topology {
            Topology::Single => Self::Server,
            Topology::Cluster => Self::Slot(lock.slot()),
            Topology::Quorum => Self::Epoch(epoch_us),
        }
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str(COUNTER),
            Self::Slot(slot) => write!(f, "{}:{{{}}}", COUNTER, TAGS[usize::from(slot % SLOTS)]),
            Self::Epoch(epoch_us) => write!(f, "{PRIMARY_COUNTERS}{epoch_us}"),
        }
    }
}

/// The hash tag of each slot, by slot number: the lowest number whose text hashes to the slot.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut left = tags.len();
    for number in 0.. {
        let tag = &mut tags[usize::from(slot::of_key(&number.to_string()))];
        if tag.is_none() {
            *tag = Some(number);
            left -= 1;
        }
        if left == 0 {
            break;
        }
    }
    tags.into_iter().flatten().collect()
});

/// The key that shows operators the process of a node. Its name has no hash tag, so these keys are
/// spread over all primaries of a Redis Cluster.
#[derive(Debug, Clone, Copy)]
pub struct NodeKey<'a>(pub &'a str);

impl NodeKey<'_> {
    /// Returns the Redis Cluster slot of the key.
    pub fn slot(self) -> u16 {
        slot::of_key(&self.to_string())
    }
}

impl fmt::Display for NodeKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock:node:{}", self.0)
    }
}

/// Returns the name of the channel on which a node receives its messages. The node `*` gives a
/// pattern for all nodes.
pub fn grants_channel(prefix: &str, node: &str) -> String {
    format!("{prefix}:grants:{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_counter_that_lies_in_it_and_no_two_share_one() {
        let names: Vec<_> = (0..SLOTS).map(|slot| Counter::Slot(slot).to_string()).collect();
        for (slot, name) in names.iter().enumerate() {
            assert_eq!(usize::from(slot::of_key(name)), slot, "{name}");
        }
        let longest = names.iter().map(String::len).max();
        assert!(longest < Some(24), "{longest:?}");
    }

    // Every process must use the same counter for a slot.
    #[test]
    fn the_counter_of_a_slot_has_the_least_number_that_lies_in_it() {
        for number in 0..10_000_u32 {
            let slot = slot::of_key(&number.to_string());
            let tag = TAGS[usize::from(slot)];
            assert!(tag <= number && slot::of_key(&tag.to_string()) == slot, "{number}");
        }
    }
}
