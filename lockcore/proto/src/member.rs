//! Identities in a queue: a node is a process (one per `Locks` handle), and a member is an attempt
//! of a node to acquire a lock.

use std::fmt::{self, Write as _};
use std::num::NonZeroU8;
use std::sync::Arc;

use crate::demand::{Demand, number};
use crate::text::joined;

/// Implements equality, order and hash of a type by the text from `as_str`, because all other
/// fields follow from this text.
macro_rules! by_text {
    ($type:ty) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.as_str() == other.as_str()
            }
        }

        impl Eq for $type {}

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $type {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.as_str().cmp(other.as_str())
            }
        }

        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
                self.as_str().hash(hasher);
            }
        }
    };
}

pub(crate) use by_text;

/// The marker of the queue layout: the first two characters of each member's text. The digit is the
/// version of the protocol.
pub(crate) const MARKER: &str = "~2";

/// The first two characters of a member's stored text in a layout without reads and permits. Such a
/// text does not say whether the member demands a lock, a read or permits.
pub const PLAIN_MARKER: &str = "~1";

/// The prefix of the demand in a member's text, such as `w/8`, if the member is not served
/// [alone](Service::Alone). The batch limit follows, or 0 for [`Newest`](Service::Newest).
const SERVED: &str = "w/";

/// The number of low bits of a member id that count how often the attempt has lost its queue
/// position. The other bits are the attempt number: the time when the attempt began, in µs since
/// 2020.
pub(crate) const ROUND_BITS: u32 = 12;

const YEAR_2020_US: u64 = 1_577_836_800_000_000;

/// Returns the attempt number for an attempt that begins at `now_us`, in µs since the epoch. The
/// result is at most 2^50, a time in 2055, so that later attempts can have higher numbers even if
/// the clock is wrong by decades.
pub(crate) fn attempt_at(now_us: u64) -> u64 {
    now_us.saturating_sub(YEAR_2020_US).min(1 << 50)
}

/// The maximum number of members in a batch, which is one hold shared by consecutive waiters of a
/// node.
pub const MAX_BATCH: usize = 64;

/// Whether a member is granted the lock alone or together with other members of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// The member is granted the lock by itself.
    Alone,
    /// The member may be granted the lock in a batch with other members of the node, up to this
    /// many in total.
    Batch(NonZeroU8),
    /// The member is granted the lock by itself, and leaves the queue when a newer member of this
    /// kind is queued.
    Newest,
}

impl Service {
    /// Creates the service of a member that may share a batch with other waiters of its node, up to
    /// `limit` members in total. A limit of 0 or 1 gives [`Alone`](Self::Alone); a limit above
    /// [`MAX_BATCH`] is reduced to `MAX_BATCH`.
    pub fn in_batch(limit: usize) -> Self {
        let limit = NonZeroU8::new(limit.min(MAX_BATCH) as u8).filter(|limit| limit.get() > 1);
        limit.map_or(Self::Alone, Self::Batch)
    }

    /// Returns the suffix of the demand in a member's text, which says how the member is served:
    /// `/8` for a batch of at most 8 members, `/0` for [`Newest`](Self::Newest), nothing for
    /// [`Alone`](Self::Alone). The slash and the number are separate parts.
    fn text(self, digits: &mut itoa::Buffer) -> [&str; 2] {
        match self {
            Self::Alone => ["", ""],
            Self::Batch(limit) => ["/", digits.format(limit.get())],
            Self::Newest => ["/", "0"],
        }
    }

    /// Parses the number behind [`SERVED`] in a member's text: the batch limit, or 0 for
    /// [`Newest`](Self::Newest). Returns `None` for any other text.
    fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self::Newest);
        }
        let limit = number(text).filter(|limit| (2..=MAX_BATCH as u64).contains(limit))?;
        // Another spelling of the same limit, such as `02`, is refused, because members are
        // compared by their texts.
        let is_its_text = itoa::Buffer::new().format(limit) == text;
        is_its_text.then(|| NonZeroU8::new(limit as u8).map(Self::Batch))?
    }
}

