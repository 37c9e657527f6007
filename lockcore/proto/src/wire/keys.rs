//! The names of a lock's keys and channels, written straight into a command.

use std::fmt;
use std::sync::LazyLock;

use super::slot::{self, SLOTS};
use crate::name::LockName;

/// One key of a lock: a prefix and its name, in braces unless it has some itself.
#[derive(Debug)]
pub struct Key<'a> {
    prefix: &'static str,
    lock: &'a LockName,
}

impl<'a> Key<'a> {
    /// The key with this prefix.
    pub fn new(prefix: &'static str, lock: &'a LockName) -> Self {
        Self { prefix, lock }
    }

    /// The door of the queue; all its other keys are named after it.
    pub fn door(lock: &'a LockName) -> Self {
        Self { prefix: "lock", lock }
    }

    /// The parts of its text.
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

/// The pattern of the doors in a namespace, or of all without one; other keys may match it.
pub fn doors_pattern(namespace: Option<&str>) -> String {
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

/// The counter of tokens, which all locks of a server share; in a Redis Cluster those of a slot,
/// with a hash tag behind it: see [`SlotCounter`].
pub const COUNTER: &str = "lock:tokens";

/// The counter of tokens of a slot: its hash tag is the least number that lies in the slot.
///
/// A script reaches the keys of one slot only, so each slot has one of its own.
#[derive(Debug, Clone, Copy)]
pub struct SlotCounter(pub u16);

impl fmt::Display for SlotCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{{{}}}", COUNTER, TAGS[usize::from(self.0 % SLOTS)])
    }
}

/// The first part of the counters of tokens of primaries of a quorum.
pub const PRIMARY_COUNTERS: &str = "lockcore:quorum:tokens:";

/// The counter of tokens of a primary of a quorum, in the epoch that began at this time, µs since
/// 1970: it is made when the epoch begins, so a server without it was emptied.
#[derive(Debug, Clone, Copy)]
pub struct PrimaryCounter(pub u64);

impl fmt::Display for PrimaryCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PRIMARY_COUNTERS}{}", self.0)
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

/// The key of a node, for operators: its value is the node's process. Without a hash tag, node keys
/// spread over all primaries of a Redis Cluster.
#[derive(Debug, Clone, Copy)]
pub struct NodeKey<'a>(pub &'a str);

impl NodeKey<'_> {
    /// Its slot in a Redis Cluster.
    pub fn slot(self) -> u16 {
        slot::of_key(&self.to_string())
    }
}

impl fmt::Display for NodeKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock:node:{}", self.0)
    }
}

/// The channel on which a node hears of its grants; `*` for a node is those of all.
pub fn grants_channel(prefix: &str, node: &str) -> String {
    format!("{prefix}:grants:{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_has_a_counter_that_lies_in_it_and_no_two_share_one() {
        let names: Vec<_> = (0..SLOTS).map(|slot| SlotCounter(slot).to_string()).collect();
        for (slot, name) in names.iter().enumerate() {
            assert_eq!(usize::from(slot::of_key(name)), slot, "{name}");
        }
        let longest = names.iter().map(String::len).max();
        assert!(longest < Some(24), "{longest:?}");
    }

    // Every process has to know the same counter for a slot.
    #[test]
    fn the_counter_of_a_slot_has_the_least_number_that_lies_in_it() {
        for number in 0..10_000_u32 {
            let slot = slot::of_key(&number.to_string());
            let tag = TAGS[usize::from(slot)];
            assert!(tag <= number && slot::of_key(&tag.to_string()) == slot, "{number}");
        }
    }
}
