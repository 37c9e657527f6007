//! `State`: everything that a server stores about a lock, in either layout, with the queries of the
//! facts.

use proto::queue::{MARGIN_MS, Mark, QueueState};
use proto::{Member, NodeId, Party, SortedSet};
use redisson::LockState;

/// A lock. Times are ms since the epoch; queries take the server's time first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    Queue(QueueState),
    Redisson(LockState),
}

impl State {
    /// The state in our layout.
    pub(crate) fn of_queue(&mut self) -> &mut QueueState {
        let Self::Queue(state) = self else { panic!("the layout is Redisson's") };
        state
    }

    /// The state in Redisson's layout.
    pub(crate) fn of_redisson(&mut self) -> &mut LockState {
        let Self::Redisson(state) = self else { panic!("the layout is the queue's") };
        state
    }

    /// The party with an exclusive hold, and the lease end; `None` without an end.
    pub(crate) fn hold(&self, now_ms: u64) -> Option<(Party, Option<u64>)> {
        let (party, ends_ms) = match self {
            Self::Queue(state) => {
                let (member, ends_ms) = state.stored_holder()?;
                (Party::from(member), ends_ms)
            }
            Self::Redisson(state) => {
                let hold = state.hold.as_ref()?;
                (hold.member.clone(), hold.expires_ms)
            }
        };
        ends_ms.is_none_or(|at_ms| at_ms > now_ms).then_some((party, ends_ms))
    }

    /// Ends the lease of the exclusive hold at this time; `None` for no end.
    pub(crate) fn set_lease_end(&mut self, ends_ms: Option<u64>) {
        match self {
            Self::Queue(state) => {
                let lock_key = state.lock_key.as_mut().expect("the lock is held");
                let margin_ms = if lock_key.mark == Mark::None { 0 } else { MARGIN_MS };
                lock_key.ends_ms = ends_ms.map(|at_ms| at_ms + margin_ms);
            }
            Self::Redisson(state) => {
                state.hold.as_mut().expect("the lock is held").expires_ms = ends_ms;
            }
        }
    }

    /// The members that hold parts, with the ends of their leases.
    pub(crate) fn parts(&self) -> Vec<(Member, u64)> {
        let Self::Queue(state) = self else { return Vec::new() };
        state.holds.iter().map(|(ends_ms, member)| (member.clone(), ends_ms)).collect()
    }

    /// The waiting members, next first.
    pub(crate) fn queue(&self) -> Vec<Party> {
        match self {
            Self::Queue(state) => state.queue.iter().map(|(_, one)| Party::from(one)).collect(),
            Self::Redisson(state) => state.queue.iter().cloned().collect(),
        }
    }

    /// The skipped members of the node, by position.
    pub(crate) fn aside(&self, node: &NodeId) -> Vec<Member> {
        let Self::Queue(state) = self else { return Vec::new() };
        let aside = state.set_aside.get(node.as_str());
        aside
            .into_iter()
            .flat_map(|aside| aside.members.iter())
            .map(|(_, one)| one.clone())
            .collect()
    }

    /// The members that gave up, sorted, and when each tombstone is removed.
    pub(crate) fn tombstones(&self) -> Vec<(Member, u64)> {
        let mut gone: Vec<_> = match self {
            Self::Queue(state) => {
                state.tombstones.iter().map(|(at, one)| (one.clone(), at)).collect()
            }
            Self::Redisson(state) => {
                state.tombstones.iter().map(|(one, at)| (one.clone(), *at)).collect()
            }
        };
        gone.sort();
        gone
    }

    /// The expiry of the key that records that there are tombstones, if it is a separate key.
    pub(crate) fn mark_ends_ms(&self) -> Option<u64> {
        let Self::Queue(state) = self else { return None };
        state.lock_key.as_ref()?.ends_ms
    }

    /// Until when the waiting member is assumed alive.
    pub(crate) fn alive_until(&self, member: &Party) -> Option<u64> {
        match self {
            Self::Queue(state) => state.patience.get(member.ours()?.node()).copied(),
            Self::Redisson(state) => match member.ours() {
                Some(_) => state.alive.get(member),
                None => state.deadlines.get(member),
            },
        }
    }

    /// Sets until when the waiting member is assumed alive.
    pub(crate) fn set_alive_until(&mut self, member: &Party, at_ms: u64) {
        match self {
            Self::Queue(state) => {
                let node = member.ours().expect("JVMs wait elsewhere").node();
                state.patience.insert(node.into(), at_ms);
            }
            Self::Redisson(state) => match member.ours() {
                Some(_) => state.alive.set(member, at_ms),
                None => state.deadlines.set(member, at_ms),
            },
        }
    }

    /// Whether nothing is stored.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Queue(state) => *state == QueueState::default(),
            Self::Redisson(state) => state.is_empty(),
        }
    }

    /// Removes expired keys.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        match self {
            Self::Queue(state) => state.expire(now_ms),
            Self::Redisson(state) => state.expire(now_ms),
        }
    }

    /// Lets `ms` pass: everything ends that much earlier.
    pub(crate) fn pass(&mut self, ms: u64) {
        match self {
            Self::Queue(state) => pass_of_queue(state, ms),
            Self::Redisson(state) => pass_of_redisson(state, ms),
        }
    }
}

fn pass_of_queue(state: &mut QueueState, ms: u64) {
    let ends = [&mut state.queue_ends_ms, &mut state.holds_end_ms];
    let lock_key = state.lock_key.as_mut().map(|lock_key| &mut lock_key.ends_ms);
    for at_ms in ends.into_iter().chain(lock_key).flatten() {
        *at_ms -= ms;
    }
    earlier(&mut state.holds, ms);
    earlier(&mut state.tombstones, ms);
    state.patience.values_mut().chain(&mut state.swept_until_ms).for_each(|at_ms| *at_ms -= ms);
    state.set_aside.values_mut().for_each(|aside| aside.ends_ms -= ms);
}

fn earlier<M: Ord + Clone>(set: &mut SortedSet<M>, ms: u64) {
    let scores: Vec<(u64, M)> = set.iter().map(|(score, one)| (score, one.clone())).collect();
    for (score, one) in scores {
        set.set(&one, score - ms);
    }
}

fn pass_of_redisson(state: &mut LockState, ms: u64) {
    let hold = state.hold.as_mut().map(|hold| &mut hold.expires_ms);
    let token = state.token.as_mut().map(|token| &mut token.expires_ms);
    let ends =
        [&mut state.queue_expires_ms, &mut state.alive_expires_ms, &mut state.suspects.expire_ms];
    for at_ms in ends.into_iter().chain(hold).chain(token).flatten() {
        *at_ms -= ms;
    }
    earlier(&mut state.alive, ms);
    earlier(&mut state.deadlines, ms);
    state.tombstones.values_mut().for_each(|at_ms| *at_ms -= ms);
    let suspects = state.suspects.since_ms.iter();
    state.suspects.since_ms =
        suspects.map(|((party, score), since)| ((party.clone(), score - ms), since - ms)).collect();
}
