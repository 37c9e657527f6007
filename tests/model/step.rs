//! The laws for single commands: the effects on the lock and the waiters, and the
//! reports.

use laws::{Evidence, Held, Law, judge, new_holds};
use proto::{Demand, PATIENCE_MS};
use redisson::SKIPPED_MS;

use crate::act::OPERATOR;
use crate::books::{Books, Server};
use crate::event::Event;
use crate::facts::Facts;
use crate::model::{CLAIM_MS, LEASE_MS, Locking};
use crate::packet::{Ask, Outcome, ReplyContent};
use crate::properties::breaks;
use crate::server::{Said, bits, together};
use crate::state::{Bits, Id, NUMBERS, State, Waiting, node_of};

/// How long the position of a skipped member is kept, in ms.
const ASIDE_MS: u32 = 15_000;
/// How long, in ms, a new waiter's node may be silent at least before the position is lost. It is
/// less than the usual time, because the node's last contact may be a while ago.
const FRESH_MS: u32 = 10_000;

/// A command that ran on the server, with its effects.
pub(crate) struct Step<'a> {
    pub(crate) model: &'a Locking,
    pub(crate) ask: Ask,
    pub(crate) node: u8,
    pub(crate) is_late: bool,
    pub(crate) now: u32,
    /// The holds before the command, except expired holds.
    pub(crate) before: Books,
    pub(crate) after: Books,
    /// The server before the command.
    pub(crate) was: &'a Server,
    pub(crate) is: &'a Server,
    pub(crate) content: &'a ReplyContent,
    /// The token in the reply, once per reported hold.
    pub(crate) tokens: Vec<u64>,
    /// The number of members that the command skipped.
    pub(crate) skipped: u64,
    pub(crate) said: &'a [Said],
}

