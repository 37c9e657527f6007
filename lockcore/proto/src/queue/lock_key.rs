//! The lock key: the Redis key that stores the holder. Every command reads it first.

use super::{Call, MARGIN_MS, QueueState, ROUND_MS};
use crate::PATIENCE_MS;
use crate::demand::Demand;
use crate::member::Member;
use crate::token::FencingToken;
pub(crate) use crate::token::LIMIT as TOKEN_LIMIT;

/// A token counter at or below this number was lost and created anew, because counters begin at the
/// server's time in µs. Scores are not drawn from such a counter.
pub(crate) const LOST_COUNTER: u64 = 1_000_000_000_000_000;

/// The value and expiry of the lock key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockKeyValue {
    /// The exclusive holder, or the weight of all shared holds.
    pub held: Held,
    /// The flag that shows which other keys of the lock a command must read.
    pub mark: Mark,
    /// The time when the lock key expires, in ms since the epoch. For an exclusive hold it is the
    /// lease's end, or [`MARGIN_MS`] later if there is a flag. For shared holds it is at least
    /// `MARGIN_MS` after the last lease's end. `None` if another program has removed the TTL.
    pub ends_ms: Option<u64>,
}

/// How the lock is held: exclusively, or by shared holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Held {
    /// A member or a batch holds the lock exclusively.
    Whole {
        /// The holder. For a batch, the first member, under which the hold is stored.
        member: Member,
        /// The ids of the batch members that share the hold, in the order in which they are served;
        /// empty outside a batch.
        batch: Vec<u64>,
    },
    /// Members have shared holds, or the lock is free and there are waiters or tombstones.
    Parts {
        /// The sum of the weights of all shared holds; 0 if the lock is free.
        used: u64,
        /// The fencing token shared by these holds. `None` if there are no holds, or if the lock
        /// key was lost and created anew from the holds.
        token: Option<FencingToken>,
    },
}

/// The flag in the lock key: the other keys to be read by a command. During an exclusive hold, a
/// command may change the flag only to a later variant. So the flag may announce waiters or
/// tombstones that no longer exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// No other key needs to be read.
    None,
    /// There are waiters, so the queue must be read.
    Waited,
    /// There are tombstones, and there may be waiters, so both keys must be read.
    Tombstones,
}

const FREE: Held = Held::Parts { used: 0, token: None };

impl LockKeyValue {
    /// Returns the time when an exclusive hold's lease ends, in ms since the epoch; `None` without
    /// a TTL.
    fn lease_ends_ms(&self) -> Option<u64> {
        let margin_ms = if self.mark == Mark::None { 0 } else { MARGIN_MS };
        self.ends_ms.map(|ends_ms| ends_ms.saturating_sub(margin_ms))
    }
}

impl QueueState {
    /// Returns the exclusive holder in the lock key, even if its lease has ended, and the time when
    /// the lease ends, in ms since the epoch. The time is `None` without a TTL. The whole result is
    /// `None` if there is no exclusive holder.
    pub fn stored_holder(&self) -> Option<(&Member, Option<u64>)> {
        let lock_key = self.lock_key.as_ref()?;
        let Held::Whole { member, .. } = &lock_key.held else { return None };
        Some((member, lock_key.lease_ends_ms()))
    }

    /// Returns the ids of the batch members that share the exclusive hold; empty outside a batch.
    pub fn batch(&self) -> &[u64] {
        match self.lock_key.as_ref().map(|lock_key| &lock_key.held) {
            Some(Held::Whole { batch, .. }) => batch,
            _ => &[],
        }
    }

    /// Returns true if the exclusive hold stored under `holder` belongs to `member`. The hold of a
    /// batch belongs to the members that have not left it, and no longer to `holder` after it has
    /// left.
    pub(super) fn is_served(&self, holder: &Member, member: &Member) -> bool {
        match self.batch() {
            [] => holder == member,
            batch => holder.node() == member.node() && batch.contains(&member.number()),
        }
    }

