//! The words and letters of outcomes, which the scripts of both layouts share.

use crate::{Acquired, Left, Presence, Released};

/// The outcome of an acquire.
pub(super) fn acquired(word: &str, number: u64) -> Option<Acquired> {
    match word {
        "granted" => Some(Acquired::Granted),
        "queued" => Some(Acquired::Queued { position: number }),
        "busy" => Some(Acquired::Busy),
        "full" => Some(Acquired::Full),
        "refused" => Some(Acquired::Refused),
        _ => None,
    }
}

/// The outcome of a release. No number belongs to it.
pub(super) fn released(word: &str, _number: u64) -> Option<Released> {
    match word {
        "released" => Some(Released::Released),
        "not_held" => Some(Released::NotHeld),
        _ => None,
    }
}

/// The members of a touch, a letter for each.
pub(super) fn touched(letters: &str) -> Option<Vec<Presence>> {
    let one = |letter| match letter {
        'w' => Some(Presence::Waiting),
        'h' => Some(Presence::Holding),
        'g' => Some(Presence::Gone),
        _ => None,
    };
    letters.chars().map(one).collect()
}

/// The members of a leave, a letter for each. No number belongs to it.
pub(super) fn left(letters: &str, _number: u64) -> Option<Vec<Left>> {
    let one = |letter| match letter {
        'l' => Some(Left::Left),
        'a' => Some(Left::Absent),
        _ => None,
    };
    letters.chars().map(one).collect()
}
