//! Closing a node: its attempts end, and its holds are released.

use super::{Core, MAX_AT_ONCE};
use crate::error::{LockErrorKind, StoreError};
use crate::node::entry::{Caller, Class, Entry, Mirror, Refusal, State};

impl<P: Mirror> Core<P> {
    /// Closes the node, so that no further attempt begins. Attempts and holds stay until
    /// [`end_attempts`](Self::end_attempts) and [`take_holds`](Self::take_holds).
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns true if the node is closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Ends a bounded number of waiting attempts with the error `kind`, from the member id `from`
    /// on. Returns the number of ended attempts, and the id from which to continue; `None` at the
    /// end.
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

    /// Ends a bounded number of holds from the member id `from` on, even while guards have them,
    /// and releases them on the server. The guards are notified with the reason `why`. Returns the
    /// number of holds, and the id from which to continue; `None` at the end.
    pub fn take_holds(&mut self, from: u64, why: &'static str) -> (usize, Option<u64>) {
        let now = self.now;
        let is_hold = |entry: &Entry<P>| entry.index_keys().class == Some(Class::Hold);
        // A lost hold may still have a rest of its lease on the server. Its guard would release it,
        // but too late after closing. A batch is released with its guard's entry only, which may
        // belong to a later call.
        let is_lost = |entry: &Entry<P>| {
            matches!(entry.state, State::Lost { .. }) && !self.is_batch(&entry.member)
        };
        let (numbers, next) =
            self.part_of(from, MAX_AT_ONCE, |entry| is_hold(entry) || is_lost(entry));
        let taken = numbers.iter().filter(|number| is_hold(&self.table.entries()[number])).count();
        for number in numbers {
            self.set_refusal(number, Refusal::Kind(LockErrorKind::Closed));
            self.lose(number, why);
            self.hand_back(number, Some(now));
        }
        (taken, next)
    }

    /// Marks a bounded number of holds as lost, from the member id `from` on, because nobody will
    /// renew them. The guards are notified with the reason `why`. Returns the id from which to
    /// continue; `None` at the end. The first call, with `from` 0, also ends the releases in
    /// mid-batch, because no response will show any more whether their holds existed.
    pub fn lose_holds(&mut self, from: u64, why: &'static str) -> Option<u64> {
        if from == 0 {
            let ended = StoreError::refused(LockErrorKind::Closed, why);
            let batches: Vec<u64> = self.batches.iter().map(|(first, _)| *first).collect();
            for first in batches {
                self.notify_returned(first, Err(&ended), self.now);
            }
        }
        let (numbers, next) =
            self.part_of(from, MAX_AT_ONCE, |entry| entry.index_keys().class == Some(Class::Hold));
        for number in numbers {
            // For an offered member, whose attempt would otherwise wait on.
            self.set_refusal(number, Refusal::Kind(LockErrorKind::Closed));
            self.lose(number, why);
        }
        next
    }

    /// Returns the ids of at most `most` members whose entries satisfy `is_meant`, from the id
    /// `from` on. Also returns the id from which to continue; `None` at the end. Because the search
    /// is bounded, there may be more members even if fewer than `most` are returned.
    pub(super) fn part_of(
        &self,
        from: u64,
        most: usize,
        is_meant: impl Fn(&Entry<P>) -> bool,
    ) -> (Vec<u64>, Option<u64>) {
        let mut numbers = Vec::new();
        // The scan is bounded as well, because members that do not match also cost time.
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
