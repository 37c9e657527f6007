//! Parses the words and letters by which scripts report outcomes. All layouts use the same ones.

use super::value::Value;
use crate::{Acquired, Left, Presence, Released};

/// Parses the word for an acquire's outcome for a single member. `number` is the position of a
/// queued member, or the queue length if the queue is full. `None` for an unknown word.
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

/// Parses the letters for an acquire's outcomes, one for each member. `numbers` contains the
/// position of each queued member, and the queue length for each member that found the queue full.
/// `None` for an unknown letter, or if there are too few or too many numbers.
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

/// Parses the word for a release's outcome; `None` for an unknown word. The number from the reply
/// has no meaning here.
pub fn released(word: &str, _number: u64) -> Option<Released> {
    match word {
        "released" => Some(Released::Released),
        "not_held" => Some(Released::NotHeld),
        _ => None,
    }
}

/// Parses the letters for a touch's outcome, one for each member; `None` for an unknown letter. A
/// member of the batch that has the lock is reported as holding, like a single holder.
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

/// Parses the letters for a leave's outcome, one for each member; `None` for an unknown letter. The
/// number from the reply has no meaning here.
pub fn left(letters: &str, _number: u64) -> Option<Vec<Left>> {
    let one = |letter| match letter {
        'l' => Some(Left::Left),
        'a' => Some(Left::Absent),
        _ => None,
    };
    letters.chars().map(one).collect()
}
