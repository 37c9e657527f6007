//! The words and letters of outcomes, shared by the scripts of all layouts.

use super::value::Value;
use crate::{Acquired, Left, Presence, Released};

/// Parses an acquire's outcome.
pub fn acquired(word: &str, number: u64) -> Option<Acquired> {
    match word {
        "granted" => Some(Acquired::Granted),
        "queued" => Some(Acquired::Queued { position: number }),
        "busy" => Some(Acquired::Busy),
        "full" => Some(Acquired::Full { waiting: number }),
        "refused" => Some(Acquired::Refused),
        _ => None,
    }
}

/// Parses an acquire's outcomes for several members: a letter each, and a number for each queued
/// member (its position) and for each member that found the queue full (the queue length).
pub fn all_acquired(letters: &str, numbers: &[Value<'_>]) -> Option<Vec<Acquired>> {
    let mut numbers = numbers.iter();
    let one = |letter| match letter {
        'g' => Some(Acquired::Granted),
        'q' => Some(Acquired::Queued { position: numbers.next()?.integer()? }),
        'b' => Some(Acquired::Busy),
        'f' => Some(Acquired::Full { waiting: numbers.next()?.integer()? }),
        'r' => Some(Acquired::Refused),
        _ => None,
    };
    let outcomes = letters.chars().map(one).collect::<Option<_>>();
    outcomes.filter(|_| numbers.next().is_none())
}

/// Parses a release's outcome. The number is unused.
pub fn released(word: &str, _number: u64) -> Option<Released> {
    match word {
        "released" => Some(Released::Released),
        "not_held" => Some(Released::NotHeld),
        _ => None,
    }
}

/// Parses a touch's outcome, a letter for each member. A member served in a batch holds like any
/// other; the hold is among the grants.
pub fn touched(letters: &str) -> Option<Vec<Presence>> {
    let one = |letter| match letter {
        'w' => Some(Presence::Waiting),
        'h' | 's' => Some(Presence::Holding),
        'd' => Some(Presence::Superseded),
        'g' => Some(Presence::Gone),
        _ => None,
    };
    letters.chars().map(one).collect()
}

/// Parses a leave's outcome, a letter for each member. The number is unused.
pub fn left(letters: &str, _number: u64) -> Option<Vec<Left>> {
    let one = |letter| match letter {
        'l' => Some(Left::Left),
        'a' => Some(Left::Absent),
        _ => None,
    };
    letters.chars().map(one).collect()
}
