//! The server's state, in terms of the laws.

use laws::Held;
use proto::queue::{Held as Holding, MARGIN_MS, Mark, QueueState};
use proto::{ALL, Member, Party};
use redisson::{Hold, LockState};

use crate::model::{Locking, START_MS};
use crate::state::Id;

/// When every node connected to the server, µs: below all tokens, above no position.
pub(crate) const GREETED_US: u64 = START_MS * 1_000 - 1_000;
/// The token counter. Its value has no effect, so it is reset between commands, and all tokens and
/// positions are moved with it.
const COUNTER: u64 = GREETED_US + 500;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    Queue {
        state: QueueState,
        /// The counter for tokens and positions, shared by all locks of a server.
        counter: Option<u64>,
    },
    /// The state of a lock in the layout shared with JVMs.
    Redisson(LockState),
}

/// The holders at a point in time.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    /// The holds, including expired parts not removed yet.
    pub(crate) holds: Vec<Held<Id>>,
    now_ms: u64,
}

impl Books {
    /// Returns the holds with unexpired leases.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Held<Id>> {
        self.holds.iter().filter(|held| held.is_live)
    }

    pub(crate) fn live_hold(&self, member: Id) -> Option<&Held<Id>> {
        self.live().find(|held| held.member == member)
    }

    /// Returns the total weight of all live holds.
    pub(crate) fn used(&self) -> u64 {
        self.live().map(|held| held.weight).sum()
    }

    /// Returns the remaining lease of a hold, in ms.
    pub(crate) fn left(&self, held: &Held<Id>) -> u32 {
        held.ends_ms.unwrap_or(0).saturating_sub(self.now_ms) as u32
    }
}

