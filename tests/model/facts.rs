//! A command's facts, all of which are known.

use laws::{Evidence, Held, Kind};

use crate::packet::{Ask, Outcome};
use crate::server::{Said, together};
use crate::state::{Id, State, Waiting};
use crate::step::Step;

/// A command with its effects: the waiters before it, and the state after it.
pub(crate) struct Facts<'a> {
    pub(crate) step: &'a Step<'a>,
    pub(crate) granted: &'a [Held<Id>],
    pub(crate) waited: &'a [Waiting],
    pub(crate) state: &'a State,
}

impl Facts<'_> {
    /// Whether a fitting waiter waits behind an unfitting waiter.
    pub(crate) fn is_kept_for_the_head(&self) -> bool {
        let used = self.in_use();
        let head = self.queue().find(|waiting| waiting.is_reached);
        let fits = |waiting: &Waiting| self.step.model.demand(waiting.member).fits(used);
        head.is_some_and(|head| !head.demand.fits(used)) && self.state.record.line.iter().any(fits)
    }
}

impl Evidence for Facts<'_> {
    type Member = Id;

    fn kind(&self) -> Kind {
        match self.step.ask {
            Ask::Acquire { members, .. } => {
                let (_, _, refused) = self.step.acquired();
                Kind::Acquire { is_refused: refused == members }
            }
            Ask::Release { .. } => {
                Kind::Release { counts: self.step.content.outcome == Outcome::Released(true) }
            }
            Ask::Renew { .. } | Ask::Confirm { .. } => Kind::Extend,
            Ask::Downgrade { .. } => Kind::Lower,
            Ask::Leave { .. } | Ask::Force => Kind::End,
            Ask::Touch { .. } => Kind::Other,
        }
    }

    fn names(&self, named: Id) -> bool {
        match self.step.ask {
            Ask::Release { member }
            | Ask::Renew { member }
            | Ask::Confirm { member }
            | Ask::Downgrade { member, .. } => member == named,
            // The last members of a batch end its hold, even if the hold has the name of another
            // member.
            Ask::Leave { members, served, .. } => {
                let members = members & !served;
                let batch = together(self.step.was.batch(self.step.model));
                members & (1 << named) != 0 || batch != 0 && batch & !members == 0
            }
            Ask::Acquire { members, .. } | Ask::Touch { members } => members & (1 << named) != 0,
            Ask::Force => true,
        }
    }

    fn is_of_several(&self) -> bool {
        matches!(self.step.ask, Ask::Acquire { members, .. } if members.count_ones() > 1)
    }

    fn before(&self) -> &[Held<Id>] {
        &self.step.before.holds
    }

    fn after(&self) -> &[Held<Id>] {
        &self.step.after.holds
    }

    fn granted(&self) -> Vec<Held<Id>> {
        self.granted.to_vec()
    }

    fn batch(&self) -> Vec<Id> {
        self.step.granted_batch(self.granted)
    }

    fn arrivals(&self) -> impl Iterator<Item = Id> {
        self.waited.iter().map(|waiting| waiting.member)
    }

    fn could_be_granted(&self, member: Id) -> bool {
        let is_leaving =
            matches!(self.kind(), Kind::Release { .. } | Kind::End) && self.names(member);
        self.waited.iter().any(|waiting| {
            waiting.member == member && waiting.until > self.step.now && !waiting.is_aside
        }) && !is_leaving
            && self.step.is_reached(self.state, member)
    }

    fn queue(&self) -> impl Iterator<Item = laws::Waiting<Id>> {
        let line = self.state.record.line.iter().filter(|waiting| !waiting.is_aside);
        line.map(|&Waiting { member, .. }| laws::Waiting {
            member,
            demand: self.step.model.demand(member),
            is_reached: self.step.is_reached(self.state, member),
        })
    }

    fn leaves_more(&self) -> bool {
        self.step.content.more
    }

    fn written(&self) -> Option<u64> {
        self.step.is.sum()
    }

    fn reported_tokens(&self) -> Vec<u64> {
        let said = self.step.said.iter().filter_map(|said| match said {
            Said::Granted { token, .. } | Said::Batch { token, .. } => Some(*token),
            Said::Revoked { .. } | Said::Superseded { .. } => None,
        });
        self.step.tokens.iter().copied().chain(said).collect()
    }

    fn last_token(&self) -> u64 {
        self.state.record.token
    }

    fn shared_token(&self) -> u64 {
        self.state.record.token
    }

    fn repeats_token(&self) -> bool {
        self.step.model.scope.beside_jvms
    }
}
