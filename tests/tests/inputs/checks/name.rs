//! Names of locks: no two share a key, none leaves its namespace or its slot, bad ones are refused.

use std::fmt::Display;

use lockcore::{KeyError, LockErrorKind, LockKey, NodeId};
use proto::layout::{Layout, QUEUE};
use proto::wire::{Call, Script, TokenFloors, Wire};
use proto::{Command, Label, Leaving, LockName, Member, StoreError, Topology};
use redisson::REDISSON;

use super::source::Source;

const NAMESPACES: [Option<&str>; 4] = [None, Some("shop"), Some("sho"), Some("shop2")];

pub(crate) fn check(bytes: &[u8]) {
    let mut source = Source::new(bytes);
    let spaces = [NAMESPACES[source.below(4)], NAMESPACES[source.below(4)]];
    let label = Label::new(&source.text(4));
    let member = Member::plain(&NodeId::from(7_u128), u64::from(source.byte()), 30_000, &label);
    let one = source.text(6);
    let other = relative(&one, &mut source);
    let locks = [(spaces[0], &one), (spaces[1], &other)].map(|(space, name)| {
        let key = accepted(name)?;
        let lock = named(&key, space);
        stays_inside(&lock, space);
        for keys in [queue_keys(&lock), redisson_keys(&lock, &member)] {
            all_different(&keys);
            one_slot(&keys);
        }
        Some(((space, name.clone()), lock))
    });
    if let [Some((this, here)), Some((that, there))] = locks {
        let are_shared = |keys: &dyn Fn(&LockName) -> Vec<Vec<u8>>| {
            let [these, those] = [&here, &there].map(keys);
            these.iter().any(|key| those.contains(key))
        };
        let shared = are_shared(&queue_keys);
        assert_eq!(are_shared(&|lock| redisson_keys(lock, &member)), shared);
        // A name may spell out a namespace if there is none: that is the only way in.
        let spelled = |(space, name): &(Option<&str>, String)| match space {
            Some(space) => format!("{space}:{name}"),
            None => name.clone(),
        };
        let same = this == that || this.0 != that.0 && spelled(&this) == spelled(&that);
        assert_eq!(shared, same, "{this:?} and {that:?}");
        assert!(this.0.is_none() || that.0.is_none() || (this == that) == same);
    }
    if let Ok(key) = LockKey::foreign(&one) {
        assert_eq!(key.as_str(), one, "a foreign name is taken as it is");
        redisson_keys(&LockName::from(key.as_str()), &member);
    }
}

/// A name that is likely to be confused with `name`: encoded, decoded, tagged, cut, or the same.
fn relative(name: &str, source: &mut Source<'_>) -> String {
    match source.below(8) {
        0 => name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D"),
        1 => name.replace("%7B", "{").replace("%7D", "}").replace("%25", "%"),
        2 => format!("{{{name}}}"),
        3 if name.len().is_multiple_of(2) => format!("redisson_lock_queue:{{{name}}}"),
        3 => format!("lock:{{{name}}}:queue"),
        4 => name.chars().skip(1).collect(),
        5 => format!("shop:{name}"),
        6 => name.to_owned(),
        _ => source.text(6),
    }
}

/// The key, if the name is a good one; the refusal follows a reading of the rules.
fn accepted(name: &str) -> Option<LockKey> {
    let control =
        name.char_indices().find(|(_, c)| (*c as u32) < 32 || (0x7f..0xa0).contains(&(*c as u32)));
    let expected = match (name.len(), control) {
        (0, _) => Err(KeyError::Empty),
        (bytes, _) if bytes > LockKey::MAX_BYTES => Err(KeyError::TooLong { bytes }),
        (_, Some((at, _))) => Err(KeyError::ControlCharacter { at }),
        (_, None) => Ok(()),
    };
    let found = LockKey::new(name);
    assert_eq!(found.as_ref().map(drop), expected.as_ref().map(drop), "{name:?}");
    found.ok()
}

