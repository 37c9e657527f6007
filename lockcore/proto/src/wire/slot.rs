//! The slots of a Redis Cluster: the slot of a key, and the counter of tokens of a slot.
//!
//! A script reaches the keys of one slot only. So each slot has a counter of tokens of its own, for
//! all locks whose keys lie in it.

use std::fmt;
use std::sync::LazyLock;

/// The number of slots of each Cluster.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: that of the text between its first brace and the next one that closes it, if
/// there is any, else of the whole key.
pub fn of_key(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// The counter of tokens of a slot: its hash tag is the least number that lies in the slot.
#[derive(Debug, Clone, Copy)]
pub struct SlotCounter(pub u16);

impl fmt::Display for SlotCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{{{}}}", super::keys::COUNTER, TAGS[usize::from(self.0 % SLOTS)])
    }
}

/// The hash tag of each slot.
static TAGS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut tags = vec![None; usize::from(SLOTS)];
    let mut left = tags.len();
    for number in 0.. {
        let tag = &mut tags[usize::from(of_key(&number.to_string()))];
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

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of the Cluster specification.
    #[test]
    fn the_slot_of_a_key_is_that_of_its_hash_tag() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(of_key("{user1000}.following"), of_key("user1000"));
        assert_eq!(of_key("foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS, "an empty tag is none");
        assert_eq!(of_key("foo{{bar}}zap"), of_key("{bar"));
        assert_eq!(of_key("foo{bar}{zap}"), of_key("bar"));
        assert_eq!(
            of_key("foo{bar"),
            crc16(b"foo{bar") % SLOTS,
            "a tag that is not closed is none"
        );
        assert_eq!(of_key(""), 0);
    }

    #[test]
    fn each_slot_has_a_counter_that_lies_in_it_and_no_two_share_one() {
        let names: Vec<_> = (0..SLOTS).map(|slot| SlotCounter(slot).to_string()).collect();
        for (slot, name) in names.iter().enumerate() {
            assert_eq!(usize::from(of_key(name)), slot, "{name}");
        }
        let longest = names.iter().map(String::len).max();
        assert!(longest < Some(24), "{longest:?}");
    }

    // Every process has to know the same counter for a slot.
    #[test]
    fn the_counter_of_a_slot_has_the_least_number_that_lies_in_it() {
        for number in 0..10_000_u32 {
            let slot = of_key(&number.to_string());
            let tag = TAGS[usize::from(slot)];
            assert!(tag <= number && of_key(&tag.to_string()) == slot, "{number}");
        }
    }
}
