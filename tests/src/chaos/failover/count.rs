//! The cost of a failover, computed from the holds of the clients.

use std::collections::HashMap;
use std::time::Duration;

use super::load::{Demand, Hold, NAMES, PERMITS, Seen};

/// Requests closer together than this may reach the server in reverse order.
const SAME_TIME: Duration = Duration::from_millis(20);

/// The figures that show the cost of one failover.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Cost {
    /// The values by name, in the order of [`FIGURES`].
    pub(super) values: HashMap<&'static str, u64>,
}

/// The names of all figures.
pub(super) const FIGURES: [&str; 16] = [
    "grants",
    "overlaps",
    "overlap_us",
    "lost",
    "lost_fenced",
    "stopped",
    "reads_stopped",
    "fallen",
    "silent_ms",
    "silent_name_ms",
    "regained_ms",
    "still_names",
    "positions_lost",
    "disorder",
    "refused",
    "timed_out",
];

/// Computes the cost of a failover from the holds. `fault` and `promoted` are the times of the
/// fault and of the promotion.
pub(super) fn cost(seen: Seen, fault: Duration, promoted: Duration) -> Cost {
    let mut overlaps = (0, 0);
    let mut fallen = 0;
    let mut disorder = 0;
    let mut silent_name = 0;
    let mut regained = 0;
    let mut still = 0;
    let mut holds = seen.holds;
    holds.sort_by_key(|hold| hold.begin);
    for name in 0..NAMES {
        let holds: Vec<Hold> = holds.iter().filter(|hold| hold.name == name).copied().collect();
        let (number, longest) = overlapping(&holds);
        overlaps = (overlaps.0 + number, overlaps.1.max(longest));
        fallen += fallen_tokens(&holds);
        disorder += out_of_order(&holds);
        silent_name = silent_name.max(silence(&holds, fault, seen.over));
        regained = regained.max(first_after(&holds, promoted, seen.over));
        still += u64::from(!holds.iter().any(|hold| hold.begin > fault));
    }
    let values = [
        holds.len() as u64,
        overlaps.0,
        overlaps.1,
        seen.lost,
        seen.lost_fenced,
        seen.stopped,
        seen.reads_stopped,
        fallen,
        silence(&holds, fault, seen.over),
        silent_name,
        regained,
        still,
        seen.positions_lost,
        disorder,
        seen.refused,
        seen.timed_out,
    ];
    Cost { values: FIGURES.into_iter().zip(values).collect() }
}

/// Returns how many holds of the same kind as `other` may coexist under the name.
fn fit_beside(hold: &Hold, other: &Hold) -> usize {
    match (hold.demand, other.demand) {
        (Demand::Read, Demand::Read) => usize::MAX,
        (Demand::Permit, Demand::Permit) => PERMITS - 1,
        _ => 0,
    }
}

/// Returns how many holds began while valid holds left no room for them, and the longest such
/// overlap in µs.
pub(in crate::chaos) fn overlapping(holds: &[Hold]) -> (u64, u64) {
    let mut number = 0;
    let mut longest = 0;
    let mut valid: Vec<&Hold> = Vec::new();
    for hold in holds {
        valid.retain(|other| other.end > hold.begin);
        // Finds the holds that must end before there is room.
        valid.sort_by_key(|other| other.end);
        let mut fitting = 0;
        let first_to_fit = valid.iter().rposition(|other| {
            fitting += 1;
            fitting > fit_beside(hold, other)
        });
        if let Some(last) = first_to_fit {
            number += 1;
            longest = longest.max((valid[last].end.min(hold.end) - hold.begin).as_micros() as u64);
        }
        valid.push(hold);
    }
    (number, longest)
}

/// Returns how many holds have a lower token than an earlier hold. Reads without a write between
/// them share a token.
pub(in crate::chaos) fn fallen_tokens(holds: &[Hold]) -> u64 {
    let falls = holds.iter().enumerate().filter(|(at, hold)| {
        let before = |demand: Demand| {
            let began_before_it_asked = |other: &&Hold| other.begin < hold.asked;
            let mut before = holds[..*at].iter().rev().filter(|other| other.demand == demand);
            match (hold.demand, demand) {
                // Two concurrent reads may be notified in any order.
                (Demand::Read, Demand::Read) => before.find(began_before_it_asked),
                _ => before.next(),
            }
        };
        match hold.demand {
            Demand::Permit => false,
            Demand::Lock => before(Demand::Lock).is_some_and(|other| hold.token <= other.token),
            Demand::Write => [Demand::Read, Demand::Write]
                .into_iter()
                .filter_map(before)
                .any(|other| hold.token <= other.token),
            Demand::Read => {
                before(Demand::Write).is_some_and(|other| hold.token <= other.token)
                    || before(Demand::Read).is_some_and(|other| hold.token < other.token)
            }
        }
    });
    falls.count() as u64
}

/// Returns how many grants overtook an earlier, incompatible attempt granted later. Attempts
/// granted together may be notified in any order.
fn out_of_order(holds: &[Hold]) -> u64 {
    let mut any = Duration::MAX;
    let mut alone = Duration::MAX;
    let mut disorder = 0;
    for hold in holds.iter().rev() {
        let (earliest, is_alone) = match hold.demand {
            Demand::Lock | Demand::Write => (any, true),
            Demand::Read | Demand::Permit => (alone, false),
        };
        if earliest.saturating_add(SAME_TIME) < hold.asked {
            disorder += 1;
        }
        any = any.min(hold.asked);
        if is_alone {
            alone = alone.min(hold.asked);
        }
    }
    disorder
}

