//! What the server keeps of each lock: of a mutex, or of what is read, written or held in permits.

use lockcore::internals::protocol::LockState;
use lockcore::internals::protocol::permits::{ALL, Bounds, Era, PermitState};
use lockcore::internals::{Demand, Member, Party};

use crate::dice::Dice;
use crate::judge::{Who, who};
use crate::plan::Plan;

/// What a lock is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Mutex,
    ReadWrite,
    /// So many at a time, and now and then all of it for one.
    Permits(u32),
}

impl Form {
    pub(crate) fn of(plan: &Plan, lock: u64) -> Self {
        match (plan.seed + lock) % 4 {
            0 | 1 => Self::Mutex,
            2 => Self::ReadWrite,
            _ => Self::Permits(2 + (plan.seed / 4 % 5) as u32),
        }
    }

    /// What somebody asks for.
    pub(crate) fn demand(self, dice: &mut Dice) -> Option<Demand> {
        match self {
            Self::Mutex => None,
            Self::ReadWrite if dice.one_in(3) => Some(Demand::ALONE),
            Self::ReadWrite => Some(Demand::READ),
            Self::Permits(_) if dice.one_in(12) => Some(Demand::ALONE),
            Self::Permits(limit) => {
                let weight = 1 + dice.below(u64::from(limit.min(3))) as u32;
                Demand::permits(weight, limit)
            }
        }
    }
}

/// How much one command does: in every third run so little that much is left for the next.
pub(crate) fn bounds(plan: &Plan) -> Bounds {
    match plan.seed % 3 {
        0 => Bounds { granted: 2, reclaimed: 2, ..Bounds::default() },
        _ => Bounds::default(),
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Resource {
    Mutex(LockState),
    Shared(PermitState),
}

/// A hold. That of a mutex weighs what a write does: it keeps out all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) who: Who,
    pub(crate) ends_ms: u64,
    pub(crate) weight: u64,
    /// How much may be in use with it.
    pub(crate) limit: u64,
}

fn who_of(party: &Party) -> Who {
    who(party.ours().expect("all members are ours"))
}

impl Resource {
    pub(crate) fn of(form: Form) -> Self {
        match form {
            Form::Mutex => Self::Mutex(LockState::default()),
            Form::ReadWrite | Form::Permits(_) => Self::Shared(PermitState::default()),
        }
    }

    /// All locks of a run, as a server has them that knows nothing.
    pub(crate) fn all(plan: &Plan) -> Vec<Self> {
        (0..plan.locks).map(|lock| Self::of(Form::of(plan, lock))).collect()
    }

    pub(crate) fn expire(&mut self, now_ms: u64) {
        match self {
            Self::Mutex(lock) => lock.expire(now_ms),
            Self::Shared(resource) => resource.expire(now_ms),
        }
    }

    /// Who holds, with those whose leases have ended but that are still there.
    pub(crate) fn holds(&self) -> Vec<Held> {
        match self {
            Self::Mutex(lock) => {
                let hold = lock.hold.iter().map(|hold| Held {
                    who: who_of(&hold.member),
                    ends_ms: hold.expires_ms.unwrap_or(u64::MAX),
                    weight: u64::from(ALL),
                    limit: u64::from(ALL),
                });
                hold.collect()
            }
            Self::Shared(resource) => {
                let held = resource.holds.iter().map(|(ends_ms, member)| Held {
                    who: who(member),
                    ends_ms,
                    weight: resource.weight(member),
                    limit: member.demand().limit(),
                });
                held.collect()
            }
        }
    }

    /// The same without those whose leases have ended.
    pub(crate) fn live(&self, now_ms: u64) -> Vec<Held> {
        let mut held = self.holds();
        held.retain(|held| held.ends_ms > now_ms);
        held
    }

    /// Who waits, in order.
    pub(crate) fn queue(&self) -> Vec<Who> {
        match self {
            Self::Mutex(lock) => lock.queue.iter().map(who_of).collect(),
            Self::Shared(resource) => {
                resource.queue.iter().map(|(_, member)| who(member)).collect()
            }
        }
    }

    pub(crate) fn queue_len(&self) -> u64 {
        match self {
            Self::Mutex(lock) => lock.queue.len() as u64,
            Self::Shared(resource) => resource.queue.len() as u64,
        }
    }

    /// Whether it holds or waits.
    pub(crate) fn knows(&self, member: &Member) -> bool {
        match self {
            Self::Mutex(lock) => {
                lock.hold.as_ref().is_some_and(|hold| hold.member == *member)
                    || lock.deadlines.get(&member.into()).is_some()
            }
            Self::Shared(resource) => {
                resource.holds.get(member).is_some() || resource.queue.get(member).is_some()
            }
        }
    }

    pub(crate) fn token(&self) -> Option<u64> {
        let token = match self {
            Self::Mutex(lock) => lock.token.as_ref().map(|token| token.value),
            Self::Shared(resource) => resource.token,
        };
        token.map(Into::into)
    }

    /// Whether those who come to share get the token that there is.
    pub(crate) fn shares_its_token(&self) -> bool {
        matches!(self, Self::Shared(resource) if resource.era == Some(Era::Shared))
    }

    /// What is in use, as it was written down and as it is; the server keeps no sum of a mutex.
    pub(crate) fn sums(&self) -> Option<(u64, u64)> {
        let Self::Shared(resource) = self else { return None };
        let is = resource.holds.iter().map(|(_, member)| resource.weight(member)).sum();
        Some((resource.used.unwrap_or(0), is))
    }

    /// The first that could be granted now, if it waits although what it asks for is free.
    pub(crate) fn left_waiting(&self, now_ms: u64, hears: impl Fn(u64) -> bool) -> Option<Who> {
        let Self::Shared(resource) = self else { return None };
        let used: u64 = self.live(now_ms).iter().map(|held| held.weight).sum();
        let looked_at = resource.queue.iter().take(Bounds::default().looked_at);
        for (_, member) in looked_at {
            if resource.deadlines.get(member).is_none_or(|until_ms| until_ms <= now_ms) {
                continue;
            }
            // Nothing is free by its limit: then it is not asked whether it is there.
            if used >= member.demand().limit() {
                return None;
            }
            let who = who(member);
            if hears(who.0) {
                return member.demand().fits(used).then_some(who);
            }
        }
        None
    }
}
