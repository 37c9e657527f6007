//! What the server keeps, of either protocol, in the words of the laws.

use lockcore::internals::Party;
use lockcore::internals::protocol::permits::{ALL, PermitState};
use lockcore::internals::protocol::{LockState, PATIENCE_MS, QUEUE_SLACK_MS};

use crate::model::Locking;
use crate::state::Id;

/// How long a resource's keys outlive the last thing in them, at least.
const MEMORY_MS: u64 = 60_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    Mutex(LockState),
    /// What is read, written or held in permits.
    Shared(PermitState),
}

/// A hold. That of a mutex weighs what a write does: it keeps out all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) member: Id,
    /// Nothing if it never ends.
    pub(crate) ends_ms: Option<u64>,
    pub(crate) weight: u64,
}

/// Who holds, at one time.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    /// With those whose leases have ended but that are still there.
    pub(crate) holds: Vec<Held>,
    pub(crate) token: Option<u64>,
    now_ms: u64,
}

impl Books {
    /// The holds whose leases have not ended.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Held> {
        self.holds.iter().filter(|held| held.ends_ms.is_none_or(|ends_ms| ends_ms > self.now_ms))
    }

    pub(crate) fn live_hold(&self, member: Id) -> Option<&Held> {
        self.live().find(|held| held.member == member)
    }

    /// What is left of a hold's lease.
    pub(crate) fn left(&self, held: &Held) -> u32 {
        held.ends_ms.unwrap_or(0).saturating_sub(self.now_ms) as u32
    }
}

impl Server {
    /// Forgets what Redis forgets by itself.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        match self {
            Self::Mutex(lock) => lock.expire(now_ms),
            Self::Shared(resource) => resource.expire(now_ms),
        }
    }

    pub(crate) fn books(&self, model: &Locking, now_ms: u64) -> Books {
        let token = match self {
            Self::Mutex(lock) => lock.token.as_ref().map(|token| token.value),
            Self::Shared(resource) => resource.token,
        };
        Books { holds: self.holds(model), token: token.map(Into::into), now_ms }
    }

    fn holds(&self, model: &Locking) -> Vec<Held> {
        match self {
            Self::Mutex(lock) => {
                let hold = lock.hold.iter().map(|hold| Held {
                    member: id_of_party(model, &hold.member),
                    ends_ms: hold.expires_ms,
                    weight: u64::from(ALL),
                });
                hold.collect()
            }
            Self::Shared(resource) => {
                let held = resource.holds.iter().map(|(ends_ms, member)| Held {
                    member: model.id(member),
                    ends_ms: Some(ends_ms),
                    weight: resource.weight(member),
                });
                held.collect()
            }
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Mutex(lock) => lock.hold.is_some(),
            Self::Shared(resource) => !resource.holds.is_empty(),
        }
    }

    /// Who waits, in order.
    pub(crate) fn queue(&self, model: &Locking) -> Vec<Id> {
        match self {
            Self::Mutex(lock) => lock.queue.iter().map(|party| id_of_party(model, party)).collect(),
            Self::Shared(resource) => {
                resource.queue.iter().map(|(_, member)| model.id(member)).collect()
            }
        }
    }

    /// Whether exactly those have a deadline who have a place.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Mutex(LockState { queue, deadlines, .. }) => {
                deadlines.len() == queue.len()
                    && queue.iter().all(|member| deadlines.get(member).is_some())
            }
            Self::Shared(PermitState { queue, deadlines, .. }) => {
                deadlines.len() == queue.len()
                    && queue.iter().all(|(_, member)| deadlines.get(member).is_some())
            }
        }
    }

    pub(crate) fn has_place(&self, model: &Locking, member: Id) -> bool {
        let member = model.member(member);
        match self {
            Self::Mutex(lock) => lock.deadlines.get(&member.into()).is_some(),
            Self::Shared(resource) => resource.deadlines.get(member).is_some(),
        }
    }

    /// Whether it was given up for good.
    pub(crate) fn is_gone(&self, model: &Locking, member: Id) -> bool {
        let (Self::Mutex(LockState { gone, .. }) | Self::Shared(PermitState { gone, .. })) = self;
        gone.contains_key(model.member(member))
    }

    /// The next end of a lease or of a deadline.
    pub(crate) fn next_end(&self, now_ms: u64) -> Option<u64> {
        match self {
            Self::Mutex(lock) => {
                let hold = lock.hold.as_ref().and_then(|hold| hold.expires_ms);
                let deadlines = lock.deadlines.iter().map(|(at_ms, _)| at_ms);
                hold.into_iter().chain(deadlines).filter(|at_ms| *at_ms > now_ms).min()
            }
            Self::Shared(resource) => {
                let ends = resource.holds.iter().chain(resource.deadlines.iter());
                ends.map(|(at_ms, _)| at_ms).filter(|at_ms| *at_ms > now_ms).min()
            }
        }
    }

    /// What is in use, as the server has written it down. It keeps no sum of a mutex.
    pub(crate) fn sum(&self) -> Option<u64> {
        match self {
            Self::Mutex(_) => None,
            Self::Shared(resource) => Some(resource.used.unwrap_or(0)),
        }
    }

    /// Whether every key ends, and none sooner than what is in it.
    pub(crate) fn is_kept(&self) -> bool {
        match self {
            Self::Mutex(lock) => is_mutex_kept(lock),
            Self::Shared(resource) => {
                let ends = [resource.holds.greatest(), resource.deadlines.greatest()];
                let last = ends.into_iter().flatten().map(|(at_ms, _)| at_ms).max();
                last.is_none_or(|at_ms| resource.ends_ms >= Some(at_ms + MEMORY_MS))
            }
        }
    }
}

fn id_of_party(model: &Locking, party: &Party) -> Id {
    model.id(party.ours().expect("all members are ours"))
}

fn is_mutex_kept(lock: &LockState) -> bool {
    let hold_ends = lock.hold.as_ref().map(|hold| hold.expires_ms);
    let token_ends = lock.token.as_ref().and_then(|token| token.expires_ms);
    let is_token_kept = hold_ends.is_none_or(|ends| ends.is_some() && token_ends >= ends);
    // An enqueue behind others may leave the expiry as it is: the slack begins when it is sent.
    let last_ms = lock.deadlines.greatest().map(|(last_ms, _)| last_ms);
    let queue_ends = last_ms.map(|last_ms| last_ms - PATIENCE_MS + QUEUE_SLACK_MS);
    is_token_kept && (lock.queue.is_empty() || lock.queue_expires_ms >= queue_ends)
}