impl Server {
    /// Removes expired keys, as Redis does.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        match self {
            Self::Queue { state, .. } => state.expire(now_ms),
            Self::Redisson(lock) => lock.expire(now_ms),
        }
    }

    /// Returns true if the fast path serves an acquire, because the lock is free.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self, Self::Queue { state, .. } if state.lock_key.is_none())
    }

    pub(crate) fn books(&self, model: &Locking, now_ms: u64) -> Books {
        let held = |member: Id, weight: u64, ends_ms: Option<u64>| {
            let is_live = ends_ms.is_none_or(|ends_ms| ends_ms > now_ms);
            Held { member, weight, limit: model.demand(member).limit(), ends_ms, is_live }
        };
        let holds = match self {
            Self::Queue { state, .. } => match state.stored_holder() {
                Some((member, ends_ms)) => {
                    let held = held(model.id(member), ALL.into(), ends_ms);
                    // An expired lock is free for every command.
                    Some(held).filter(|held| held.is_live).into_iter().collect()
                }
                None => {
                    let parts = state.holds.iter();
                    let part = |(ends_ms, member): (u64, &Member)| {
                        held(model.id(member), state.weight(member), Some(ends_ms))
                    };
                    parts.map(part).collect()
                }
            },
            Self::Redisson(lock) => {
                let hold = lock.hold.iter();
                let whole = |hold: &Hold| {
                    held(id_of_party(model, &hold.member), ALL.into(), hold.expires_ms)
                };
                hold.map(whole).collect()
            }
        };
        Books { holds, now_ms }
    }

    /// Returns the members served within a hold of everything, in order.
    pub(crate) fn batch(&self, model: &Locking) -> Vec<Id> {
        let Self::Queue { state, .. } = self else { return Vec::new() };
        let Some((holder, _)) = state.stored_holder() else { return Vec::new() };
        let id = |number: &u64| model.id(&holder.renumbered(*number));
        state.batch().iter().map(id).collect()
    }

    /// Returns the members with a position, in order, including skipped members.
    pub(crate) fn places(&self, model: &Locking) -> Vec<Id> {
        match self {
            Self::Queue { state, .. } => {
                let aside = state.set_aside.values().flat_map(|aside| aside.members.iter());
                let mut places: Vec<_> = state.queue.iter().chain(aside).collect();
                places.sort_unstable();
                places.into_iter().map(|(_, member)| model.id(member)).collect()
            }
            Self::Redisson(lock) => {
                lock.queue.iter().map(|party| id_of_party(model, party)).collect()
            }
        }
    }

    /// Whether the member is in the queue itself, and can be granted.
    pub(crate) fn is_queued(&self, model: &Locking, member: Id) -> bool {
        let member = model.member(member);
        match self {
            Self::Queue { state, .. } => state.queue.get(member).is_some(),
            Self::Redisson(lock) => lock.deadlines.get(&member.into()).is_some(),
        }
    }

    /// Whether the member was skipped and is set aside.
    pub(crate) fn is_aside(&self, model: &Locking, member: Id) -> bool {
        let member = model.member(member);
        match self {
            Self::Queue { state, .. } => {
                let aside = state.set_aside.get(member.node());
                aside.is_some_and(|aside| aside.members.get(member).is_some())
            }
            // The Redisson layout leaves a skipped member in front.
            Self::Redisson(_) => false,
        }
    }

    /// Whether the server has a tombstone for the member.
    pub(crate) fn is_gone(&self, model: &Locking, member: Id) -> bool {
        let member = model.member(member);
        match self {
            Self::Queue { state, .. } => state.tombstones.get(member).is_some(),
            Self::Redisson(lock) => lock.tombstones.contains_key(member),
        }
    }

    /// Returns the time of the next end of a lease or of a waiter's liveness deadline.
    pub(crate) fn next_end(&self, now_ms: u64) -> Option<u64> {
        let next = |ends: &mut dyn Iterator<Item = u64>| ends.filter(|at_ms| *at_ms > now_ms).min();
        match self {
            Self::Queue { state, .. } => {
                let lease = state.stored_holder().and_then(|(_, ends_ms)| ends_ms);
                let parts = state.holds.iter().map(|(at_ms, _)| at_ms);
                let waits = |node: &str| state.queue.iter().any(|(_, waits)| waits.node() == node);
                let patience = state.patience.iter().filter(|(node, _)| waits(node));
                let aside = state.set_aside.values().map(|aside| aside.ends_ms);
                let patience = patience.map(|(_, at_ms)| *at_ms);
                next(&mut lease.into_iter().chain(parts).chain(patience).chain(aside))
            }
            Self::Redisson(lock) => {
                let hold = lock.hold.as_ref().and_then(|hold| hold.expires_ms);
                let alive = lock.alive.iter().map(|(at_ms, _)| at_ms);
                next(&mut hold.into_iter().chain(alive))
            }
        }
    }

    /// Returns the weight in use that the server stores in the lock key; `None` unless the lock is
    /// held in parts (reads or permits).
    pub(crate) fn sum(&self) -> Option<u64> {
        let Self::Queue { state, .. } = self else { return None };
        match state.lock_key.as_ref().map(|lock_key| &lock_key.held) {
            None => Some(0),
            Some(Holding::Parts { used, .. }) => Some(*used),
            Some(Holding::Whole { .. }) => None,
        }
    }

    /// Returns true if the lock's keys are consistent: laws L1 and L2 of the protocol.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Self::Queue { state, .. } => {
                let mark = state.lock_key.as_ref().map_or(Mark::None, |lock_key| lock_key.mark);
                let is_empty = state.queue.is_empty() && state.holds.is_empty();
                (state.lock_key.is_some() || is_empty)
                    && (mark != Mark::None || state.queue.is_empty())
                    && (mark == Mark::Tombstones || state.tombstones.is_empty())
            }
            Self::Redisson(LockState { queue, deadlines, alive, arrivals, .. }) => {
                let has_all =
                    |member: &Party| deadlines.get(member).is_some() && alive.get(member).is_some();
                [deadlines.len(), alive.len(), arrivals.len()].iter().all(|len| *len == queue.len())
                    && queue.iter().all(has_all)
            }
        }
    }

    /// Returns true if every key expires, and no key expires before its content.
    pub(crate) fn is_kept(&self) -> bool {
        match self {
            Self::Queue { state, .. } => {
                let last = state.holds.greatest().map(|(at_ms, _)| at_ms + MARGIN_MS);
                let lock_key = state.lock_key.as_ref();
                let waits = |node: &str| state.queue.iter().any(|(_, waits)| waits.node() == node);
                let patience = state.patience.iter().filter(|(node, _)| waits(node));
                let patience = patience.map(|(_, at_ms)| at_ms + MARGIN_MS).max();
                lock_key.is_none_or(|lock_key| lock_key.ends_ms.is_some())
                    && last.is_none_or(|at_ms| state.holds_end_ms >= Some(at_ms))
                    && last.is_none_or(|at_ms| {
                        lock_key.and_then(|lock_key| lock_key.ends_ms) >= Some(at_ms)
                    })
                    && (state.queue.is_empty() || state.queue_ends_ms >= patience)
            }
            // In Redisson's layout, the queue itself and the token do not expire, because JVMs
            // expect that.
            Self::Redisson(lock) => {
                let last = lock.alive.greatest().map(|(at_ms, _)| at_ms + MARGIN_MS);
                lock.hold.as_ref().is_none_or(|hold| hold.expires_ms.is_some())
                    && last.is_none_or(|at_ms| lock.alive_expires_ms >= Some(at_ms))
            }
        }
    }

    /// Renumbers positions and tokens for the reset counter. Only their order matters. `last` is
    /// the greatest token so far.
    pub(crate) fn renumber(&mut self, last: &mut u64) {
        match self {
            Self::Queue { state, counter: Some(counter) } => {
                let aside = state.set_aside.values().flat_map(|aside| aside.members.iter());
                let aside = aside.map(|(place, member)| (place, member.clone(), true));
                let queued = state.queue.iter();
                let queued = queued.map(|(place, member)| (place, member.clone(), false));
                let mut places: Vec<_> = aside.chain(queued).collect();
                places.sort_unstable();
                let shared = shared_token(state);
                let greatest = places.last().map_or(0, |(place, ..)| *place);
                if *counter < greatest.max(shared.unwrap_or(0)).max(*last) {
                    // The state is wrong, which must not be hidden here.
                    return;
                }
                // A member set aside may have requeued, and have two positions.
                for (place, (_, member, is_aside)) in (GREETED_US + 1..).zip(&places) {
                    if !is_aside {
                        state.queue.set(member, place);
                    } else if let Some(aside) = state.set_aside.get_mut(member.node()) {
                        aside.members.set(member, place);
                    }
                }
                if let Some(shared) = shared {
                    set_shared_token(state, if shared < *last { COUNTER - 1 } else { COUNTER });
                }
                (*counter, *last) = (COUNTER, COUNTER);
            }
            // A Redisson token is a time.
            Self::Queue { .. } | Self::Redisson(_) => {}
        }
    }
}

fn shared_token(state: &QueueState) -> Option<u64> {
    match state.lock_key.as_ref()?.held {
        Holding::Parts { token, .. } => Some(token?.get()),
        Holding::Whole { .. } => None,
    }
}

fn set_shared_token(state: &mut QueueState, to: u64) {
    if let Some(lock_key) = &mut state.lock_key
        && let Holding::Parts { token, .. } = &mut lock_key.held
    {
        *token = to.try_into().ok();
    }
}

fn id_of_party(model: &Locking, party: &Party) -> Id {
    model.id(party.ours().expect("all members are ours"))
}
