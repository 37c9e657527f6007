//! Closing a node.

use super::{Core, MAX_AT_ONCE};
use crate::error::LockErrorKind;
use crate::node::entry::{Caller, Class, Entry, Mirror, Refusal, State};

impl<P: Mirror> Core<P> {
    /// Closes the node: no attempt begins from now on.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns whether the node is closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Ends attempts with this error, a bounded number from this member id on. Returns the count,
    /// and where to continue.
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

    /// Takes holds away from their guards and releases them, a bounded number from this member id
    /// on. Returns the count, and where to continue.
    pub fn take_holds(&mut self, from: u64, why: &'static str) -> (usize, Option<u64>) {
        let now = self.now;
        let is_hold = |entry: &Entry<P>| entry.index_keys().class == Some(Class::Hold);
        // A lost hold's guard would release the rest of the lease on the server, which is too late
        // after closing.
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

    /// Returns at most `most` matching member ids, beginning with `from`, and where to continue.
    pub(super) fn part_of(
        &self,
        from: u64,
        most: usize,
        is_meant: impl Fn(&Entry<P>) -> bool,
    ) -> (Vec<u64>, Option<u64>) {
        let mut numbers = Vec::new();
        // Scanning costs time, too.
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
