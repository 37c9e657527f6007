//! The laws of one command: what it may do to the lock, to those who wait, and what it must tell.

use lockcore::internals::protocol::{
    Hold, LockState, Message, PASSED_OVER_MS, PATIENCE_MS, QUEUE_SLACK_MS,
};

use crate::act::OPERATOR;
use crate::event::Event;
use crate::laws::Law;
use crate::model::{CLAIM_MS, LEASE_MS, Locking, START_MS};
use crate::packet::{Ask, Outcome, Told};
use crate::state::{Id, NUMBERS, State, node_of};

/// A command that ran.
pub(crate) struct Step<'a> {
    pub(crate) model: &'a Locking,
    pub(crate) ask: Ask,
    pub(crate) node: u8,
    pub(crate) is_late: bool,
    pub(crate) now: u32,
    /// As it stood, without what had expired.
    pub(crate) before: &'a LockState,
    pub(crate) after: &'a LockState,
    pub(crate) told: &'a Told,
    /// The token in the reply.
    pub(crate) token: Option<u64>,
    pub(crate) messages: &'a [Message],
}

impl Step<'_> {
    /// Notes in the record what the command did, and which laws it broke.
    pub(crate) fn judge(&self, state: &mut State) {
        state.record.broken = 0;
        self.exclusive(state);
        self.stale(state);
        self.repeated(state);
        self.in_order(state);
        self.follow_line(state);
        self.places_kept(state);
        self.handed_on(state);
        self.true_words(state);
        self.ends(state);
        self.follow_ends(state);
        self.meet();
    }

    fn holder(&self, state: &LockState) -> Option<Id> {
        state.hold.as_ref().map(|hold| self.model.id(&hold.member))
    }

    /// Whom the command granted the lock, if anybody.
    fn granted(&self) -> Option<Id> {
        let token = |state: &LockState| state.token.as_ref().map(|token| token.value);
        let (before, after) = (self.holder(self.before), self.holder(self.after));
        after.filter(|_| before != after || token(self.before) != token(self.after))
    }

    /// Whose hold the command means to end.
    fn may_end(&self, member: Id) -> bool {
        match self.ask {
            Ask::Release { member: of } | Ask::Leave { member: of, .. } => of == member,
            Ask::Force => true,
            _ => false,
        }
    }

    fn exclusive(&self, state: &mut State) {
        if let Some(before) = self.holder(self.before)
            && self.granted().is_some()
            && !self.may_end(before)
        {
            Law::ExclusiveLease.is_broken(state);
        }
    }

    fn stale(&self, state: &mut State) {
        let holder = self.holder(self.before);
        let is_own = match self.ask {
            Ask::Renew { member } => Some(member) == holder,
            _ => holder.is_some_and(|holder| self.may_end(holder)),
        };
        let takes = holder.is_none() && !matches!(self.ask, Ask::Renew { .. });
        if !is_own && !takes && self.before.hold != self.after.hold {
            Law::StaleIsNothing.is_broken(state);
        }
        let counts = matches!(self.told.outcome, Outcome::Released(true));
        let counted = matches!(self.told.outcome, Outcome::Released(_));
        if counted && counts != (is_own && holder.is_some()) {
            Law::ReleasedOnce.is_broken(state);
        }
    }

    fn repeated(&self, state: &mut State) {
        if let Some(granted) = self.granted()
            && state.record.ended & (1 << granted) != 0
        {
            Law::NoZombie.is_broken(state);
        }
        let Ask::Acquire { member, .. } = self.ask else { return };
        let is_gone = self.before.gone.contains_key(self.model.member(member));
        let expected =
            self.told.outcome == if is_gone { Outcome::Refused } else { Outcome::Granted };
        let is_same = self.before.hold == self.after.hold && self.granted().is_none();
        if self.holder(self.before) == Some(member) && !(expected && is_same) {
            Law::SameGrant.is_broken(state);
        }
    }

    /// Whether a grant would reach this member now.
    fn is_reached(&self, state: &State, member: Id) -> bool {
        member / NUMBERS == self.node || state.nodes[node_of(member)].is_connected
    }

    fn in_order(&self, state: &mut State) {
        let Some(granted) = self.granted() else { return };
        let token = self.after.token.as_ref().map_or(0, |token| token.value.get());
        if token <= state.record.token {
            Law::TokensRise.is_broken(state);
        }
        state.record.token = token;
        let line = &state.record.line;
        let ahead = line.iter().take_while(|(member, _)| *member != granted);
        let is_barged = ahead
            .filter(|(_, until)| *until > self.now)
            .any(|(member, _)| !self.may_end(*member) && self.is_reached(state, *member));
        if is_barged {
            Law::InOrder.is_broken(state);
        }
    }

    /// Writes down who waits, by what was answered, and until when each of them may be silent.
    fn follow_line(&self, state: &mut State) {
        let until = self.now + PATIENCE_MS as u32;
        if let Outcome::Touched { waiting, .. } = self.told.outcome {
            for (member, patience) in &mut state.record.line {
                if waiting & (1 << *member) != 0 {
                    *patience = (*patience).max(until);
                }
            }
        }
        let is_refused = self.told.outcome == Outcome::Refused;
        let was_free = self.holder(self.before).is_none_or(|holder| self.may_end(holder));
        if was_free && !is_refused {
            let reached: Vec<_> = state
                .record
                .line
                .iter()
                .map(|(member, _)| self.is_reached(state, *member))
                .collect();
            for ((_, patience), is_reached) in state.record.line.iter_mut().zip(reached) {
                if !is_reached {
                    self.model.meet(Event::PassedOver);
                    *patience = (*patience).min(self.now + PASSED_OVER_MS as u32);
                }
            }
        }
        if let (Ask::Acquire { member, .. }, Outcome::Queued) = (self.ask, self.told.outcome) {
            let line = &mut state.record.line;
            match line.iter_mut().find(|(waiting, _)| *waiting == member) {
                Some((_, patience)) => *patience = (*patience).max(until),
                None => line.push((member, until)),
            }
        }
        let granted = self.granted();
        let has_left = |member| matches!(self.ask, Ask::Leave { member: of, .. } if of == member);
        state.record.line.retain(|(member, _)| Some(*member) != granted && !has_left(*member));
    }

    fn places_kept(&self, state: &mut State) {
        let queue: Vec<Id> = self.after.queue.iter().map(|member| self.model.id(member)).collect();
        let mut place = queue.iter();
        let in_order = state.record.line.iter().all(|(member, _)| place.any(|id| id == member));
        // A score for each who stands in the list, and for nobody else.
        let scored = |member| self.after.deadlines.get(member).is_some();
        let together = self.after.queue.iter().all(scored)
            && self.after.deadlines.len() == self.after.queue.len();
        if !in_order || !together {
            Law::PlaceKept.is_broken(state);
        }
    }

    fn handed_on(&self, state: &mut State) {
        let looks_only = matches!(self.ask, Ask::Renew { .. });
        let is_refused = self.told.outcome == Outcome::Refused;
        let waits = |member: Id| self.is_reached(state, member);
        if self.after.hold.is_none()
            && !looks_only
            && !is_refused
            && state.record.line.iter().any(|(member, _)| waits(*member))
        {
            Law::HandedOn.is_broken(state);
        }
    }

    /// What is left of a hold.
    fn left(&self, hold: &Hold) -> u32 {
        let ends_ms = hold.expires_ms.unwrap_or(0);
        ends_ms.saturating_sub(START_MS + u64::from(self.now)) as u32
    }

    fn true_words(&self, state: &mut State) {
        let after = self.after.hold.as_ref();
        let holder = self.holder(self.after);
        let own = holder.filter(|holder| holder / NUMBERS == self.node);
        let token = self.after.token.as_ref().map(|token| token.value.get());
        let left = after.map_or(0, |hold| self.left(hold));
        let mut is_true = self.told.grant == own
            && self.token == token.filter(|_| own.is_some())
            && self.told.left == left;
        if let Ask::Acquire { member, .. } = self.ask {
            is_true &= (self.told.outcome == Outcome::Granted) == (holder == Some(member))
                || self.told.outcome == Outcome::Refused;
        }
        let granted = self.granted();
        let mut expected = Vec::new();
        if self.node == OPERATOR || self.ask == Ask::Force {
            let revoked = self.before.hold.as_ref();
            expected.extend(revoked.map(|hold| Message::Revoked {
                node: self.model.ids[node_of(self.model.id(&hold.member))].clone(),
                member: hold.member.clone(),
            }));
        }
        if let (Some(granted), Some(hold), Some(token)) = (granted, after, &self.after.token)
            && granted / NUMBERS != self.node
        {
            expected.push(Message::Grant {
                node: self.model.ids[node_of(granted)].clone(),
                member: hold.member.clone(),
                token: token.value,
                left_ms: u64::from(left),
            });
        }
        if !is_true || expected != self.messages {
            Law::TrueWords.is_broken(state);
        }
    }

    /// How long everything lasts.
    fn ends(&self, state: &mut State) {
        let left = self.after.hold.as_ref().map(|hold| self.left(hold));
        let lease = match (self.granted(), self.ask, self.told.outcome) {
            // Its own grant, or its turn in the queue.
            (Some(granted), Ask::Acquire { member, .. }, _) if granted == member => {
                left == Some(LEASE_MS) || left == Some(CLAIM_MS)
            }
            (Some(_), ..) => left == Some(CLAIM_MS),
            (None, Ask::Renew { .. }, Outcome::Held(true)) => left == Some(LEASE_MS),
            _ => true,
        };
        let hold_ends = self.after.hold.as_ref().map(|hold| hold.expires_ms);
        let token_ends = self.after.token.as_ref().and_then(|token| token.expires_ms);
        let is_token_kept = hold_ends.is_none_or(|ends| ends.is_some() && token_ends >= ends);
        // An enqueue behind others may leave the expiry as it is: the slack begins when it is sent.
        let queue_ends = self
            .after
            .deadlines
            .greatest()
            .map(|(last_ms, _)| last_ms - PATIENCE_MS + QUEUE_SLACK_MS);
        let is_queue_kept =
            self.after.queue.is_empty() || self.after.queue_expires_ms >= queue_ends;
        if !(lease && is_token_kept && is_queue_kept) {
            Law::EverythingEnds.is_broken(state);
        }
    }

    fn follow_ends(&self, state: &mut State) {
        let record = &mut state.record;
        match self.ask {
            Ask::Release { member } if self.told.outcome == Outcome::Released(true) => {
                let twice = record.released & (1 << member) != 0;
                record.released |= 1 << member;
                record.ended |= 1 << member;
                if twice {
                    Law::ReleasedOnce.is_broken(state);
                }
            }
            Ask::Leave { member, .. } => record.ended |= 1 << member,
            Ask::Force => {
                record.forced |= self.holder(self.before).map_or(0, |holder| 1 << holder);
            }
            _ => {}
        }
    }

    fn meet(&self) {
        let model = self.model;
        let asked = |granted| matches!(self.ask, Ask::Acquire { member, .. } if member == granted);
        if self.granted().is_some_and(|granted| !asked(granted)) {
            model.meet(Event::HandedOver);
        }
        if self.is_late && self.told.outcome == Outcome::Refused {
            model.meet(Event::LateCopyRefused);
        }
        if let (Ask::Acquire { member, .. }, None) = (self.ask, self.granted())
            && self.holder(self.after) == Some(member)
        {
            model.meet(Event::LateCopyFoundItsGrant);
        }
        if self.ask == Ask::Force {
            model.meet(Event::ForcedOff);
        }
        if matches!(self.told.outcome, Outcome::Held(false)) {
            model.meet(Event::LeaseRanOut);
        }
    }
}
