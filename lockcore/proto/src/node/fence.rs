//! The fast path: when an acquire or a release runs without a script, and how further acquires wait
//! for a fast one behind a fence.
//!
//! # Implementation notes
//!
//! - The fast path serves a free lock without waiters. Otherwise it costs an additional round trip,
//!   so it is tried only for names found free by the last acquire or release.
//! - If the fast path does not serve an acquire, the node sends it again as a script. Other
//!   acquires for this lock would overtake it in the queue, so they wait behind the lock's *fence*.
//!   The event that handles the response sends all of them at once, including the first, and the
//!   driver joins them into a single acquire.
//! - Retries pass the fence: their attempts are older than the fast acquire.
//! - Each request gets a response or an error, even if the connection is lost, so every fence is
//!   lifted.

use std::collections::BTreeSet;

use super::Core;
use crate::member::Member;
use crate::name::LockName;
use crate::node::effect::Effect;
use crate::node::entry::{Caller, Entry, Mirror, State};

/// Number of bits in [`BusyNames`]. Names with the same bit count as busy together.
const NAMES: usize = 4_096;

/// The lock names that were busy when this node last acquired or released them, as a bitmap over
/// the hashes of the names. For such locks, the fast path (without a script) is not tried.
#[derive(Debug, Clone, Default)]
pub(super) struct BusyNames {
    /// A bit for each hash of a name, set if such a name was busy. Empty until the first busy name.
    bits: Vec<u64>,
    /// The number of set bits. While it is zero, no name needs to be hashed.
    count: usize,
}

impl BusyNames {
    pub(super) fn has(&self, lock: &LockName) -> bool {
        if self.count == 0 {
            return false;
        }
        let (word, bit) = place(lock);
        self.bits[word] & bit != 0
    }

    pub(super) fn note(&mut self, lock: &LockName, is_busy: bool) {
        if is_busy == self.has(lock) {
            return;
        }
        self.bits.resize(NAMES / 64, 0);
        let (word, bit) = place(lock);
        self.bits[word] ^= bit;
        self.count = if is_busy { self.count + 1 } else { self.count - 1 };
    }
}

/// Returns the index of the word in `bits`, and the bit in this word, for a name.
fn place(lock: &LockName) -> (usize, u64) {
    // A multiplication carries every bit up, so the high bits differ for most names.
    let mix =
        |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (words, rest) = lock.as_str().as_bytes().as_chunks();
    let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let hash = mix(hash, rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    let number = (hash >> 52) as usize % NAMES;
    (number / 64, 1 << (number % 64))
}

impl<P: Mirror> Core<P> {
    /// Sets whether the store has the fast path, which runs acquires without a script. Otherwise,
    /// no attempt ever has to wait for another attempt's fast acquire.
    pub fn set_fast_path(&mut self, has_one: bool) {
        self.has_fast_path = has_one;
    }

    /// Returns an empty set of waiting attempts (a fence) if the acquire of `member` should take
    /// the fast path; `None` if it should run as a script. The fast path is tried if the lock was
    /// free when this node last used it. The caller ensures that no other acquire of the lock is in
    /// flight or unsent.
    pub(super) fn fence(&self, lock: &LockName, member: &Member) -> Option<BTreeSet<u64>> {
        let is_fast = self.has_fast_path
            && !self.busy.has(lock)
            && self.rules.layout.has_fast_acquire(member);
        is_fast.then(BTreeSet::new)
    }

    /// Handles an acquire that the fast path could not serve, for example because the lock is held:
    /// it is sent again as a script. `may_hold` is true if the fast path may have made the member
    /// the holder nevertheless; the script will show this.
    pub(super) fn not_served(&mut self, number: u64, may_hold: bool) {
        let caller = self.table.change(number, |entry| {
            entry.may_hold = may_hold;
            if matches!(entry.state, State::Asking { .. }) {
                entry.state = State::Unsent;
            }
            entry.caller.clone()
        });
        match caller {
            Some(Caller::Waits) => self.table.send_now(number),
            _ => self.withdraw(number),
        }
    }

    /// Sends the acquires that must go with the effects of this event, in the order of their
    /// attempts. [`Table::send_now`](super::table::Table::send_now) has collected them.
    pub(super) fn send_passed(&mut self) {
        let mut numbers = self.table.take_to_send();
        numbers.sort_unstable();
        for number in numbers {
            let lane = match self.table.get(number) {
                Some(Entry { state: State::Unsent, lane, .. }) => *lane,
                _ => continue,
            };
            // Without room, an acquire is sent later in its turn.
            if self.room_to_ask(self.table.lane(lane)) > 0
                && let Some(request) = self.first_acquire(number)
            {
                self.push(Effect::Send(request));
            }
        }
    }
}
