//! The door: the one key that every command looks at first.

use super::{Call, MARGIN_MS, QueueState, ROUND_MS};
use crate::PATIENCE_MS;
use crate::demand::Demand;
use crate::member::Member;
use crate::token::FencingToken;
pub(crate) use crate::token::LIMIT as TOKEN_LIMIT;

/// A counter up to here was lost, and is no measure of places.
pub(crate) const LOST_COUNTER: u64 = 1_000_000_000_000_000;

/// The value at the lock's name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Door {
    /// The holder, or the sum of the parts.
    pub held: Held,
    /// The other keys to be looked at.
    pub mark: Mark,
    /// The expiry of the door: with the lease of the member that holds everything, a margin later
    /// behind a mark; a margin after the last end of all behind parts. `None` is a key without a
    /// TTL, which another program has made so.
    pub ends_ms: Option<u64>,
}

/// The holds of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Held {
    /// One member holds everything.
    Whole {
        /// The holder.
        member: Member,
        /// The numbers of the members of its node that are served within this hold, in order;
        /// none if it is the holder's alone.
        run: Vec<u64>,
    },
    /// Members hold parts, or it is free and others wait.
    Parts {
        /// The sum of the holds' weights.
        used: u64,
        /// The token that these holds share.
        token: Option<FencingToken>,
    },
}

/// The keys that a command has to look at beside the door. A mark is never taken from a hold of
/// everything, so it may say more than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Nothing.
    None,
    /// Others wait.
    Waited,
    /// There are tombstones, and others may wait.
    Gone,
}

const FREE: Held = Held::Parts { used: 0, token: None };

impl Door {
    /// The end of the lease of a hold of everything.
    fn lease_ends_ms(&self) -> Option<u64> {
        let margin_ms = if self.mark == Mark::None { 0 } else { MARGIN_MS };
        self.ends_ms.map(|ends_ms| ends_ms.saturating_sub(margin_ms))
    }
}

impl QueueState {
    /// The member at the door, and the end of its lease, which may have passed; without a TTL it
    /// has no end.
    pub fn at_door(&self) -> Option<(&Member, Option<u64>)> {
        let door = self.door.as_ref()?;
        let Held::Whole { member, .. } = &door.held else { return None };
        Some((member, door.lease_ends_ms()))
    }

    /// The numbers of the members that are served within the hold of everything.
    pub fn run(&self) -> &[u64] {
        match self.door.as_ref().map(|door| &door.held) {
            Some(Held::Whole { run, .. }) => run,
            _ => &[],
        }
    }

    /// Whether the member has everything while this is the holder: as that or in its run.
    pub(super) fn is_served(&self, holder: &Member, member: &Member) -> bool {
        match self.run() {
            [] => holder == member,
            run => holder.node() == member.node() && run.contains(&member.number()),
        }
    }

    /// Makes the hold of a run that of its holder alone, and tells the numbers.
    pub(super) fn end_run(&mut self) -> Vec<u64> {
        match self.door.as_mut().map(|door| &mut door.held) {
            Some(Held::Whole { run, .. }) => std::mem::take(run),
            _ => Vec::new(),
        }
    }

    /// Takes a member out of the run. The hold is the others' still: tells whether there are any.
    pub(super) fn strike(&mut self, member: &Member) -> bool {
        if let Some(Door { held: Held::Whole { run, .. }, .. }) = &mut self.door {
            run.retain(|number| *number != member.number());
            return !run.is_empty();
        }
        false
    }

    /// The member that holds everything, and the end of its lease, if that has not ended. Without a
    /// TTL the lease is whole.
    pub(super) fn whole(&self, now_ms: u64) -> Option<(&Member, u64)> {
        let (member, ends_ms) = self.at_door()?;
        let ends_ms = ends_ms.unwrap_or(now_ms + member.lease_ms());
        (ends_ms > now_ms).then_some((member, ends_ms))
    }

    /// Whether the member was given up. Without the mark there are no tombstones.
    pub(super) fn is_gone(&self, member: &Member) -> bool {
        let is_marked = self.door.as_ref().is_some_and(|door| door.mark == Mark::Gone);
        is_marked && self.gone.get(member).is_some()
    }

