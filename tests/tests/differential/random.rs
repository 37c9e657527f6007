//! Choices that were made in advance: so a sequence can be run again, and shortened when it fails.

use proptest::prelude::*;
use proptest::{collection, option};

/// More than any step needs; a missing one counts as 0.
const DRAWS: usize = 24;

/// The choices of a sequence, a row for each of its steps, so that leaving out a step changes no
/// other.
pub(crate) type Choices = Vec<Option<Vec<u16>>>;

/// Sequences of nearly always so many steps.
pub(crate) fn choices(steps: usize) -> impl Strategy<Value = Choices> {
    collection::vec(option::weighted(0.99, collection::vec(any::<u16>(), DRAWS)), steps)
}

/// The choices of one step, one after the other.
pub(crate) struct Random {
    draws: std::vec::IntoIter<u16>,
}

impl Random {
    pub(crate) fn new(draws: Vec<u16>) -> Self {
        Self { draws: draws.into_iter() }
    }

    /// A number below `limit`; the smaller, the simpler.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.draws.next().unwrap_or(0)) % limit
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) + percent >= 100
    }

    pub(crate) fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