    /// Ends the batch, so that the hold belongs to the holder alone. Returns the ids of the batch
    /// members.
    pub(super) fn end_batch(&mut self) -> Vec<u64> {
        match self.lock_key.as_mut().map(|lock_key| &mut lock_key.held) {
            Some(Held::Whole { batch, .. }) => std::mem::take(batch),
            _ => Vec::new(),
        }
    }

    /// Removes a member from the batch. Returns true if other members remain; they keep the hold.
    pub(super) fn strike(&mut self, member: &Member) -> bool {
        if let Some(LockKeyValue { held: Held::Whole { batch, .. }, .. }) = &mut self.lock_key {
            batch.retain(|number| *number != member.number());
            return !batch.is_empty();
        }
        false
    }

    /// Stores the hold of a batch under the next batch member, if it is stored under `left`, which
    /// has left. A late copy of this leave could otherwise end the hold once it belongs to another
    /// member alone. A member whose turn is over remains the name, because the node serves the
    /// others under it.
    pub(super) fn rename(&mut self, left: &Member) {
        let lock_key = self.lock_key.as_mut().map(|lock_key| &mut lock_key.held);
        if let Some(Held::Whole { member, batch }) = lock_key
            && let ([next, ..], true) = (batch.as_slice(), member == left)
        {
            *member = left.renumbered(*next);
        }
    }

    /// Returns the exclusive holder, and the time when the lease ends, in ms since the epoch;
    /// `None` if it has ended. Without a TTL, the full lease is assumed to be left.
    pub(super) fn whole(&self, now_ms: u64) -> Option<(&Member, u64)> {
        let (member, ends_ms) = self.stored_holder()?;
        let ends_ms = ends_ms.unwrap_or(now_ms + member.lease_ms());
        (ends_ms > now_ms).then_some((member, ends_ms))
    }

    /// Returns true if the member has a tombstone and the lock key's flag announces tombstones.
    /// Without the flag, commands do not read them.
    pub(super) fn has_tombstone(&self, member: &Member) -> bool {
        let is_marked =
            self.lock_key.as_ref().is_some_and(|lock_key| lock_key.mark == Mark::Tombstones);
        is_marked && self.tombstones.get(member).is_some()
    }

    /// Repairs the lock key before a command decides anything: frees the lock if the exclusive
    /// lease has expired, sets a missing TTL, and computes a lost total weight from the shared
    /// holds.
    pub(super) fn repair(&mut self, call: &mut Call<'_>) {
        let now_ms = call.now_ms();
        let mark = self.lock_key.as_ref().map_or(Mark::None, |lock_key| lock_key.mark);
        call.has_tombstones = mark == Mark::Tombstones && !self.tombstones.is_empty();
        if let Some((member, _)) = self.whole(now_ms) {
            let margin_ms = if mark == Mark::None { 0 } else { MARGIN_MS };
            let whole_ms = now_ms + member.lease_ms() + margin_ms;
            if let Some(lock_key) = &mut self.lock_key {
                lock_key.ends_ms.get_or_insert(whole_ms);
            }
            // These shared holds are left from before the lock key was lost. The lock was granted
            // exclusively since.
            if !self.holds.is_empty() || !self.reduced.is_empty() {
                self.holds.clear();
                self.reduced.clear();
            }
            return;
        }
        if let Some((name, _)) = self.stored_holder() {
            let (name, batch) = (name.clone(), self.batch().to_vec());
            self.put_aside(call, &name, &batch);
        }
        let sum = self.sum_of_weights();
        let lock_key =
            self.lock_key.get_or_insert(LockKeyValue { held: FREE, mark, ends_ms: Some(0) });
        if let Held::Whole { .. } = lock_key.held {
            lock_key.held = Held::Parts { used: sum, token: None };
            lock_key.ends_ms = Some(0);
        }
        if self.holds.is_empty() {
            lock_key.held = FREE;
        }
        if let Held::Parts { used, .. } = &mut lock_key.held
            && *used == 0
        {
            *used = sum;
        }
        if lock_key.ends_ms.is_none_or(|ends_ms| ends_ms == 0) {
            lock_key.ends_ms = Some(0);
            if let Some((last_ms, _)) = self.holds.greatest() {
                call.keep(last_ms);
            }
        }
    }

