//! The fast path: which acquires and releases may go without a script, and the fence behind a fast
//! acquire.
//!
//! # Implementation notes
//!
//! - The fast path serves a lock that is free and has no waiters. Elsewhere it costs one more round
//!   trip, so it is tried only for names that the last acquire or release found free.
//! - A fast acquire that is not served is sent again, by its script. Acquires of the same lock that
//!   this node sends meanwhile would overtake it in the queue, so they wait behind the *fence* of
//!   the lock. The event that takes the answer sends all of them at once, the first one included,
//!   and the driver joins them into one acquire.
//! - Repetitions pass the fence: their attempts came before the fast one.
//! - Each request has an answer, also if its connection goes away. So no fence stays up.

use super::Core;
use crate::Command;
use crate::layout::Fast;
use crate::name::LockName;
use crate::node::effect::{Ask, Effect, Way};
use crate::node::entry::{Caller, Mirror, State};

/// Names with a history of their own; others share the history of one of them.
const NAMES: usize = 4_096;

/// The names that were busy when the node last acquired or released them, in a table of fixed size.
#[derive(Debug, Clone, Default)]
pub(super) struct BusyNames {
    /// A bit for each name; nothing before the first busy one.
    bits: Vec<u64>,
}

impl BusyNames {
    pub(super) fn has(&self, lock: &LockName) -> bool {
        let (word, bit) = place(lock);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    pub(super) fn note(&mut self, lock: &LockName, is_busy: bool) {
        if is_busy == self.has(lock) {
            return;
        }
        self.bits.resize(NAMES / 64, 0);
        let (word, bit) = place(lock);
        self.bits[word] ^= bit;
    }
}

/// The word and the bit of a name.
fn place(lock: &LockName) -> (usize, u64) {
    // FNV-1a, of which the low bits tell most names apart.
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = lock.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let number = hash as usize % NAMES;
    (number / 64, 1 << (number % 64))
}

impl<P: Mirror> Core<P> {
    /// Whether connections to the store have a fast path for acquires. Without one nothing waits.
    pub fn set_fast_path(&mut self, has_one: bool) {
        self.has_fast_path = has_one;
    }

    /// Whether an acquire that is sent now may go the fast path: none of its lock is on its way or
    /// to be sent, and the lock was free the last time.
    pub(super) fn may_be_fast(&self, ask: &Ask) -> bool {
        self.has_fast_path
            && self.table.is_asked_for_once(&ask.lock)
            && !self.busy.has(&ask.lock)
            && matches!(self.rules.layout.fast(&ask.lock, &ask.command), Some(Fast::Acquire(_)))
    }

    /// The fast path did not serve an acquire: the script is to be asked. If the member `may_hold`,
    /// the script finds it as the holder.
    pub(super) fn not_served(&mut self, number: u64, may_hold: bool) {
        let caller = self.table.change(number, |entry| {
            entry.may_hold = may_hold;
            if matches!(entry.state, State::Asking { .. }) {
                entry.state = State::Unsent;
            }
            entry.caller.clone()
        });
        if caller.is_some_and(|caller| caller != Caller::Waits) {
            self.withdraw(number);
        }
    }

    /// Takes the answer to a fast acquire, or its loss: sends the acquires that waited for it, and
    /// the fast one again if it was not served.
    pub(super) fn pass_fence(&mut self, ask: &Ask) {
        let Command::Acquire { members, .. } = &ask.command else { return };
        let mut numbers = self.table.lower_fence(&ask.lock);
        let is_unsent = |number: &u64| {
            self.table.get(*number).is_some_and(|entry| matches!(entry.state, State::Unsent))
        };
        numbers.extend(members.iter().map(|member| member.number()).filter(is_unsent));
        for number in numbers {
            // The rest goes in its turn.
            if self.room_to_ask(self.table.lane(ask.lane)) == 0 {
                return;
            }
            if let Some(next) = self.ask_by_script(number) {
                self.push(Effect::Send(next));
            }
        }
    }

    /// Whether the answer ends the wait behind a fence.
    pub(super) fn is_fast_acquire(ask: &Ask) -> bool {
        ask.way == Way::Fast && matches!(ask.command, Command::Acquire { .. })
    }
}
