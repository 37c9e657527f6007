//! Who asks for permits, and for how many: members are taken apart once, where they come in.

use std::fmt;
use std::sync::Arc;

use crate::demand::{Demand, number};
#[cfg(any(test, feature = "unstable-internals"))]
use crate::member::{Label, NodeId};

/// Begins each member of a queue of permits.
const MARKER: &str = "~2";
/// A node's identity in a member.
const NODE_BYTES: usize = 22;
/// One attempt: `~2<node>:<number>:<lease ms>:<demand>:<label>`. Ordered by its text, as in Redis.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    text: Arc<str>,
    number: u64,
    lease_ms: u64,
    demand: Demand,
}

impl Member {
    /// A new member of `node`.
    #[cfg(any(test, feature = "unstable-internals"))]
    pub fn new(node: &NodeId, number: u64, lease_ms: u64, demand: Demand, label: &Label) -> Self {
        let text = format!("{MARKER}{node}:{number}:{lease_ms}:{demand}:{}", label.as_str());
        Self { text: text.into(), number, lease_ms, demand }
    }

    /// Reads a member; nothing if the text is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (node, rest) = text.strip_prefix(MARKER)?.split_at_checked(NODE_BYTES)?;
        let mut parts = rest.strip_prefix(':')?.splitn(4, ':');
        let (of, lease_ms) = (number(parts.next()?)?, number(parts.next()?)?);
        let demand = Demand::parse(parts.next()?)?;
        // The label's colon has to be there; the label may be empty.
        parts.next()?;
        let is_ours = lease_ms > 0 && !node.contains(':');
        is_ours.then(|| Self { text: text.into(), number: of, lease_ms, demand })
    }

    /// The text in hash and sorted sets.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text of the node that it belongs to.
    pub fn node(&self) -> &str {
        &self.text[MARKER.len()..MARKER.len() + NODE_BYTES]
    }

    /// Counts up within the node; never reused.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The full lease, ms.
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// For people, still escaped.
    pub fn label(&self) -> &str {
        // After node and number, lease and demand.
        self.text.splitn(5, ':').last().unwrap_or_default()
    }

    /// What it asks for.
    pub fn demand(&self) -> Demand {
        self.demand
    }
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

#[cfg(test)]
mod tests {
    use super::super::ALL;
    use super::*;

    #[test]
    fn a_member_reads_back_what_it_was_made_of() {
        let node = NodeId::random();
        let three = Demand::permits(3, 10).unwrap();
        for demand in [Demand::READ, Demand::WRITE, three] {
            let member = Member::new(&node, 7, 30_000, demand, &Label::new("web:1"));
            assert_eq!(Member::parse(member.as_str()), Some(member.clone()));
            assert_eq!((member.node(), member.number()), (node.as_str(), 7));
            assert_eq!((member.lease_ms(), member.demand()), (30_000, demand));
        }
    }

    #[test]
    fn what_is_no_demand_is_no_member() {
        let member =
            |demand: &str| Member::parse(&format!("~2AAAAAAAAAAAAAAAAAAAAAA:1:5:{demand}:x"));
        for demand in ["r", "w", "1/1", "2/1073741823"] {
            assert!(member(demand).is_some(), "{demand}");
        }
        for demand in ["", "x", "0/1", "2/1", "1/1073741824", "+1/2", "1/2/3", "1", "/"] {
            assert!(member(demand).is_none(), "{demand}");
        }
    }

    #[test]
    fn what_is_no_member_is_recognised() {
        let broken = [
            "~2",
            "~1AAAAAAAAAAAAAAAAAAAAAA:1:5:w:x",
            "~2short:1:5:w:x",
            "~2AAAAAAAAAAAAAAAAAAAAA::1:5:w:x",
            "~2AAAAAAAAAAAAAAAAAAAAAA:1:0:w:x",
            "~2AAAAAAAAAAAAAAAAAAAAAA:-1:5:w:x",
            "~2AAAAAAAAAAAAAAAAAAAAAA:1:5:w",
        ];
        for text in broken {
            assert_eq!(Member::parse(text), None, "{text}");
        }
        assert!(Member::parse("~2AAAAAAAAAAAAAAAAAAAAAA:1:5:w:").is_some());
    }

    #[test]
    fn a_weight_is_at_least_one_and_at_most_its_limit() {
        assert_eq!(Demand::permits(0, 1), None);
        assert_eq!(Demand::permits(2, 1), None);
        assert_eq!(Demand::permits(1, ALL), None);
        assert!(Demand::permits(ALL - 1, ALL - 1).is_some());
    }
}
