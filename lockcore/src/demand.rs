//! How much of a resource is asked for.

use std::fmt;

/// What all permits of a resource weigh together where reads and writes share it. Every sum of
/// weights stays exact in Lua.
pub const ALL: u32 = 1 << 30;

/// Says of the other demands how to come by them beside JVMs.
pub(crate) const NOT_WITH_PEERS: &str = "reads, permits and downgrades are not in the layout that JVMs share: \
    use a second Locks, built without redisson_peers, under other names";

/// How much of a resource a member asks for, and how much may then be in use: it is granted where
/// `used + weight <= limit`. A read, a write and a permit differ in nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Demand {
    weight: u32,
    limit: u32,
}

impl Demand {
    /// One of more than there can be: any number at a time.
    pub const READ: Self = Self { weight: 1, limit: ALL };
    /// All there is: beside no other.
    pub const ALONE: Self = Self { weight: ALL, limit: ALL };

    /// So many of `limit` permits; nothing unless 1 <= weight <= limit < 2^30.
    pub fn permits(weight: u32, limit: u32) -> Option<Self> {
        (1 <= weight && weight <= limit && limit < ALL).then_some(Self { weight, limit })
    }

    /// What it takes.
    pub fn weight(self) -> u64 {
        self.weight.into()
    }

    /// How much may be in use with it.
    pub fn limit(self) -> u64 {
        self.limit.into()
    }

    /// Whether it fits beside what is in use.
    pub fn fits(self, used: u64) -> bool {
        used + self.weight() <= self.limit()
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "r" => Some(Self::READ),
            "w" => Some(Self::ALONE),
            _ => {
                let (weight, limit) = text.split_once('/')?;
                Self::permits(number(weight)?.try_into().ok()?, number(limit)?.try_into().ok()?)
            }
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::READ => f.write_str("r"),
            Self::ALONE => f.write_str("w"),
            Self { weight, limit } => write!(f, "{weight}/{limit}"),
        }
    }
}

/// Digits and nothing else: a sign is none.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_at_least_one_and_at_most_its_limit() {
        assert_eq!(Demand::permits(0, 1), None);
        assert_eq!(Demand::permits(2, 1), None);
        assert_eq!(Demand::permits(1, ALL), None);
        assert!(Demand::permits(ALL - 1, ALL - 1).is_some());
    }
}
