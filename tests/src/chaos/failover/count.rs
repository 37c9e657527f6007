//! What a failover cost, counted from the holds that were seen.

use std::collections::HashMap;
use std::time::Duration;

use super::load::{Hold, KEYS, Seen};

/// Two that ask at nearly the same time may reach the server the other way round.
const SAME_TIME: Duration = Duration::from_millis(20);

/// What one failover cost.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Cost {
    /// By name, in the order of [`NAMES`].
    pub(super) values: HashMap<&'static str, u64>,
}

/// All that is counted.
pub(super) const NAMES: [&str; 11] = [
    "grants",
    "overlaps",
    "overlap_us",
    "lost",
    "lost_fenced",
    "stopped",
    "fallen",
    "silent_ms",
    "places_lost",
    "disorder",
    "refused",
];

pub(super) fn cost(seen: Seen, fault: Duration) -> Cost {
    let mut overlaps = (0, 0);
    let (mut fallen, mut disorder) = (0, 0);
    for key in 0..KEYS {
        let mut holds: Vec<Hold> =
            seen.holds.iter().filter(|hold| hold.key == key).copied().collect();
        holds.sort_by_key(|hold| hold.begin);
        let (number, longest) = overlapping(&holds);
        overlaps = (overlaps.0 + number, overlaps.1.max(longest));
        fallen += holds.windows(2).filter(|pair| pair[1].token <= pair[0].token).count() as u64;
        disorder += out_of_order(&holds);
    }
    let values = [
        seen.holds.len() as u64,
        overlaps.0,
        overlaps.1,
        seen.lost,
        seen.lost_fenced,
        seen.stopped,
        fallen,
        silence(&seen.holds, fault),
        seen.places_lost,
        disorder as u64,
        seen.refused,
    ];
    Cost { values: NAMES.into_iter().zip(values).collect() }
}

/// How often a hold began before an earlier one had ended, and the longest such time in µs.
fn overlapping(holds: &[Hold]) -> (u64, u64) {
    let (mut number, mut longest, mut until) = (0, 0, Duration::ZERO);
    for hold in holds {
        if hold.begin < until {
            number += 1;
            longest = longest.max((until.min(hold.end) - hold.begin).as_micros() as u64);
        }
        until = until.max(hold.end);
    }
    (number, longest)
}

/// How many were granted although another had asked before and was granted later.
fn out_of_order(holds: &[Hold]) -> usize {
    let mut earliest = Duration::MAX;
    let mut disorder = 0;
    for hold in holds.iter().rev() {
        if earliest.saturating_add(SAME_TIME) < hold.asked {
            disorder += 1;
        }
        earliest = earliest.min(hold.asked);
    }
    disorder
}

/// The longest time after the fault in which nothing was granted, in ms.
fn silence(holds: &[Hold], fault: Duration) -> u64 {
    let mut begins: Vec<Duration> = holds.iter().map(|hold| hold.begin).collect();
    begins.sort_unstable();
    let after = begins.windows(2).filter(|pair| pair[1] > fault);
    after.map(|pair| (pair[1] - pair[0]).as_millis() as u64).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(asked: u64, begin: u64, end: u64, token: u64) -> Hold {
        let ms = Duration::from_millis;
        Hold { key: 0, token, asked: ms(asked), begin: ms(begin), end: ms(end) }
    }

    #[test]
    fn overlaps_are_counted_with_their_length() {
        let holds = [hold(0, 0, 10, 1), hold(0, 8, 20, 2), hold(0, 20, 30, 3), hold(0, 25, 26, 4)];
        assert_eq!(overlapping(&holds), (2, 2_000));
    }

    #[test]
    fn one_who_asked_long_before_and_comes_later_was_overtaken() {
        let holds = [hold(100, 110, 111, 1), hold(0, 120, 121, 2), hold(90, 130, 131, 3)];
        assert_eq!(out_of_order(&holds), 1);
    }

    #[test]
    fn the_longest_silence_after_the_fault_is_told() {
        let holds = [hold(0, 0, 1, 1), hold(0, 500, 501, 2), hold(0, 600, 601, 3)];
        let ms = Duration::from_millis;
        assert_eq!(silence(&holds, ms(100)), 500);
        assert_eq!(silence(&holds, ms(550)), 100);
    }
}
