//! `Ledger`: all guards of a run, each with the time when it was certainly valid, on the machine's
//! monotonic clock shared by all processes.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{KEEPERS, NAMES, QuorumOutcome};
use crate::chaos::clock::now_us;

/// What a buyer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuyerReport {
    /// A guard of this name, with this token, was valid at this time, in µs. The buyer draws the
    /// guard's id: a token that two guards share must not make them one.
    Valid { name: usize, id: u64, token: u64, at_us: i64 },
    /// A guard was lost before its release.
    Lost,
    /// A request was not granted in time, or reached too few primaries.
    Refused,
}

impl fmt::Display for BuyerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid { name, id, token, at_us } => {
                write!(f, "valid {name} {id} {token} {at_us}")
            }
            Self::Lost => f.write_str("lost"),
            Self::Refused => f.write_str("refused"),
        }
    }
}

impl FromStr for BuyerReport {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        fn number<T: FromStr>(word: &str) -> Result<T, ()> {
            word.parse().map_err(|_| ())
        }
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["valid", name, id, token, at_us] => Ok(Self::Valid {
                name: number(name)?,
                id: number(id)?,
                token: number(token)?,
                at_us: number(at_us)?,
            }),
            ["lost"] => Ok(Self::Lost),
            ["refused"] => Ok(Self::Refused),
            _ => Err(()),
        }
    }
}

/// The first and the last time when a guard was valid, as reported by its buyer.
#[derive(Debug, Clone, Copy)]
struct Guard {
    token: u64,
    from_us: i64,
    until_us: i64,
}

#[derive(Default)]
pub(super) struct Ledger {
    /// The guards of each name, by id.
    names: [Mutex<HashMap<u64, Guard>>; NAMES + KEEPERS],
    pub(super) guards: AtomicU64,
    lost: AtomicU64,
    refused: AtomicU64,
    pub(super) killed: AtomicU64,
    pub(super) is_over: AtomicBool,
}

impl Ledger {
    fn name(&self, name: usize) -> MutexGuard<'_, HashMap<u64, Guard>> {
        self.names[name].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, report: BuyerReport) {
        let count = |of: &AtomicU64| of.fetch_add(1, Ordering::Relaxed);
        match report {
            BuyerReport::Lost => drop(count(&self.lost)),
            BuyerReport::Refused => drop(count(&self.refused)),
            BuyerReport::Valid { name, id, token, at_us } => {
                let mut guards = self.name(name);
                let guard = guards.entry(id).or_insert_with(|| {
                    count(&self.guards);
                    Guard { token, from_us: at_us, until_us: at_us }
                });
                guard.until_us = guard.until_us.max(at_us);
            }
        }
    }

    /// Returns the longest time since `since_us` in which one of the first `names` names had no new
    /// guard.
    pub(super) fn longest_pause(&self, since_us: i64, names: usize) -> Duration {
        let longest = |name| {
            let guards = self.name(name);
            let granted = guards.values().map(|guard| guard.from_us);
            let mut times: Vec<i64> = granted.filter(|at| *at > since_us).collect();
            times.extend([since_us, now_us()]);
            times.sort_unstable();
            times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
        };
        let longest = (0..names).map(longest).max().unwrap_or_default();
        Duration::from_micros(longest.unsigned_abs())
    }

    /// Judges the guards in the order of their grants.
    pub(super) fn judge(&self) -> QuorumOutcome {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut outcome = QuorumOutcome {
            guards: count(&self.guards),
            lost: count(&self.lost),
            refused: count(&self.refused),
            killed: count(&self.killed),
            ..QuorumOutcome::default()
        };
        for name in 0..self.names.len() {
            let mut guards: Vec<Guard> = self.name(name).values().copied().collect();
            guards.sort_unstable_by_key(|guard| guard.from_us);
            let (mut until_us, mut token) = (i64::MIN, 0);
            for guard in guards {
                outcome.doubled += u64::from(guard.from_us <= until_us);
                outcome.fallen += u64::from(guard.token <= token);
                until_us = until_us.max(guard.until_us);
                token = token.max(guard.token);
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges reports of guards, each with the id, the token and the time. Returns how many guards
    /// were doubled, and how many tokens had fallen.
    fn judged(valid: &[(u64, u64, i64)]) -> (u64, u64) {
        let ledger = Ledger::default();
        for (id, token, at_us) in valid.iter().copied() {
            ledger.note(BuyerReport::Valid { name: 0, id, token, at_us });
        }
        let outcome = ledger.judge();
        (outcome.doubled, outcome.fallen)
    }

    #[test]
    fn guards_that_are_valid_at_one_time_and_tokens_that_fall_are_counted() {
        assert_eq!(judged(&[(8, 1, 10), (8, 1, 20), (9, 2, 21), (9, 2, 30)]), (0, 0));
        assert_eq!(judged(&[(8, 1, 10), (9, 2, 15), (8, 1, 20), (9, 2, 30)]), (1, 0));
        assert_eq!(judged(&[(8, 2, 10), (8, 2, 20), (9, 1, 21), (9, 1, 30)]), (0, 1));
    }

    #[test]
    fn two_guards_with_one_token_are_two_guards() {
        assert_eq!(judged(&[(8, 1, 10), (9, 1, 15), (8, 1, 20), (9, 1, 30)]), (1, 1));
        assert_eq!(judged(&[(8, 1, 10), (8, 1, 20), (9, 1, 21), (9, 1, 30)]), (0, 1));
    }

    #[test]
    fn a_line_is_read_as_it_was_told() {
        let valid = BuyerReport::Valid { name: 3, id: 5, token: 7, at_us: 11 };
        for report in [valid, BuyerReport::Lost, BuyerReport::Refused] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("valid 3".parse::<BuyerReport>(), Err(()));
    }
}