    /// Sets the lock key's flag and expiry at the end of a command. Removes the key if the lock is
    /// free and there are neither waiters nor tombstones.
    pub(super) fn update_lock_key(&mut self, call: &mut Call<'_>) {
        let mark = match (call.has_tombstones, self.queue.is_empty()) {
            (true, _) => Mark::Tombstones,
            (false, false) => Mark::Waited,
            (false, true) => Mark::None,
        };
        let Some(lock_key) = &mut self.lock_key else { return };
        if let Held::Whole { .. } = lock_key.held {
            if lock_key.mark == Mark::None && mark != Mark::None {
                lock_key.ends_ms = lock_key.ends_ms.map(|ends_ms| ends_ms + MARGIN_MS);
            }
            lock_key.mark = lock_key.mark.max(mark);
        } else if self.holds.is_empty() && mark == Mark::None {
            self.lock_key = None;
        } else {
            if !call.keeps_mark || self.holds.is_empty() {
                lock_key.mark = mark;
                if mark != Mark::None {
                    call.keep(call.now_ms() + PATIENCE_MS);
                }
            }
            let needed_ms = call.latest_ms + MARGIN_MS;
            let is_later =
                call.latest_ms > 0 && lock_key.ends_ms.is_none_or(|at_ms| at_ms < needed_ms);
            if is_later {
                lock_key.ends_ms = Some(needed_ms.next_multiple_of(ROUND_MS));
            }
            if is_later || self.holds_end_ms.is_none() {
                self.holds_end_ms = lock_key.ends_ms;
            }
        }
        if self.holds.is_empty() && !self.reduced.is_empty() {
            self.reduced.clear();
        }
        self.clear_empty_expiries();
    }

    /// Returns the total weight of all holds.
    pub(super) fn used(&self) -> u64 {
        match self.lock_key.as_ref().map(|lock_key| &lock_key.held) {
            Some(Held::Whole { .. }) => Demand::EXCLUSIVE.weight(),
            Some(Held::Parts { used, .. }) => *used,
            None => 0,
        }
    }

    /// Returns the fencing token of the shared holds; `None` if there are none or it was lost.
    pub(super) fn shared_token(&self) -> Option<FencingToken> {
        match self.lock_key.as_ref()?.held {
            Held::Parts { token, .. } => token,
            Held::Whole { .. } => None,
        }
    }

    /// Sets the total weight and the fencing token of the shared holds.
    pub(super) fn set_parts(&mut self, used: u64, token: Option<FencingToken>) {
        if let Some(lock_key) = &mut self.lock_key {
            lock_key.held = Held::Parts { used, token };
        }
    }

    /// Makes the lock free. The lock key itself is removed or kept by `update_lock_key`.
    pub(super) fn open(&mut self) {
        if let Some(lock_key) = &mut self.lock_key {
            lock_key.held = FREE;
            lock_key.ends_ms = Some(0);
        }
    }

    /// Makes a member the exclusive holder until `ends_ms`, in ms since the epoch. `batch` contains
    /// the ids of all members that share the hold; empty outside a batch. `mark` is the lock key's
    /// flag.
    pub(super) fn close(&mut self, member: &Member, batch: Vec<u64>, mark: Mark, ends_ms: u64) {
        let margin_ms = if mark == Mark::None { 0 } else { MARGIN_MS };
        let held = Held::Whole { member: member.clone(), batch };
        self.lock_key = Some(LockKeyValue { held, mark, ends_ms: Some(ends_ms + margin_ms) });
    }
}