impl Step<'_> {
    /// Records the command's effects, and the laws broken by it.
    pub(crate) fn judge(&self, state: &mut State) {
        state.record.broken = 0;
        let granted = self.granted();
        let waited = state.record.line.clone();
        self.follow_line(&granted, state);
        let facts = Facts { step: self, granted: &granted, waited: &waited, state };
        let batch = facts.step.granted_batch(&granted);
        let token = facts.reported_tokens().first().copied();
        let broken = judge(&facts);
        let is_kept_for_the_head = facts.is_kept_for_the_head();
        broken.into_iter().for_each(|broken| breaks(state, broken.law));
        // Each member of the reported batch has the next token.
        let last = token.map(|token| token + self.reported_batch().saturating_sub(1) as u64);
        state.record.token = last.unwrap_or(state.record.token);
        let granted: Vec<Id> = granted.iter().map(|held| held.member).collect();
        if batch.iter().any(|member| state.record.ended & (1 << *member) != 0) {
            breaks(state, Law::S5);
        }
        self.repeated(&granted, state);
        self.positions_kept(state);
        self.true_words(state);
        self.messages(&granted, token, state);
        self.ends(&granted, state);
        self.follow_ends(state);
        self.meet(&granted);
        if !batch.is_empty() {
            self.model.meet(Event::GrantedBatch);
        }
        if is_kept_for_the_head {
            self.model.meet(Event::KeptForTheHead);
        }
    }

    /// Returns the members of an acquire that hold, that wait, and that were refused.
    pub(crate) fn acquired(&self) -> (Bits, Bits, Bits) {
        match self.content.outcome {
            Outcome::Acquired { granted, queued, refused } => (granted, queued, refused),
            _ => (0, 0, 0),
        }
    }

    /// Returns the members that the command acquires for.
    fn asking(&self) -> Bits {
        match self.ask {
            Ask::Acquire { members, .. } => members,
            _ => 0,
        }
    }

    fn asks(&self, member: Id) -> bool {
        self.asking() & (1 << member) != 0
    }

    /// Returns the holds granted by the command, in queue order, followed by the requesting
    /// members' holds.
    fn granted(&self) -> Vec<Held<Id>> {
        let may_rename = matches!(self.ask, Ask::Leave { .. });
        let batch = if may_rename { self.was.batch(self.model) } else { Vec::new() };
        let mut granted = new_holds(&self.before.holds, &self.after.holds, &batch);
        if granted.len() > 1 {
            let places = self.was.places(self.model);
            let place = |held: &Held<Id>| places.iter().position(|id| *id == held.member);
            granted.sort_by_key(|held| (place(held).unwrap_or(places.len()), held.member));
        }
        granted
    }

    /// Returns the batch granted by the command.
    pub(crate) fn granted_batch(&self, granted: &[Held<Id>]) -> Vec<Id> {
        if granted.is_empty() { Vec::new() } else { self.is.batch(self.model) }
    }

    /// Returns the size of the batch that the reply reports.
    fn reported_batch(&self) -> usize {
        let said = self.said.iter().map(|said| match said {
            Said::Batch { members, .. } => members.len(),
            _ => 0,
        });
        said.max().unwrap_or(0).max(self.content.batch.len())
    }

    /// Returns the member's hold after the command, alone or within a batch.
    fn hold_of(&self, server: &Server, books: &Books, member: Id) -> Option<Held<Id>> {
        let batch = server.batch(self.model);
        match books.live().next() {
            Some(held) if batch.contains(&member) => Some(*held),
            _ if batch.is_empty() => books.live_hold(member).copied(),
            _ => None,
        }
    }

    fn repeated(&self, granted: &[Id], state: &mut State) {
        if granted.iter().any(|member| state.record.ended & (1 << *member) != 0) {
            breaks(state, Law::S5);
        }
        let (holding, _, refused) = self.acquired();
        for member in bits(self.asking()) {
            let Some(before) = self.hold_of(self.was, &self.before, member) else { continue };
            let is_gone = self.was.is_gone(self.model, member);
            let expected = if is_gone { refused } else { holding };
            // The free weight may have been granted to another member of the command.
            let is_alone = self.asking() == 1 << member;
            let is_same = self.hold_of(self.is, &self.after, member) == Some(before)
                && (granted.is_empty() || !is_alone && !granted.contains(&member));
            if !(expected & (1 << member) != 0 && is_same) {
                breaks(state, Law::S5);
            }
        }
    }

    /// Returns the superseded members, the last first: all other waiters of the newest member's
    /// kind, if it was newly queued.
    fn superseded(&self, granted: &[Id]) -> Vec<Id> {
        let Some(newest) = self.newest() else { return Vec::new() };
        let waited = self.was.places(self.model).into_iter().rev();
        let is_older = |id: &Id| {
            *id != newest
                && self.model.keeps_newest(*id)
                && self.was.is_queued(self.model, *id)
                && !granted.contains(id)
                && !self.is.is_aside(self.model, *id)
        };
        waited.filter(is_older).collect()
    }

    /// Returns the member newly queued by this command in keep-the-newest mode.
    fn newest(&self) -> Option<Id> {
        let (_, queued, _) = self.acquired();
        let is_new = |id: &Id| self.model.keeps_newest(*id) && !self.was.is_queued(self.model, *id);
        bits(queued).find(is_new)
    }

    /// Whether a member may supersede another member, by their numbers.
    fn may_supersede(&self, newest: Id, older: Id) -> bool {
        let [newest, older] = [newest, older].map(|id| self.model.member(id));
        let is_by_number = newest.was_requeued() || newest.node() == older.node();
        !is_by_number || older.number() < newest.number()
    }

    /// Whether a superseded member is out of the queue for good.
    fn has_left(&self, member: Id) -> bool {
        !self.is.places(self.model).contains(&member) && self.is.is_gone(self.model, member)
    }

    /// Returns true if the command has downgraded a lock to a read.
    fn is_downgraded(&self) -> bool {
        let Ask::Downgrade { member, .. } = self.ask else { return false };
        let weight = |books: &Books| books.live_hold(member).map(|held| held.weight);
        weight(&self.before) == Some(Demand::EXCLUSIVE.weight())
            && weight(&self.after) == Some(Demand::READ.weight())
    }

    /// Whether a grant would reach this member now.
    pub(crate) fn is_reached(&self, state: &State, member: Id) -> bool {
        member / NUMBERS == self.node || state.nodes[node_of(member)].is_connected
    }

    /// Records the waiters, from the reply, and how long each may be silent.
    fn follow_line(&self, granted: &[Held<Id>], state: &mut State) {
        if let Outcome::Touched { waiting: found, .. } = self.content.outcome {
            for waiting in &mut state.record.line {
                if found & (1 << waiting.member) != 0 {
                    waiting.until = waiting.until.max(self.now + PATIENCE_MS as u32);
                    waiting.is_aside = false;
                }
            }
        }
        self.follow_those_away(state);
        let (_, queued, _) = self.acquired();
        for member in bits(queued) {
            let until = self.now + FRESH_MS;
            let line = &mut state.record.line;
            match line.iter_mut().find(|waiting| waiting.member == member) {
                Some(waiting) => waiting.until = waiting.until.max(until),
                None => line.push(Waiting { member, until, is_aside: false }),
            }
        }
        let has_left = |member: Id| matches!(self.ask, Ask::Leave { members, .. } if members & (1 << member) != 0);
        let places = self.is.places(self.model);
        let granted_members: Vec<Id> = granted.iter().map(|held| held.member).collect();
        let superseded = self.superseded(&granted_members);
        state.record.ended |= together(superseded.iter().copied());
        if superseded.iter().any(|member| !self.has_left(*member)) {
            breaks(state, Law::F2);
        }
        let newest = self.newest().unwrap_or_default();
        if superseded.iter().any(|older| !self.may_supersede(newest, *older)) {
            breaks(state, Law::F2);
        }
        state.record.line.retain(|Waiting { member, until, .. }| {
            let is_over = *until <= self.now && !places.contains(member);
            let is_granted = granted.iter().any(|held| held.member == *member);
            let is_granted = is_granted || self.granted_batch(granted).contains(member);
            !is_granted && !has_left(*member) && !is_over && !superseded.contains(member)
        });
    }

    /// Records waiters that were skipped as unreachable: the queue sets them aside; the Redisson
    /// layout leaves them in their positions, but not for long.
    fn follow_those_away(&self, state: &mut State) {
        let mut line = std::mem::take(&mut state.record.line);
        for waiting in &mut line {
            let member = waiting.member;
            let is_aside = self.is.is_aside(self.model, member);
            if is_aside && !self.was.is_aside(self.model, member) {
                if self.is_reached(state, member) {
                    breaks(state, Law::F2);
                }
                (waiting.until, waiting.is_aside) = (self.now + ASIDE_MS, true);
            }
            let is_lowered = self.model.scope.beside_jvms && self.skipped > 0;
            if is_lowered && !self.is_reached(state, member) {
                waiting.until = waiting.until.min(self.now + SKIPPED_MS as u32);
            }
        }
        state.record.line = line;
    }

    /// Checks that all waiters have their positions, in order, and that each waiter just touched is
    /// in the queue, even if it was skipped.
    fn positions_kept(&self, state: &mut State) {
        let places = self.is.places(self.model);
        let mut place = places.iter();
        let mut line = state.record.line.iter().filter(|waiting| waiting.until > self.now);
        let in_order = line.all(|waiting| place.any(|id| *id == waiting.member));
        let is_back = |waiting: &Waiting| match self.ask {
            Ask::Touch { members } if members & (1 << waiting.member) != 0 => {
                self.is.is_queued(self.model, waiting.member)
            }
            _ => true,
        };
        let mut line = state.record.line.iter().filter(|waiting| waiting.until > self.now);
        if !in_order || !line.all(is_back) || !self.is.is_whole() {
            breaks(state, Law::F2);
        }
    }

    /// Returns the holds that the reply must report, with each remaining lease.
    fn to_report(&self) -> Vec<(Id, u32)> {
        let own = self.after.live().filter(|held| held.member / NUMBERS == self.node);
        let reported =
            own.filter(|held| self.model.scope.beside_jvms || self.is_reported(held.member));
        // A downgrade only reports whether the named hold is held.
        let is_lowered = |of: Id| matches!(self.ask, Ask::Downgrade { member, .. } if member == of);
        let left =
            |held: &Held<Id>| if is_lowered(held.member) { 0 } else { self.after.left(held) };
        reported.map(|held| (held.member, left(held))).collect()
    }

    /// Whether a downgrade's hold belongs to the served member. Once that member has left the
    /// batch, the hold belongs to the others.
    fn is_its(&self, served: Id) -> bool {
        let batch = self.was.batch(self.model);
        batch.is_empty() || batch.contains(&served)
    }

    /// Whether a reply reports this hold: not every hold, since there may be many. The Redisson
    /// layout reports its only hold.
    fn is_reported(&self, member: Id) -> bool {
        let is_asked_for = match self.ask {
            Ask::Confirm { member: of } => of == member,
            Ask::Downgrade { member: of, served, .. } => of == member && self.is_its(served),
            Ask::Acquire { members, .. } | Ask::Touch { members } => {
                let batch = self.is.batch(self.model);
                let asks = |member: &Id| members & (1 << *member) != 0;
                if batch.is_empty() { asks(&member) } else { batch.iter().any(asks) }
            }
            _ => false,
        };
        is_asked_for || self.before.live_hold(member).is_none()
    }

    /// Returns the time to the first end: 1 for an expired lease that was not removed yet, so that
    /// the node sends a request immediately.
    fn left(&self) -> u32 {
        let left = self.after.holds.iter().map(|held| self.after.left(held).max(1));
        left.min().unwrap_or(0)
    }

    fn true_words(&self, state: &mut State) {
        let mut reported = self.content.grants.clone();
        let mut expected = self.to_report();
        reported.sort_unstable();
        expected.sort_unstable();
        // A renewal does not look up the ends of other holds.
        let is_end_reported = !matches!(self.ask, Ask::Renew { .. });
        let batch = if reported.is_empty() { Vec::new() } else { self.is.batch(self.model) };
        let is_batch_reported =
            self.content.batch == batch || matches!(self.ask, Ask::Downgrade { .. });
        let mut is_true = reported == expected
            && is_batch_reported
            && (!is_end_reported || self.content.left == self.left());
        let (holding, _, refused) = self.acquired();
        for member in bits(self.asking() & !refused) {
            let holds = self.hold_of(self.is, &self.after, member).is_some();
            is_true &= (holding & (1 << member) != 0) == holds;
        }
        if let Outcome::Touched { superseded, .. } = self.content.outcome {
            is_true &= bits(superseded).all(|member| self.has_left(member));
        }
        let asked_for = match self.ask {
            Ask::Renew { member } | Ask::Confirm { member } => Some((member, true)),
            Ask::Downgrade { member, served, .. } => Some((member, self.is_its(served))),
            _ => None,
        };
        if let Some((member, is_its)) = asked_for {
            let holds = is_its && self.after.live_hold(member).is_some();
            is_true &= self.content.outcome == Outcome::Held(holds);
        }
        if !is_true {
            breaks(state, Law::T1);
        }
    }

    /// Checks that each other node is notified about its own members immediately, and about no
    /// others.
    fn messages(&self, granted: &[Id], token: Option<u64>, state: &mut State) {
        let mut expected = Vec::new();
        if self.node == OPERATOR || self.ask == Ask::Force {
            for held in &self.before.holds {
                revoke(&mut expected, held.member);
                for member in self.was.batch(self.model) {
                    if member != held.member {
                        revoke(&mut expected, member);
                    }
                }
            }
        }
        for member in self.superseded(granted) {
            supersede(&mut expected, member);
        }
        for member in granted.iter().filter(|member| **member / NUMBERS != self.node) {
            let held = self.after.live_hold(*member);
            let left = held.map_or(0, |held| self.after.left(held));
            let (batch, token) = (self.is.batch(self.model), token.unwrap_or(0));
            if !batch.is_empty() {
                let node = member / NUMBERS;
                expected.push(Said::Batch { node, token, members: batch, left });
                continue;
            }
            grant(&mut expected, *member, left, token);
        }
        if expected != self.said {
            breaks(state, Law::T1);
        }
    }

    /// Checks how long each lease and each position lasts.
    fn ends(&self, granted: &[Id], state: &mut State) {
        let left = |member: Id| self.after.live_hold(member).map(|held| self.after.left(held));
        let mut is_right = granted.iter().all(|granted| {
            let asked = self.asks(*granted);
            // A full lease by the member's own acquire, or a claim by hand-off.
            left(*granted) == Some(CLAIM_MS) || asked && left(*granted) == Some(LEASE_MS)
        });
        if let (Ask::Renew { member } | Ask::Confirm { member }, Outcome::Held(true)) =
            (self.ask, self.content.outcome)
        {
            is_right &= left(member) == Some(LEASE_MS);
        }
        if !(is_right && self.is.is_kept()) {
            breaks(state, Law::T2);
        }
    }

    fn follow_ends(&self, state: &mut State) {
        let record = &mut state.record;
        match self.ask {
            Ask::Release { member } if self.content.outcome == Outcome::Released(true) => {
                let twice = record.released & (1 << member) != 0;
                record.released |= 1 << member;
                record.ended |= 1 << member;
                if twice {
                    breaks(state, Law::S6);
                }
            }
            Ask::Leave { members, .. } => record.ended |= members,
            Ask::Force => {
                for held in &self.before.holds {
                    record.unnotified |= 1 << held.member;
                }
            }
            _ => {}
        }
    }

    fn meet(&self, granted: &[Id]) {
        let model = self.model;
        let (holding, _, refused) = self.acquired();
        if granted.iter().any(|granted| !self.asks(*granted)) {
            model.meet(Event::HandedOver);
        }
        if self.asking().count_ones() > 1 {
            model.meet(Event::AskedTogether);
        }
        if granted.len() > 1 {
            model.meet(Event::GrantedTogether);
        }
        if self.is_late && refused != 0 {
            model.meet(Event::LateCopyRefused);
        }
        if bits(holding).any(|member| !granted.contains(&member)) {
            model.meet(Event::LateCopyFoundItsGrant);
        }
        if self.ask == Ask::Force {
            model.meet(Event::ForcedOff);
        }
        if matches!(self.content.outcome, Outcome::Held(false)) {
            model.meet(Event::LeaseRanOut);
        }
        if self.is_downgraded() {
            model.meet(Event::Downgraded);
        }
        if self.skipped > 0 {
            model.meet(Event::Skipped);
        }
        let is_back = |member| self.was.is_aside(model, member) && !self.is.is_aside(model, member);
        if let Ask::Touch { members } = self.ask
            && bits(members).any(is_back)
        {
            model.meet(Event::CameBack);
        }
        if !self.superseded(granted).is_empty() {
            model.meet(Event::Superseded);
        }
        if matches!(self.content.outcome, Outcome::Touched { superseded: 1.., .. }) {
            model.meet(Event::FoundSuperseded);
        }
        if self.content.more {
            model.meet(Event::LeftForLater);
        }
    }
}

fn revoke(said: &mut Vec<Said>, member: Id) {
    let node = member / NUMBERS;
    let listed = said.iter_mut().find_map(|said| match said {
        Said::Revoked { node: of, members } if *of == node => Some(members),
        _ => None,
    });
    match listed {
        Some(members) => members.push(member),
        None => said.push(Said::Revoked { node, members: vec![member] }),
    }
}

fn supersede(said: &mut Vec<Said>, member: Id) {
    let node = member / NUMBERS;
    let listed = said.iter_mut().find_map(|said| match said {
        Said::Superseded { node: of, members } if *of == node => Some(members),
        _ => None,
    });
    match listed {
        Some(members) => members.push(member),
        None => said.push(Said::Superseded { node, members: vec![member] }),
    }
}

fn grant(said: &mut Vec<Said>, member: Id, left: u32, token: u64) {
    let node = member / NUMBERS;
    let listed = said.iter_mut().find_map(|said| match said {
        Said::Granted { node: of, members, .. } if *of == node => Some(members),
        _ => None,
    });
    match listed {
        Some(members) => members.push((member, left)),
        None => said.push(Said::Granted { node, token, members: vec![(member, left)] }),
    }
}
