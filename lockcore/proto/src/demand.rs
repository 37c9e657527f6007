//! Demands: whether a request acquires a name exclusively, as a reader, or as a number of permits.

use std::borrow::Cow;
use std::fmt;

use crate::error::ConfigError;

/// The weight of a demand for the whole name, 2^30. Sums of such weights are still exact in Lua,
/// where numbers are doubles.
pub const ALL: u32 = 1 << 30;

/// How much of a name a request acquires: everything, a read, or permits. All demands for a name
/// share one queue, and each has a weight and a limit. The demand at the queue's head is granted as
/// soon as its weight plus the weights of all present holds is at most its limit.
///
/// | demand | weight | limit | beside it |
/// |---|---|---|---|
/// | [`EXCLUSIVE`](Self::EXCLUSIVE), by `Locks::lock` | 2^30 | 2^30 | nothing |
/// | [`READ`](Self::READ), by `Locks::read` | 1 | 2^30 | reads, and permits |
/// | [`permits(n, limit)`](Self::permits), by `Locks::permit` | n | limit | reads and permits, up to `limit` in total |
///
/// ```
/// # use lockcore_proto as lockcore;
/// use lockcore::Demand;
///
/// // Two of ten permits, beside other holders with at most eight in total.
/// let two = Demand::permits(2, 10)?;
/// assert!(two.fits(8) && !two.fits(9));
/// # Ok::<_, lockcore::ConfigError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Demand {
    weight: u32,
    limit: u32,
}

impl Demand {
    /// A demand for the whole name, as an exclusive lock: nothing else is granted at the same time.
    pub const EXCLUSIVE: Self = Self { weight: ALL, limit: ALL };
    /// A demand to read: other reads and permits may be granted at the same time, but no lock.
    pub const READ: Self = Self { weight: 1, limit: ALL };

    /// Creates a demand for `count` permits of a name with `limit` permits in total.
    ///
    /// # Errors
    /// If `count` is 0 or above `limit`, or `limit` is 2^30 or more.
    pub fn permits(count: u32, limit: u32) -> Result<Self, ConfigError> {
        if 1 <= count && count <= limit && limit < ALL {
            return Ok(Self { weight: count, limit });
        }
        let value = format!("{count} of {limit}");
        let range = "a count from 1 to the limit, and a limit below 2^30";
        Err(ConfigError::new("permits", value, range))
    }

    /// Returns the weight of the demand: the number of permits, 1 for a read, 2^30 for a lock.
    pub fn weight(self) -> u64 {
        self.weight.into()
    }

    /// Returns the maximum total weight of all holds after the grant of this demand, with its own
    /// weight included.
    pub fn limit(self) -> u64 {
        self.limit.into()
    }

    /// Returns true if this is a demand for permits.
    pub fn is_permits(self) -> bool {
        self.limit < ALL
    }

    /// Returns true if a hold of this demand can serve a request for `other`: a lock serves a lock
    /// or a read, and a read serves a read. Permits serve no other request, because each permit is
    /// counted.
    pub fn covers(self, other: Self) -> bool {
        !self.is_permits() && (self == other || self == Self::EXCLUSIVE && other == Self::READ)
    }

    /// Returns true if the demand can be granted while holds with total weight `used` exist.
    pub fn fits(self, used: u64) -> bool {
        used + self.weight() <= self.limit()
    }

    /// Parses the demand part of a member's text, such as `w` for a lock, `r` for a read, or `2/10`
    /// for two of ten permits. Returns `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "r" => Some(Self::READ),
            "w" => Some(Self::EXCLUSIVE),
            _ => {
                let (weight, limit) = text.split_once('/')?;
                let weight = number(weight)?;
                let limit = number(limit)?;
                Self::permits(weight.try_into().ok()?, limit.try_into().ok()?).ok()
            }
        }
    }

    /// Returns the demand part of a member's text: `r` for a read, `w` for a lock,
    /// `<weight>/<limit>` for permits.
    pub(crate) fn text(self) -> Cow<'static, str> {
        match self {
            Self::READ => "r".into(),
            Self::EXCLUSIVE => "w".into(),
            Self { weight, limit } => format!("{weight}/{limit}").into(),
        }
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::READ => f.write_str("a read"),
            Self::EXCLUSIVE => f.write_str("a lock"),
            Self { weight, limit } => write!(f, "{weight} of {limit} permits"),
        }
    }
}

/// Parses a decimal number. Returns `None` if the text contains a sign or any other character, or
/// if the number exceeds 64 bits.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_at_least_one_and_at_most_their_limit() {
        for (count, limit) in [(0, 1), (2, 1), (1, ALL)] {
            let said = Demand::permits(count, limit).unwrap_err().to_string();
            assert!(said.contains(&format!("permits is {count} of {limit}")), "{said}");
        }
        assert!(Demand::permits(ALL - 1, ALL - 1).is_ok());
    }

    #[test]
    fn a_hold_does_for_what_it_excludes_or_shares_and_permits_do_for_none() {
        let three = Demand::permits(3, 3).unwrap();
        let all = [Demand::EXCLUSIVE, Demand::READ, three];
        let covered = |held: Demand| all.map(|other| held.covers(other));
        assert_eq!(covered(Demand::EXCLUSIVE), [true, true, false]);
        assert_eq!(covered(Demand::READ), [false, true, false]);
        assert_eq!(covered(three), [false; 3]);
    }
}
