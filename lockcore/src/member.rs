//! What is in a queue: nodes (one `Locks` handle each) and members (one acquisition attempt
//! each).

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::demand::Demand;

/// Marks a member as ours, and says which version of the protocol it speaks.
pub(crate) const MARKER: &str = "~1";

/// Marks a member that asks for a part of a resource: a read, a write or permits.
pub(crate) const SHARED_MARKER: &str = "~2";

/// The length of a node's text.
const NODE_BYTES: usize = 22;

/// The longest label, in bytes.
pub(crate) const MAX_LABEL_BYTES: usize = 64;

/// One process as a lock sees it: 128 random bits, made anew for every [`Locks`](crate::Locks).
///
/// A `fork` or a restored snapshot of a virtual machine copies it; such a process must build a new
/// `Locks`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// 128 bits from the operating system's generator, as 22 characters of URL-safe base64.
    pub(crate) fn random() -> Self {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut bits: u128 = rand::random();
        let mut text = String::with_capacity(22);
        for _ in 0..22 {
            text.push(char::from(ALPHABET[(bits & 63) as usize]));
            bits >>= 6;
        }
        Self(Arc::from(text))
    }

    /// The node with this text.
    pub(crate) fn of(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The node's text, as it stands in its members.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({})", self.0)
    }
}

/// One entry of a queue or the holder of a lock: `~1<node>:<number>:<lease ms>:<label>` if it is
/// ours, anything else if it is a JVM's.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member(Arc<str>);

/// What one of our own members says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ours<'a> {
    /// The text of the node that it belongs to.
    pub node: &'a str,
    /// Counts up within the node; never reused.
    pub number: u64,
    /// The full lease, ms.
    pub lease_ms: u64,
    /// For people, still escaped.
    pub label: &'a str,
}

impl Member {
    /// A new member of ours.
    pub fn new(node: &NodeId, number: u64, lease_ms: u64, label: &Label) -> Self {
        // More than any usual member has, so that the text need not grow: this is on every
        // acquire's way.
        let mut text = String::with_capacity(128);
        let _ = write!(text, "{MARKER}{node}:{number}:{lease_ms}:{}", label.0);
        Self(Arc::from(text))
    }

    /// A new member of ours that asks for a part of a resource.
    pub(crate) fn sharing(
        node: &NodeId,
        number: u64,
        lease_ms: u64,
        demand: Demand,
        label: &Label,
    ) -> Self {
        let label = &label.0;
        Self(Arc::from(format!("{SHARED_MARKER}{node}:{number}:{lease_ms}:{demand}:{label}")))
    }

    /// The same attempt of ours under another number.
    pub(crate) fn renumbered(&self, number: u64) -> Self {
        let Some((marker, ours)) = self.parts() else { return self.clone() };
        let Ours { node, lease_ms, label, .. } = ours;
        Self(Arc::from(format!("{marker}{node}:{number}:{lease_ms}:{label}")))
    }

    /// The text in list, sorted set and hash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes the member apart if it is one of ours.
    pub fn ours(&self) -> Option<Ours<'_>> {
        self.parts().filter(|(marker, _)| *marker == MARKER).map(|(_, ours)| ours)
    }

    /// The same for members of both kinds, with their marker. One that asks for a part of a
    /// resource has its demand in front of its label.
    pub fn parts(&self) -> Option<(&str, Ours<'_>)> {
        // Byte by byte: every answer is taken apart like this, some of them twice.
        let (marker, rest) = self.0.split_at_checked(MARKER.len())?;
        let (node, rest) = rest.split_at_checked(NODE_BYTES)?;
        let (number, rest) = part(rest.strip_prefix(':')?)?;
        let (lease_ms, label) = part(rest)?;
        let (number, lease_ms) = (number.parse().ok()?, lease_ms.parse().ok()?);
        let is_ours = lease_ms > 0 && !node.bytes().any(|byte| byte == b':');
        let is_ours = is_ours && (marker == MARKER || marker == SHARED_MARKER);
        is_ours.then_some((marker, Ours { node, number, lease_ms, label }))
    }

    /// Whether `node` made this member.
    pub fn is_of(&self, node: &NodeId) -> bool {
        self.ours().is_some_and(|ours| ours.node == node.as_str())
    }
}