/// The length of a node id in bytes.
pub(crate) const NODE_BYTES: usize = 22;

/// The maximum length of a label in bytes, before escaping.
pub(crate) const MAX_LABEL_BYTES: usize = 64;

/// The id of a process, as stored with its requests in Redis: 128 random bits, drawn for every new
/// `Locks`.
///
/// A `fork` or a restored snapshot of a virtual machine copies the id; such a process must build a
/// new `Locks`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// Returns the id as text: 22 characters, as contained in each member's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for NodeId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for NodeId {
    fn eq(&self, text: &str) -> bool {
        &*self.0 == text
    }
}

impl PartialEq<&str> for NodeId {
    fn eq(&self, text: &&str) -> bool {
        self == *text
    }
}

// Hidden, because lockcore exports the type: its users make no ids.
#[doc(hidden)]
impl From<&str> for NodeId {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

/// Encodes 128 bits as 22 characters of URL-safe base64.
#[doc(hidden)] // as above
impl From<u128> for NodeId {
    fn from(mut bits: u128) -> Self {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::with_capacity(NODE_BYTES);
        for _ in 0..NODE_BYTES {
            text.push(char::from(ALPHABET[(bits & 63) as usize]));
            bits >>= 6;
        }
        Self(Arc::from(text))
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

/// An attempt of a node to acquire a lock, as stored in Redis in the queue or as the holder:
/// `~2<node>:<number>:<lease ms>:<demand>:<label>`, or `~1<node>:<number>:<lease ms>:<label>` in a
/// layout that supports only exclusive locks. Members are ordered by this text, as in Redis.
#[derive(Clone)]
pub struct Member {
    text: Arc<str>,
    number: u64,
    lease_ms: u64,
    demand: Demand,
    service: Service,
}

impl Member {
    /// Creates a member that is served alone: no other member shares its hold in a batch.
    pub fn new(node: &NodeId, number: u64, lease_ms: u64, demand: Demand, label: &Label) -> Self {
        Self::served(node, number, lease_ms, (demand, Service::Alone), label)
    }

    /// Creates a member for an exclusive lock that may be granted in a batch of up to `batch_limit`
    /// members of the node. With a limit of 0 or 1 it is served alone; a limit above [`MAX_BATCH`]
    /// is reduced to `MAX_BATCH`.
    pub fn in_batch(
        node: &NodeId,
        number: u64,
        lease_ms: u64,
        batch_limit: usize,
        label: &Label,
    ) -> Self {
        Self::served(
            node,
            number,
            lease_ms,
            (Demand::EXCLUSIVE, Service::in_batch(batch_limit)),
            label,
        )
    }

    /// Creates a member for an exclusive lock. It waits only until a newer member of the same kind
    /// is queued.
    pub fn keeping_newest(node: &NodeId, number: u64, lease_ms: u64, label: &Label) -> Self {
        Self::served(node, number, lease_ms, (Demand::EXCLUSIVE, Service::Newest), label)
    }

    /// Creates a member with this demand and service. A member for a read or permits must be served
    /// alone.
    pub(crate) fn served(
        node: &NodeId,
        number: u64,
        lease_ms: u64,
        (demand, service): (Demand, Service),
        label: &Label,
    ) -> Self {
        debug_assert!(service == Service::Alone || demand == Demand::EXCLUSIVE, "{demand:?}");
        let mut digits = itoa::Buffer::new();
        let [slash, limit] = service.text(&mut digits);
        let asked = [&*demand.text(), slash, limit, ":"];
        let text = text(MARKER, node, (number, lease_ms), asked, label);
        Self { text, number, lease_ms, demand, service }
    }

    /// Creates an exclusive member for a layout without reads and permits. Its stored text does not
    /// say what it demands.
    pub fn plain(node: &NodeId, number: u64, lease_ms: u64, label: &Label) -> Self {
        let text = text(PLAIN_MARKER, node, (number, lease_ms), [""; 4], label);
        Self { text, number, lease_ms, demand: Demand::EXCLUSIVE, service: Service::Alone }
    }

    /// Parses a member's text from Redis. Returns `None` if the text is not a member of a node, but
    /// data of another program.
    pub fn parse(text: &str) -> Option<Self> {
        let (marker, rest) = text.split_at_checked(MARKER.len())?;
        let (node, rest) = rest.split_at_checked(NODE_BYTES)?;
        let (of, rest) = part(rest.strip_prefix(':')?)?;
        let (lease_ms, rest) = part(rest)?;
        let (demand, service) = match marker {
            MARKER => {
                let demand = part(rest)?.0;
                match demand.strip_prefix(SERVED) {
                    Some(service) => (Demand::EXCLUSIVE, Service::parse(service)?),
                    None => (Demand::parse(demand)?, Service::Alone),
                }
            }
            PLAIN_MARKER => (Demand::EXCLUSIVE, Service::Alone),
            _ => return None,
        };
        let lease_ms = number(lease_ms)?;
        let number = number(of)?;
        let is_ours = lease_ms > 0 && !node.bytes().any(|byte| byte == b':');
        is_ours.then(|| Self { text: Arc::from(text), number, lease_ms, demand, service })
    }

    /// Returns a copy of this member with another id. The copy is a new queue position of the same
    /// attempt, or another member of the same batch.
    pub fn renumbered(&self, number: u64) -> Self {
        let marker = &self.text[..MARKER.len()];
        let mut digits = itoa::Buffer::new();
        let text = joined(&[marker, self.node(), ":", digits.format(number), ":", self.tail()]);
        Self { text, number, ..*self }
    }

    /// Returns the maximum size of a batch that contains this member; 1 if the member is served
    /// alone.
    pub fn batch_limit(&self) -> usize {
        match self.service {
            Service::Batch(limit) => limit.get().into(),
            Service::Alone | Service::Newest => 1,
        }
    }

    /// Returns true if the member waits only until a newer member of the same kind is queued.
    pub fn keeps_newest(&self) -> bool {
        self.service == Service::Newest
    }

    /// Returns true if both members can be granted the lock in the same batch, because they differ
    /// only in their ids.
    pub fn shares_batch(&self, other: &Self) -> bool {
        let is_in_batch = matches!(self.service, Service::Batch(_));
        is_in_batch && self.node() == other.node() && self.tail() == other.tail()
    }

    /// Returns the part of the text behind the member id: lease, demand and label.
    fn tail(&self) -> &str {
        let from_number = &self.text[MARKER.len() + NODE_BYTES + 1..];
        from_number.split_once(':').map_or("", |(_, tail)| tail)
    }

    /// Returns the text as stored in Redis.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the id of the node that created this member.
    pub fn node(&self) -> &str {
        &self.text[MARKER.len()..MARKER.len() + NODE_BYTES]
    }

    /// Returns true if `node` created this member.
    pub fn is_of(&self, node: &NodeId) -> bool {
        self.node() == node.as_str()
    }

    /// Returns the member id. It is unique within the node: a later attempt has a higher id, and no
    /// id is reused.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns when the attempt began, in µs since the epoch, by the server's clock as estimated by
    /// the node. If two attempts of a node began in the same µs, the later one has the next µs.
    pub fn began_us(&self) -> u64 {
        YEAR_2020_US + (self.number >> ROUND_BITS)
    }

    /// Returns true if the attempt has lost its queue position before, so that its present position
    /// is younger than the attempt.
    pub fn was_requeued(&self) -> bool {
        !self.number.is_multiple_of(1 << ROUND_BITS)
    }

    /// Returns the full lease in milliseconds.
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// Returns how much of the name the member requests.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Returns the label for people to read, with control characters escaped.
    pub fn label(&self) -> &str {
        // The parts are: node, member id, lease, demand if the text has one, and label.
        let parts = if self.text.starts_with(MARKER) { 5 } else { 4 };
        self.text.splitn(parts, ':').last().unwrap_or_default()
    }
}

/// Joins the parts of a new member's text. The array contains the demand, the two parts from
/// [`Service::text`], and a colon. All four are empty for a layout whose texts have no demand,
/// because all its locks are exclusive.
fn text(
    marker: &str,
    node: &NodeId,
    (number, lease_ms): (u64, u64),
    [demand, slash, limit, colon]: [&str; 4],
    label: &Label,
) -> Arc<str> {
    let [mut number_digits, mut lease_digits] = [itoa::Buffer::new(); 2];
    let (number, lease_ms) = (number_digits.format(number), lease_digits.format(lease_ms));
    let (node, label) = (node.as_str(), &label.0);
    joined(&[marker, node, ":", number, ":", lease_ms, ":", demand, slash, limit, colon, label])
}

/// Splits the text at the first colon into the parts before and behind it; `None` if there is no
/// colon.
fn part(text: &str) -> Option<(&str, &str)> {
    let at = text.bytes().position(|byte| byte == b':')?;
    Some((&text[..at], &text[at + 1..]))
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({})", self.text)
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

by_text!(Member);

/// A holder or waiter as stored in Redis: a member of a node, or an entry of another program.
/// Parties are ordered by their text, as in Redis.
#[derive(Clone)]
pub enum Party {
    /// A member that this crate created, in this process or another.
    Ours(Member),
    /// The text that another program stored, such as a Redisson client.
    Foreign(Arc<str>),
}

impl Party {
    /// Returns the member, or `None` if the party belongs to another program.
    pub fn ours(&self) -> Option<&Member> {
        match self {
            Self::Ours(member) => Some(member),
            Self::Foreign(_) => None,
        }
    }

    /// Returns the weight that the party requests. A party of another program is assumed to request
    /// the lock exclusively.
    pub fn weight(&self) -> u64 {
        self.ours().map_or(Demand::EXCLUSIVE, Member::demand).weight()
    }

    /// Returns the text as stored in Redis.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Ours(member) => member.as_str(),
            Self::Foreign(text) => text,
        }
    }
}

impl From<&str> for Party {
    fn from(text: &str) -> Self {
        Member::parse(text).map_or_else(|| Self::Foreign(Arc::from(text)), Self::Ours)
    }
}

impl From<Member> for Party {
    fn from(member: Member) -> Self {
        Self::Ours(member)
    }
}

impl From<&Member> for Party {
    fn from(member: &Member) -> Self {
        Self::Ours(member.clone())
    }
}

impl PartialEq<Member> for Party {
    fn eq(&self, member: &Member) -> bool {
        self.ours() == Some(member)
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Party({})", self.as_str())
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

by_text!(Party);

/// A short text that shows people who waits or holds, such as a host name: at most 64 bytes before
/// escaping, with control characters escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(Arc<str>);

impl Label {
    /// Creates a label from any text: cuts the text at a character boundary after at most 64 bytes,
    /// and escapes control characters and `%`. Labels are only displayed, so no decision depends on
    /// them.
    pub fn new(text: &str) -> Self {
        let mut end = text.len().min(MAX_LABEL_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
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

    /// Returns the original text of an escaped label. A text that is not an escaped label is
    /// returned unchanged.
    pub fn unescape(escaped: &str) -> String {
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

    /// Returns the label with control characters escaped.
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
    fn a_member_reads_back_what_it_was_made_of() {
        let node = NodeId::from(7_u128);
        let label = Label::new("web-1:8080");
        let three = Demand::permits(3, 10).unwrap();
        let of = |demand| Member::new(&node, 7, 30_000, demand, &label);
        let alone = Member::plain(&node, 7, 30_000, &label);
        let newest = Member::keeping_newest(&node, 7, 30_000, &label);
        let members = [alone, of(Demand::READ), of(Demand::EXCLUSIVE), of(three), newest];
        let demands =
            [Demand::EXCLUSIVE, Demand::READ, Demand::EXCLUSIVE, three, Demand::EXCLUSIVE];
        for (member, demand) in members.into_iter().zip(demands) {
            let read = Member::parse(member.as_str()).unwrap();
            assert_eq!(read, member);
            assert_eq!((read.node(), read.number(), read.lease_ms()), (node.as_str(), 7, 30_000));
            assert_eq!((read.demand(), read.label()), (demand, "web-1:8080"));
            assert_eq!(read.keeps_newest(), member.as_str().contains(":w/0:"));
            assert!(read.is_of(&node) && !read.is_of(&NodeId::from(8_u128)));
            let next = read.renumbered(8);
            let expected = member.as_str().replace(":7:", ":8:");
            assert_eq!((next.as_str(), next.number()), (&*expected, 8));
        }
    }

    #[test]
    fn a_text_that_is_no_member_is_foreign() {
        let jvm = Party::from("5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41");
        assert_eq!(jvm.ours(), None);
        for broken in [
            "~1",
            "~2",
            "~1short:1:2:x",
            "~2short:1:5:w:x",
            "~1AAAAAAAAAAAAAAAAAAAAAA:1:0:x",
            "~2AAAAAAAAAAAAAAAAAAAAA::1:5:w:x",
            "~2AAAAAAAAAAAAAAAAAAAAAA:1:0:w:x",
            "~2AAAAAAAAAAAAAAAAAAAAAA:-1:5:w:x",
            "~2AAAAAAAAAAAAAAAAAAAAAA:1:5:w",
            "~3AAAAAAAAAAAAAAAAAAAAAA:1:5:w:x",
        ] {
            assert_eq!(Member::parse(broken), None, "{broken}");
            assert_eq!(Party::from(broken).as_str(), broken);
        }
        assert!(Member::parse("~2AAAAAAAAAAAAAAAAAAAAAA:1:5:w:").is_some());
    }

    #[test]
    fn a_text_without_a_demand_is_no_member() {
        let member =
            |demand: &str| Member::parse(&format!("~2AAAAAAAAAAAAAAAAAAAAAA:1:5:{demand}:x"));
        for demand in ["r", "w", "w/0", "w/2", "w/64", "1/1", "2/1073741823"] {
            assert!(member(demand).is_some(), "{demand}");
        }
        for demand in ["", "x", "0/1", "2/1", "1/1073741824", "+1/2", "1/2/3", "1", "/"] {
            assert!(member(demand).is_none(), "{demand}");
        }
        for demand in ["w/", "w/00", "w/1", "w/65", "w/02", "w/+2", "w/2/3", "r/2"] {
            assert!(member(demand).is_none(), "{demand}");
        }
    }

    #[test]
    fn members_share_a_batch_if_only_their_numbers_differ_and_they_are_not_alone() {
        let (node, other) = (NodeId::from(7_u128), NodeId::from(8_u128));
        let member = |node, number, lease_ms, limit, label| {
            Member::in_batch(node, number, lease_ms, limit, &Label::new(label))
        };
        let first = member(&node, 1, 5, 8, "a");
        assert_eq!(Member::parse(first.as_str()).map(|read| read.batch_limit()), Some(8));
        assert_eq!((first.demand(), first.label()), (Demand::EXCLUSIVE, "a"));
        assert!(first.shares_batch(&member(&node, 1 << 40, 5, 8, "a")));
        for other in [
            member(&other, 2, 5, 8, "a"),
            member(&node, 2, 6, 8, "a"),
            member(&node, 2, 5, 9, "a"),
            member(&node, 2, 5, 8, "b"),
            member(&node, 2, 5, 1, "a"),
        ] {
            assert!(!first.shares_batch(&other) && !other.shares_batch(&first), "{other}");
        }
        let alone = member(&node, 1, 5, 1, "a");
        assert!(!alone.shares_batch(&member(&node, 2, 5, 1, "a")));
        assert_eq!(member(&node, 1, 5, 100, "a").batch_limit(), MAX_BATCH);
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
    fn a_node_has_all_its_bits_in_its_text() {
        let nodes = (0..128).map(|bit| NodeId::from(1_u128 << bit));
        let texts: std::collections::HashSet<_> =
            nodes.chain([NodeId::from(0_u128)]).map(|node| node.as_str().to_owned()).collect();
        assert_eq!(texts.len(), 129);
        assert!(texts.iter().all(|text| text.len() == NODE_BYTES));
    }
}