    /// Mends the door, before anything is decided by it: a lease that has ended is free, a door
    /// without a TTL gets one, and a lost sum is counted again from the holds.
    pub(super) fn look(&mut self, call: &mut Call<'_>) {
        let now_ms = call.now_ms();
        let mark = self.door.as_ref().map_or(Mark::None, |door| door.mark);
        call.has_gone = mark == Mark::Gone && !self.gone.is_empty();
        if let Some((member, _)) = self.whole(now_ms) {
            let margin_ms = if mark == Mark::None { 0 } else { MARGIN_MS };
            let whole_ms = now_ms + member.lease_ms() + margin_ms;
            if let Some(door) = &mut self.door {
                door.ends_ms.get_or_insert(whole_ms);
            }
            // The door was lost while these were held, and everything was granted since.
            if !self.holds.is_empty() || !self.reduced.is_empty() {
                self.holds.clear();
                self.reduced.clear();
            }
            return;
        }
        if let Some((name, _)) = self.at_door() {
            let (name, run) = (name.clone(), self.run().to_vec());
            self.put_aside(call, &name, &run);
        }
        let sum = self.holds.iter().map(|(_, member)| self.weight(member)).sum();
        let door = self.door.get_or_insert(Door { held: FREE, mark, ends_ms: Some(0) });
        if let Held::Whole { .. } = door.held {
            door.held = Held::Parts { used: sum, token: None };
            door.ends_ms = Some(0);
        }
        if self.holds.is_empty() {
            door.held = FREE;
        }
        if let Held::Parts { used, .. } = &mut door.held
            && *used == 0
        {
            *used = sum;
        }
        if door.ends_ms.is_none_or(|ends_ms| ends_ms == 0) {
            door.ends_ms = Some(0);
            if let Some((last_ms, _)) = self.holds.greatest() {
                call.keep(last_ms);
            }
        }
    }

    /// Writes the door as it is now: its mark, its end, and none if it is free and nothing else is
    /// to be looked at.
    pub(super) fn settle(&mut self, call: &mut Call<'_>) {
        let mark = match (call.has_gone, self.queue.is_empty()) {
            (true, _) => Mark::Gone,
            (false, false) => Mark::Waited,
            (false, true) => Mark::None,
        };
        let Some(door) = &mut self.door else { return };
        if let Held::Whole { .. } = door.held {
            if door.mark == Mark::None && mark != Mark::None {
                door.ends_ms = door.ends_ms.map(|ends_ms| ends_ms + MARGIN_MS);
            }
            door.mark = door.mark.max(mark);
        } else if self.holds.is_empty() && mark == Mark::None {
            self.door = None;
        } else {
            if !call.keeps_mark || self.holds.is_empty() {
                door.mark = mark;
                if mark != Mark::None {
                    call.keep(call.now_ms() + PATIENCE_MS);
                }
            }
            let needed_ms = call.latest_ms + MARGIN_MS;
            let is_later = call.latest_ms > 0 && door.ends_ms.is_none_or(|at_ms| at_ms < needed_ms);
            if is_later {
                door.ends_ms = Some(needed_ms.next_multiple_of(ROUND_MS));
            }
            if is_later || self.holds_end_ms.is_none() {
                self.holds_end_ms = door.ends_ms;
            }
        }
        if self.holds.is_empty() && !self.reduced.is_empty() {
            self.reduced.clear();
        }
        self.settle_expiries();
    }

    /// The weight in use.
    pub(super) fn used(&self) -> u64 {
        match self.door.as_ref().map(|door| &door.held) {
            Some(Held::Whole { .. }) => Demand::EXCLUSIVE.weight(),
            Some(Held::Parts { used, .. }) => *used,
            None => 0,
        }
    }

    /// The token that the holds of parts share.
    pub(super) fn shared_token(&self) -> Option<FencingToken> {
        match self.door.as_ref()?.held {
            Held::Parts { token, .. } => token,
            Held::Whole { .. } => None,
        }
    }

    /// Says how much is held in parts, and with which token.
    pub(super) fn set_parts(&mut self, used: u64, token: Option<FencingToken>) {
        if let Some(door) = &mut self.door {
            door.held = Held::Parts { used, token };
        }
    }

    /// Everything is given back.
    pub(super) fn open(&mut self) {
        if let Some(door) = &mut self.door {
            door.held = FREE;
            door.ends_ms = Some(0);
        }
    }

    /// One member holds everything from now on, for all of its run.
    pub(super) fn close(&mut self, member: &Member, run: Vec<u64>, mark: Mark, ends_ms: u64) {
        let margin_ms = if mark == Mark::None { 0 } else { MARGIN_MS };
        let held = Held::Whole { member: member.clone(), run };
        self.door = Some(Door { held, mark, ends_ms: Some(ends_ms + margin_ms) });
    }
}