/// Up to the next colon, and what follows it.
fn part(text: &str) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == b':')?;
    Some((&text[..at], &text[at + 1..]))
}

impl From<&str> for Member {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({})", self.0)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A short text for people that goes with a member: at most 64 bytes, escaped where control
/// characters would stand in a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(Arc<str>);

impl Label {
    /// Cuts what is too long, at a whole character, and escapes control characters: a label is no
    /// identity, so nothing depends on it.
    pub fn new(text: &str) -> Self {
        let end = (0..=MAX_LABEL_BYTES).rfind(|end| text.is_char_boundary(*end));
        let text = &text[..end.expect("0 is a boundary")];
        let mut label = String::with_capacity(text.len());
        for c in text.chars() {
            if c.is_control() || c == '%' {
                let mut utf8 = [0; 4];
                for byte in c.encode_utf8(&mut utf8).bytes() {
                    let _ = write!(label, "%{byte:02X}");
                }
            } else {
                label.push(c);
            }
        }
        Self(Arc::from(label))
    }

    /// The text that was escaped. What no label of ours could be stays as it is.
    pub(crate) fn unescape(escaped: &str) -> String {
        let mut bytes = Vec::with_capacity(escaped.len());
        let mut rest = escaped.as_bytes();
        while let [byte, after @ ..] = rest {
            let encoded = match (byte, after) {
                (b'%', [high, low, ..]) => hex_digit(*high).zip(hex_digit(*low)),
                _ => None,
            };
            let (decoded, after) = match encoded {
                Some((high, low)) => (high * 16 + low, &after[2..]),
                None => (*byte, after),
            };
            bytes.push(decoded);
            rest = after;
        }
        String::from_utf8(bytes).unwrap_or_else(|_| escaped.to_owned())
    }

    /// `host:pid`.
    pub fn of_this_process() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| std::env::var("HOSTNAME").ok())
            .unwrap_or_else(|| "unknown".into());
        Self::new(&format!("{}:{}", host.trim(), std::process::id()))
    }

    /// The escaped text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_ours_reads_back_what_it_was_made_of() {
        let node = NodeId::random();
        let member = Member::new(&node, 7, 30_000, &Label::new("web-1:8080"));
        let ours = member.ours().unwrap();
        assert_eq!((ours.node, ours.number, ours.lease_ms), (node.as_str(), 7, 30_000));
        assert_eq!(ours.label, "web-1:8080");
        assert!(member.is_of(&node) && !member.is_of(&NodeId::random()));
    }

    #[test]
    fn what_is_not_ours_is_foreign() {
        let jvm = Member::from("5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41");
        assert_eq!(jvm.ours(), None);
        for broken in ["~1", "~1short:1:2:x", "~1AAAAAAAAAAAAAAAAAAAAAA:1:0:x"] {
            assert_eq!(Member::from(broken).ours(), None);
        }
    }

    #[test]
    fn a_label_is_cut_at_a_whole_character_and_escaped() {
        assert_eq!(Label::new("a\nb%").as_str(), "a%0Ab%25");
        assert_eq!(Label::new(&"é".repeat(40)).as_str(), "é".repeat(32));
        assert_eq!(Label::new(&format!("x{}", "é".repeat(40))).as_str().len(), 63);
        assert_eq!(Label::new(&"%".repeat(70)).as_str(), "%25".repeat(64));
    }

    #[test]
    fn a_label_reads_back_as_it_was_given_and_what_is_no_label_stays_itself() {
        for text in ["", "100% sure", "%25", "a\nb", "ü%\u{85}ö"] {
            assert_eq!(Label::unescape(Label::new(text).as_str()), text);
        }
        for broken in ["%", "%2", "50%x1", "%FF", "%+1"] {
            assert_eq!(Label::unescape(broken), broken);
        }
    }

    #[test]
    fn node_ids_do_not_repeat() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| NodeId::random()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
