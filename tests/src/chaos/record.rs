//! `Record`: a line of a client's log. All times are of the machine's monotonic clock, in µs.

use std::fmt;
use std::str::FromStr;

/// The end of an attempt without a hold, or of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The end was as expected.
    Ok,
    /// The attempt was refused: lock held, queue full, or timeout.
    Refused,
    /// The hold had ended before.
    Lost,
    /// The end is unknown: a connection or server error.
    Unknown,
}

/// A reader's view of two registers that are only written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pair {
    /// Both registers were equal.
    Equal,
    /// The registers differed.
    Torn,
    /// A register refused the reader because of a stale token.
    Refused,
}

/// An event of attempt `attempt` of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The attempt requests `weight` of a lock with `limit`, and must have a response within
    /// `bound`.
    Invoked { at: i64, attempt: u32, lock: u32, weight: u32, limit: u32, bound: i64 },
    /// The attempt holds the lock, certainly until `until`. Permits have the token 0.
    Granted { at: i64, attempt: u32, token: u64, until: i64 },
    /// The attempt does not hold the lock.
    Failed { at: i64, attempt: u32, end: End },
    /// The future of the attempt was dropped.
    Dropped { at: i64, attempt: u32 },
    /// The attempt is about to release the lock; it was certain until `until`.
    Ending { at: i64, attempt: u32, until: i64, bound: i64 },
    /// The release has a response.
    Released { at: i64, attempt: u32, end: End },
    /// The attempt is about to downgrade its write to a read; it was certain until `until`.
    Reducing { at: i64, attempt: u32, until: i64, bound: i64 },
    /// The downgrade has a response. Unless it succeeded, the token is 0.
    Reduced { at: i64, attempt: u32, end: End, token: u64 },
    /// The attempt's fenced write was accepted or refused.
    Wrote { attempt: u32, accepted: bool },
    /// The attempt read a pair of registers, fenced and unfenced.
    Read { attempt: u32, fenced: Pair, plain: Pair },
    /// The weight held when the attempt entered: of clients with valid holds, and of all clients
    /// that had not left.
    Counted { attempt: u32, valid: u64, all: u64 },
}

impl Record {
    /// Returns the number of the attempt.
    pub(super) fn attempt(&self) -> u32 {
        match self {
            Self::Invoked { attempt, .. }
            | Self::Granted { attempt, .. }
            | Self::Failed { attempt, .. }
            | Self::Dropped { attempt, .. }
            | Self::Ending { attempt, .. }
            | Self::Released { attempt, .. }
            | Self::Reducing { attempt, .. }
            | Self::Reduced { attempt, .. }
            | Self::Wrote { attempt, .. }
            | Self::Read { attempt, .. }
            | Self::Counted { attempt, .. } => *attempt,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoked { at, attempt, lock, weight, limit, bound } => {
                write!(f, "i {at} {attempt} {lock} {weight} {limit} {bound}")
            }
            Self::Granted { at, attempt, token, until } => {
                write!(f, "g {at} {attempt} {token} {until}")
            }
            Self::Failed { at, attempt, end } => write!(f, "f {at} {attempt} {}", *end as u8),
            Self::Dropped { at, attempt } => write!(f, "d {at} {attempt}"),
            Self::Ending { at, attempt, until, bound } => {
                write!(f, "e {at} {attempt} {until} {bound}")
            }
            Self::Released { at, attempt, end } => write!(f, "r {at} {attempt} {}", *end as u8),
            Self::Reducing { at, attempt, until, bound } => {
                write!(f, "x {at} {attempt} {until} {bound}")
            }
            Self::Reduced { at, attempt, end, token } => {
                write!(f, "y {at} {attempt} {} {token}", *end as u8)
            }
            Self::Wrote { attempt, accepted } => {
                write!(f, "w {attempt} {}", u8::from(*accepted))
            }
            Self::Read { attempt, fenced, plain } => {
                write!(f, "p {attempt} {} {}", *fenced as u8, *plain as u8)
            }
            Self::Counted { attempt, valid, all } => write!(f, "c {attempt} {valid} {all}"),
        }
    }
}

impl FromStr for Record {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        parse(line).ok_or_else(|| format!("not a record: {line:?}"))
    }
}

fn parse(line: &str) -> Option<Record> {
    let (kind, numbers) = line.split_once(' ')?;
    let numbers: Vec<i64> =
        numbers.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let small = |number: i64| u32::try_from(number).ok();
    let large = |number: i64| u64::try_from(number).ok();
    let end = |number: i64| {
        [End::Ok, End::Refused, End::Lost, End::Unknown]
            .into_iter()
            .find(|end| i64::from(*end as u8) == number)
    };
    let pair = |number: i64| {
        [Pair::Equal, Pair::Torn, Pair::Refused]
            .into_iter()
            .find(|pair| i64::from(*pair as u8) == number)
    };
    Some(match (kind, numbers.as_slice()) {
        ("i", &[at, attempt, lock, weight, limit, bound]) => Record::Invoked {
            at,
            attempt: small(attempt)?,
            lock: small(lock)?,
            weight: small(weight)?,
            limit: small(limit)?,
            bound,
        },
        ("g", &[at, attempt, token, until]) => {
            Record::Granted { at, attempt: small(attempt)?, token: large(token)?, until }
        }
        ("f", &[at, attempt, how]) => {
            Record::Failed { at, attempt: small(attempt)?, end: end(how)? }
        }
        ("d", &[at, attempt]) => Record::Dropped { at, attempt: small(attempt)? },
        ("e", &[at, attempt, until, bound]) => {
            Record::Ending { at, attempt: small(attempt)?, until, bound }
        }
        ("r", &[at, attempt, how]) => {
            Record::Released { at, attempt: small(attempt)?, end: end(how)? }
        }
        ("x", &[at, attempt, until, bound]) => {
            Record::Reducing { at, attempt: small(attempt)?, until, bound }
        }
        ("y", &[at, attempt, how, token]) => {
            Record::Reduced { at, attempt: small(attempt)?, end: end(how)?, token: large(token)? }
        }
        ("w", &[attempt, accepted]) => {
            Record::Wrote { attempt: small(attempt)?, accepted: accepted == 1 }
        }
        ("p", &[attempt, fenced, plain]) => {
            Record::Read { attempt: small(attempt)?, fenced: pair(fenced)?, plain: pair(plain)? }
        }
        ("c", &[attempt, valid, all]) => {
            Record::Counted { attempt: small(attempt)?, valid: large(valid)?, all: large(all)? }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back_what_it_was() {
        let at = 123_456;
        let attempt = 7;
        let records = [
            Record::Invoked { at, attempt, lock: 3, weight: 2, limit: 1 << 30, bound: 2_000_000 },
            Record::Granted { at, attempt, token: (1 << 53) - 1, until: at + 5 },
            Record::Failed { at, attempt, end: End::Refused },
            Record::Dropped { at, attempt },
            Record::Ending { at, attempt, until: at - 1, bound: 4 },
            Record::Released { at, attempt, end: End::Lost },
            Record::Reducing { at, attempt, until: at + 9, bound: 4 },
            Record::Reduced { at, attempt, end: End::Unknown, token: 0 },
            Record::Wrote { attempt, accepted: true },
            Record::Read { attempt, fenced: Pair::Refused, plain: Pair::Torn },
            Record::Counted { attempt, valid: 3, all: 1 << 30 },
        ];
        for record in records {
            assert_eq!(record.to_string().parse(), Ok(record));
        }
        assert!("i 1 2".parse::<Record>().is_err());
    }
}
