//! `Form`: the demands of a run's clients on a lock.

use std::fmt;
use std::str::FromStr;

use lockcore::Demand;

use super::client::LOCKS;
use super::dice::Dice;

/// The forms of the locks of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// Half of the locks are only locked, a quarter is also read, a quarter is held in permits.
    All,
    /// All locks are only locked: the most frequent commands of the scripts.
    Lock,
    /// Half of the locks are also read, half are held in permits.
    Shared,
    /// Two locks are only locked, by clients granted in batches: all clients of a node use the same
    /// label and lease. Commands therefore do not identify the attempt, and of the server's own
    /// order only the batches are counted.
    Batches,
}

impl Forms {
    const ALL: [Self; 4] = [Self::All, Self::Lock, Self::Shared, Self::Batches];

    /// Returns true if some locks are held in parts (reads or permits).
    pub(super) fn share(self) -> bool {
        matches!(self, Self::All | Self::Shared)
    }

    /// Returns the number of locks in use.
    pub(super) fn locks(self) -> u32 {
        if self == Self::Batches { 2 } else { LOCKS }
    }

    /// Returns the maximum batch size.
    pub(super) fn batch_limit(self) -> u32 {
        if self == Self::Batches { 32 } else { 1 }
    }
}

impl fmt::Display for Forms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Lock => "lock",
            Self::Shared => "shared",
            Self::Batches => "batches",
        })
    }
}

impl FromStr for Forms {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|forms| forms.to_string() == text);
        found.ok_or_else(|| format!("no forms are called {text}"))
    }
}

/// The demands on one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The lock is only locked.
    Lock,
    /// The lock is locked and read.
    Read,
    /// The lock is held in at most this many permits, and occasionally locked.
    Permits(u32),
}

impl Form {
    pub(super) fn of(forms: Forms, lock: u32) -> Self {
        let is_shared = match forms {
            Forms::All => lock % 4 > 1,
            Forms::Lock | Forms::Batches => false,
            Forms::Shared => true,
        };
        match (is_shared, lock % 2) {
            (false, _) => Self::Lock,
            (true, 0) => Self::Read,
            (true, _) => Self::Permits(2 + lock / 2),
        }
    }

    pub(super) fn is_shared(self) -> bool {
        self != Self::Lock
    }

    /// Draws the demand of a client.
    pub(super) fn demand(self, dice: &mut Dice) -> Demand {
        match self {
            Self::Lock => Demand::EXCLUSIVE,
            Self::Read if dice.below(3) == 0 => Demand::EXCLUSIVE,
            Self::Read => Demand::READ,
            Self::Permits(_) if dice.below(12) == 0 => Demand::EXCLUSIVE,
            Self::Permits(limit) => {
                let weight = 1 + dice.below(limit.min(3) as usize) as u32;
                Demand::permits(weight, limit).expect("one or more, and no more than there are")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_all_forms_has_each_of_them() {
        let of = |forms| (0..8).map(|lock| Form::of(forms, lock)).collect::<Vec<_>>();
        let count = |forms, form: fn(&Form) -> bool| of(forms).iter().filter(|of| form(of)).count();
        let counts = |forms| {
            [
                count(forms, |form| *form == Form::Lock),
                count(forms, |form| *form == Form::Read),
                count(forms, |form| matches!(form, Form::Permits(2..=5))),
            ]
        };
        assert_eq!(counts(Forms::All), [4, 2, 2]);
        assert_eq!(counts(Forms::Lock), [8, 0, 0]);
        assert_eq!(counts(Forms::Shared), [0, 4, 4]);
    }
}
