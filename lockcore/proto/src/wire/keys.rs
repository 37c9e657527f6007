//! Key and channel names, written directly into a command.

use std::fmt;
use std::sync::LazyLock;

use super::slot::{self, SLOTS};
use crate::Topology;
use crate::name::LockName;

/// A lock's key: a prefix and the name, in braces unless it contains some.
#[derive(Debug)]
pub struct Key<'a> {
    prefix: &'static str,
    lock: &'a LockName,
}

impl<'a> Key<'a> {
    /// Creates the key with this prefix.
    pub fn new(prefix: &'static str, lock: &'a LockName) -> Self {
        Self { prefix, lock }
    }

    /// Creates the lock key; the names of all other keys derive from it.
    pub fn lock_key(lock: &'a LockName) -> Self {
        Self { prefix: "lock", lock }
    }

    /// Returns the text's parts.
    fn parts(&self) -> [&str; 5] {
        let name = self.lock.as_str();
        let (open, close) = if name.contains('{') { ("", "") } else { ("{", "}") };
        [self.prefix, ":", open, name, close]
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

/// Returns a pattern for the lock keys in a namespace, or for all; other keys may match, too.
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

/// The token counter shared by all locks on a server.
pub const COUNTER: &str = "lock:tokens";
/// The name prefix for quorum primaries' token counters.
pub const PRIMARY_COUNTERS: &str = "lockcore:quorum:tokens:";

/// A token counter's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Shared by all locks on the server.
    Server,
    /// Shared by the locks in this slot. The hash tag is the least number in the slot.
    Slot(u16),
    /// Shared by all locks on a quorum primary, in the epoch that began at this time, in µs since
    /// 1970. Created when the epoch begins, so a server without it was emptied.
    Epoch(u64),
}

impl Counter {
    /// Returns the token counter for a lock; on a quorum primary, the counter of this epoch.
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

/// The hash tag of each slot.
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

/// A node's key, for operators; the value is the node's process. Without a hash tag, node keys are
/// spread over all primaries in a Redis Cluster.
#[derive(Debug, Clone, Copy)]
pub struct NodeKey<'a>(pub &'a str);

impl NodeKey<'_> {
    /// Returns the slot in a Redis Cluster.
    pub fn slot(self) -> u16 {
        slot::of_key(&self.to_string())
    }
}

impl fmt::Display for NodeKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock:node:{}", self.0)
    }
}

/// Returns the channel that carries a node's grants; `*` matches all nodes.
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
