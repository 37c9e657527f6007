//! The end of a node.

use super::{Core, MAX_AT_ONCE};
use crate::error::LockErrorKind;
use crate::node::entry::{Caller, Class, Entry, Mirror, Refusal, State};

impl<P: Mirror> Core<P> {
    /// Closes the node: from now on nothing begins.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Ends attempts with this error, a bounded part of them from this number on. Returns how many,
    /// and where to go on.
    pub fn end_attempts(&mut self, from: u64, kind: LockErrorKind) -> (usize, Option<u64>) {
        let (numbers, next) = self.part_of(from, MAX_AT_ONCE, |entry| {
            entry.is_attempt() && entry.caller == Caller::Waits
        });
        let ended = numbers.len();
        for number in numbers {
            self.set_refusal(number, Refusal::Kind(kind));
            self.withdraw(number);
        }
        (ended, next)
    }

    /// Takes holds away from their guards and gives them back, a bounded part of them from this
    /// number on.
    pub fn take_holds(&mut self, from: u64, why: &'static str) -> (usize, Option<u64>) {
        let now = self.now;
        let is_hold = |entry: &Entry<P>| entry.index_keys().class == Some(Class::Hold);
        // The guard of a lost one would release its rest on the server, which comes too late now.
        let (numbers, next) = self.part_of(from, MAX_AT_ONCE, |entry| {
            is_hold(entry) || matches!(entry.state, State::Lost { .. })
        });
        let taken = numbers.iter().filter(|number| is_hold(&self.table.entries()[number])).count();
        for number in numbers {
            self.set_refusal(number, Refusal::Kind(LockErrorKind::Closed));
            self.lose(number, why);
            self.hand_back(number, Some(now));
        }
        (taken, next)
    }

    /// The numbers of at most so many entries from this one on, and where to go on.
    pub(super) fn part_of(
        &self,
        from: u64,
        most: usize,
        is_meant: impl Fn(&Entry<P>) -> bool,
    ) -> (Vec<u64>, Option<u64>) {
        let mut numbers = Vec::new();
        // Looking costs something, too.
        for (looked, (number, entry)) in self.table.entries().range(from..).enumerate() {
            if numbers.len() == most || looked == 16 * MAX_AT_ONCE {
                return (numbers, Some(*number));
            }
            if is_meant(entry) {
                numbers.push(*number);
            }
        }
        (numbers, None)
    }
}