/// Returns the longest time after the fault without a grant, in ms, up to the last request.
fn silence(holds: &[Hold], fault: Duration, over: Duration) -> u64 {
    let mut until = Duration::ZERO;
    let mut longest = Duration::ZERO;
    for begin in holds.iter().map(|hold| hold.begin).chain([over]) {
        if begin > fault {
            longest = longest.max(begin.saturating_sub(until));
        }
        until = until.max(begin);
    }
    longest.as_millis() as u64
}

/// Returns the time from `then` to the first grant, in ms.
fn first_after(holds: &[Hold], then: Duration, over: Duration) -> u64 {
    let begun = holds.iter().map(|hold| hold.begin).find(|begin| *begin > then);
    (begun.unwrap_or(over) - then).as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::Demand::{Lock, Permit, Read, Write};
    use super::*;

    fn of(demand: Demand, asked: u64, begin: u64, end: u64, token: u64) -> Hold {
        let ms = Duration::from_millis;
        Hold { name: 0, demand, token, asked: ms(asked), begin: ms(begin), end: ms(end) }
    }

    fn hold(asked: u64, begin: u64, end: u64, token: u64) -> Hold {
        of(Lock, asked, begin, end, token)
    }

    #[test]
    fn overlaps_are_counted_with_their_length() {
        let holds = [hold(0, 0, 10, 1), hold(0, 8, 20, 2), hold(0, 20, 30, 3), hold(0, 25, 26, 4)];
        assert_eq!(overlapping(&holds), (2, 2_000));
    }

    #[test]
    fn reads_and_permits_overlap_only_what_leaves_them_no_room() {
        let reads = [of(Read, 0, 0, 10, 1), of(Read, 0, 1, 10, 1), of(Read, 0, 2, 10, 1)];
        assert_eq!(overlapping(&reads), (0, 0));
        let mixed = [reads[0], reads[1], of(Write, 0, 7, 9, 2), of(Read, 0, 8, 9, 1)];
        assert_eq!(overlapping(&mixed), (2, 2_000));
        let permits = [0, 1, 2, 3].map(|begin| of(Permit, 0, begin, 10 + begin, 0));
        assert_eq!(overlapping(&permits[..PERMITS]), (0, 0));
        // The first of three ends at 10.
        assert_eq!(overlapping(&permits), (1, 7_000));
    }

    #[test]
    fn a_token_that_does_not_rise_has_fallen_unless_reads_share_it() {
        assert_eq!(fallen_tokens(&[hold(0, 1, 2, 7), hold(0, 3, 4, 8), hold(0, 5, 6, 8)]), 1);
        let shared = [of(Read, 0, 1, 2, 7), of(Read, 2, 3, 4, 7), of(Write, 4, 5, 6, 8)];
        assert_eq!(fallen_tokens(&shared), 0);
        assert_eq!(fallen_tokens(&[shared[0], shared[2], of(Read, 6, 7, 8, 8)]), 1);
        assert_eq!(fallen_tokens(&[shared[1], of(Write, 4, 5, 6, 7)]), 1);
        // The second was requested before the first had its response, and may be the older grant.
        assert_eq!(fallen_tokens(&[of(Read, 0, 5, 9, 7), of(Read, 4, 6, 9, 6)]), 0);
        assert_eq!(fallen_tokens(&[of(Read, 0, 5, 9, 7), of(Read, 6, 7, 9, 6)]), 1);
    }

    #[test]
    fn one_who_asked_long_before_and_comes_later_was_overtaken() {
        let holds = [hold(100, 110, 111, 1), hold(0, 120, 121, 2), hold(90, 130, 131, 3)];
        assert_eq!(out_of_order(&holds), 1);
        let reads = [of(Read, 100, 110, 111, 1), of(Read, 0, 112, 115, 1)];
        assert_eq!(out_of_order(&reads), 0);
        assert_eq!(out_of_order(&[reads[0], of(Write, 0, 112, 115, 1)]), 1);
    }

    #[test]
    fn the_longest_silence_after_the_fault_is_told() {
        let holds = [hold(0, 0, 1, 1), hold(0, 500, 501, 2), hold(0, 600, 601, 3)];
        let ms = Duration::from_millis;
        assert_eq!(silence(&holds, ms(100), ms(600)), 500);
        assert_eq!(silence(&holds, ms(550), ms(600)), 100);
        assert_eq!(silence(&holds, ms(550), ms(900)), 300, "up to the end");
        assert_eq!(silence(&[], ms(100), ms(900)), 900, "nothing at all");
    }

    #[test]
    fn the_first_grant_after_the_promotion_is_told() {
        let holds = [hold(0, 0, 1, 1), hold(0, 500, 501, 2)];
        let ms = Duration::from_millis;
        assert_eq!(first_after(&holds, ms(200), ms(900)), 300);
        assert_eq!(first_after(&holds, ms(600), ms(900)), 300, "none: up to the end");
    }
}