/// The full name, as unit tests of `lockcore::key` have it.
fn named(key: &LockKey, space: Option<&str>) -> LockName {
    match space {
        Some(space) => LockName::from(&*format!("{space}:{}", key.as_str())),
        None => LockName::from(key.as_str()),
    }
}

fn stays_inside(lock: &LockName, space: Option<&str>) {
    let name = lock.as_str();
    let prefix = space.map_or(String::new(), |space| format!("{space}:"));
    assert!(name.starts_with(&prefix) && name.len() > prefix.len(), "{name:?} in {space:?}");
    assert!(!name.contains(['{', '}']), "{name:?}");
}

fn all_different(keys: &[Vec<u8>]) {
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[..at].contains(key), "{} twice", key.escape_ascii());
    }
}

fn one_slot(keys: &[Vec<u8>]) {
    let expected = slot(&keys[0]);
    for key in keys {
        assert_eq!(slot(key), expected, "{} and {}", key.escape_ascii(), keys[0].escape_ascii());
    }
}

/// The call of a script: its keys, and the other arguments.
struct Written {
    keys: usize,
    arguments: Vec<String>,
}

impl Call for Written {
    fn begin(_script: &'static Script, keys: usize) -> Self {
        Self { keys, arguments: Vec::new() }
    }

    fn text(&mut self, text: &str) -> &mut dyn Call {
        self.display(&text)
    }

    fn number(&mut self, number: u64) -> &mut dyn Call {
        self.display(&number)
    }

    fn display(&mut self, argument: &dyn Display) -> &mut dyn Call {
        self.arguments.push(argument.to_string());
        self
    }
}

/// The keys that a command is written with.
fn keys(lock: &LockName, peers: bool, command: Command) -> Vec<Vec<u8>> {
    let of_error = |said: &str, _: &dyn Layout| StoreError::refused(LockErrorKind::Protocol, said);
    let wire = Wire {
        node: NodeId::from(7_u128),
        prefix: "lockcore".into(),
        layout: if peers { REDISSON } else { QUEUE },
        topology: Topology::Single,
        of_error,
    };
    let written = wire.write(&[(lock, &command)], TokenFloors::default());
    let Written { keys, arguments } = written.expect("every layout has it");
    arguments.into_iter().take(keys).map(String::into_bytes).collect()
}

/// The lock key as it is written to a server, and the names that the scripts make of it.
fn queue_keys(lock: &LockName) -> Vec<Vec<u8>> {
    let written = keys(lock, false, Command::INSPECT);
    let [lock_key, counter] = &written[..] else { panic!("{written:?}") };
    assert_eq!(*lock_key, format!("lock:{{{}}}", lock.as_str()).into_bytes());
    assert_eq!(counter, b"lock:tokens");
    let others = ["queue", "holds", "reduced", "gone", "guard", "patience:x", "passed:x"];
    let others = others.map(|which| [&lock_key[..], b":", which.as_bytes()].concat());
    [lock_key.clone()].into_iter().chain(others).collect()
}

/// All keys of the lock where JVMs share its queue, with the tombstone of the member.
fn redisson_keys(lock: &LockName, member: &Member) -> Vec<Vec<u8>> {
    let leaving = vec![Leaving::new(member.clone(), true)];
    let written = keys(lock, true, Command::Leave { leaving });
    assert_eq!((written.len(), &*written[0]), (8, lock.as_str().as_bytes()));
    written
}

/// The slot of a key, by Redis Cluster's specification.
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inner = &key[open + 1..];
        let close = inner.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &inner[..close])
    });
    crc16(tag.unwrap_or(key)) % 16_384
}

/// The CRC-16/XMODEM of the bytes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Checks that the check's own ruler is right.
pub(crate) fn check_slots() {
    // The examples of the specification.
    assert_eq!(crc16(b"123456789"), 0x31c3);
    assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
    assert_eq!(slot(b"foo{{bar}}zap"), crc16(b"{bar") % 16_384);
    assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
}
