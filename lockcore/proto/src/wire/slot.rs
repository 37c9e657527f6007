//! Slots of a Redis Cluster.

/// The number of slots in every Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// Returns a key's slot: a hash of the text between the first brace and the next closing brace.
/// Without such a text, the whole key is hashed.
pub fn of_key(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16(hashed.as_bytes()) % SLOTS
}

/// Returns the checksum CRC-16/XMODEM, as Redis Cluster defines it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Examples from the Cluster specification.
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
}
