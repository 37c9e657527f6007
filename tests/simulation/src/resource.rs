//! The server's state of each lock, and callers' demands for it.

use laws::Held;
use proto::queue::{self, Bounds, Mark, QueueState};
use proto::{ALL, Demand, Member, PATIENCE_MS};

use crate::dice::Dice;
use crate::judge::{Who, who};
use crate::plan::Plan;

/// Which kinds of demands callers have for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Always the whole lock.
    Locks,
    /// The whole lock, which some holders downgrade to a read.
    Downgraded,
    ReadWrite,
    /// Permits, and now and then the whole lock for a caller.
    Permits(u32),
    /// Any demand, with limits up to this number.
    Anything(u32),
}

impl Form {
    pub(crate) fn of(plan: &Plan, lock: u64) -> Self {
        let limit = 2 + (plan.seed / 6 % 5) as u32;
        match (plan.seed + lock) % 6 {
            0 => Self::Locks,
            1 => Self::Downgraded,
            2 => Self::ReadWrite,
            3 => Self::Permits(limit),
            _ => Self::Anything(limit),
        }
    }

    /// Draws a caller's demand.
    pub(crate) fn demand(self, dice: &mut Dice) -> Demand {
        let demand = match self {
            Self::Locks | Self::Downgraded => Some(Demand::EXCLUSIVE),
            Self::ReadWrite if dice.one_in(3) => Some(Demand::EXCLUSIVE),
            Self::ReadWrite => Some(Demand::READ),
            Self::Permits(_) if dice.one_in(12) => Some(Demand::EXCLUSIVE),
            Self::Permits(limit) => permits(dice, limit),
            Self::Anything(most) => match dice.below(4) {
                0 => Some(Demand::EXCLUSIVE),
                1 => Some(Demand::READ),
                _ => {
                    let limit = 1 + dice.below(most.into()) as u32;
                    permits(dice, limit)
                }
            },
        };
        demand.expect("a weight is at least one and at most its limit")
    }
}

fn permits(dice: &mut Dice, limit: u32) -> Option<Demand> {
    Demand::permits(1 + dice.below(limit.min(3).into()) as u32, limit).ok()
}

/// Returns the bounds of a command: in every third run so small that much is left for the next
/// command.
pub(crate) fn bounds(plan: &Plan) -> Bounds {
    match plan.seed % 3 {
        0 => Bounds { granted: 2, reclaimed: 2, ..Bounds::default() },
        _ => Bounds::default(),
    }
}

/// A lock as stored by a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resource(pub(crate) QueueState);

impl Resource {
    /// Returns the state of all locks of a run on an empty server.
    pub(crate) fn all(plan: &Plan) -> Vec<Self> {
        (0..plan.locks).map(|_| Self::default()).collect()
    }

    /// Returns the hold in the lock key.
    fn whole(&self, now_ms: u64) -> Option<Held<Who>> {
        let (member, ends_ms) = self.0.stored_holder()?;
        Some(held(member, ALL.into(), ends_ms, now_ms))
    }

    /// Returns the holds, including expired parts not removed yet. A hold of everything does not
    /// count once its lease has expired.
    pub(crate) fn holds(&self, now_ms: u64) -> Vec<Held<Who>> {
        if let Some(held) = self.whole(now_ms).filter(|held| held.is_live) {
            return vec![held];
        }
        let parts = self.0.holds.iter();
        let part = |(ends_ms, member): (u64, &Member)| {
            held(member, self.0.weight(member), Some(ends_ms), now_ms)
        };
        parts.map(part).collect()
    }

    /// Returns the holders with unexpired leases.
    pub(crate) fn holders(&self, now_ms: u64) -> impl Iterator<Item = Who> {
        let live = self.holds(now_ms).into_iter().filter(|held| held.is_live);
        live.map(|held| held.member)
    }

    /// Returns the waiters, in order.
    pub(crate) fn queue(&self) -> Vec<Who> {
        self.0.queue.iter().map(|(_, member)| who(member)).collect()
    }

    /// Returns the member's position in the queue.
    pub(crate) fn score(&self, member: &Member) -> Option<u64> {
        self.0.queue.get(member)
    }

    pub(crate) fn queue_len(&self) -> u64 {
        self.0.queue.len() as u64
    }

    /// Whether, by the lock key, no other key has to be read.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.0.lock_key.as_ref().is_none_or(|lock_key| {
            matches!(lock_key.held, queue::Held::Whole { .. }) && lock_key.mark == Mark::None
        })
    }

    /// Whether the member is queued.
    pub(crate) fn is_queued(&self, waiting: Who) -> bool {
        self.0.queue.iter().any(|(_, member)| who(member) == waiting)
    }

    /// Whether the member waits, and the node's liveness deadline has not expired.
    pub(crate) fn hopes(&self, waiting: Who, now_ms: u64) -> bool {
        let mut queue = self.0.queue.iter().map(|(_, member)| member);
        queue.any(|member| who(member) == waiting && self.is_patient(member, now_ms))
    }

    /// Returns the name of the hold, if a batch has it.
    pub(crate) fn batch_of(&self) -> Option<Who> {
        let holder = self.0.stored_holder().map(|(member, _)| who(member));
        holder.filter(|_| !self.0.batch().is_empty())
    }

    /// Returns the skipped members, which may be restored.
    pub(crate) fn aside(&self) -> Vec<Who> {
        let members = self.0.set_aside.values().flat_map(|aside| aside.members.iter());
        members.map(|(_, member)| who(member)).collect()
    }

    /// Whether the member holds or waits.
    pub(crate) fn knows(&self, member: &Member, now_ms: u64) -> bool {
        let holds = self.holds(now_ms);
        let is_holder = match self.0.batch() {
            [] => holds.iter().any(|held| held.member == who(member)),
            // The others' hold may have the name of a member no longer there.
            batch => {
                let (name, number) = who(member);
                holds.iter().any(|held| held.member.0 == name) && batch.contains(&number)
            }
        };
        is_holder || self.0.queue.get(member).is_some()
    }

    /// Returns the token shared by the parts.
    pub(crate) fn token(&self) -> Option<u64> {
        match self.0.lock_key.as_ref()?.held {
            queue::Held::Parts { token, .. } => token.map(Into::into),
            queue::Held::Whole { .. } => None,
        }
    }

    /// Whether the lock key stores this member and nothing else.
    pub(crate) fn stores_only(&self, member: &Member, now_ms: u64) -> bool {
        let holder = self.0.stored_holder();
        let is_live = |ends_ms: Option<u64>| ends_ms.is_none_or(|ends_ms| ends_ms > now_ms);
        holder.is_some_and(|(of, ends_ms)| of == member && is_live(ends_ms))
            && self.is_unmarked()
            && self.0.batch().is_empty()
    }

    pub(crate) fn is_held_whole(&self) -> bool {
        self.0.stored_holder().is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == QueueState::default()
    }

    /// Returns the weight of parts in use, as stored in the lock key.
    pub(crate) fn written(&self) -> Option<u64> {
        match self.0.lock_key.as_ref().map(|lock_key| &lock_key.held) {
            None => Some(0),
            Some(queue::Held::Parts { used, .. }) => Some(*used),
            Some(queue::Held::Whole { .. }) => None,
        }
    }

    /// Returns a description of a contradiction between the lock key and the other keys, if there
    /// is one. The lock key's flag must show the tombstones that count.
    pub(crate) fn contradiction(
        &self,
        now_ms: u64,
        counts: impl Fn(Who) -> bool,
    ) -> Option<String> {
        let is_live = |member: &Member| self.is_patient(member, now_ms);
        let is_waited_for = self.0.queue.iter().any(|(_, member)| is_live(member));
        let Some(lock_key) = &self.0.lock_key else {
            return is_waited_for.then(|| "no lock key, and members wait".into());
        };
        let is_whole = matches!(lock_key.held, queue::Held::Whole { .. });
        if is_whole && !self.0.holds.is_empty() {
            return Some("parts beside a lock".into());
        }
        let is_unmarked = is_waited_for && is_whole && lock_key.mark == Mark::None
            || self.0.tombstones.iter().any(|(_, gone)| counts(who(gone)))
                && lock_key.mark != Mark::Tombstones;
        is_unmarked.then(|| format!("the mark is {:?}", lock_key.mark))
    }

    fn is_patient(&self, member: &Member, now_ms: u64) -> bool {
        self.0.patience.get(member.node()).is_some_and(|until_ms| *until_ms > now_ms)
    }

    /// Returns the waiters in order, as far as a command looks, without waiters whose liveness
    /// deadlines have expired. The caller counts as alive.
    pub(crate) fn patient(
        &self,
        now_ms: u64,
        caller: Option<u64>,
    ) -> impl Iterator<Item = (Who, Demand)> {
        let looked_at = self.0.queue.iter().take(Bounds::default().looked_at);
        looked_at.map(|(_, member)| (who(member), member)).filter_map(move |(who, member)| {
            let is_patient = caller == Some(who.0) || self.is_patient(member, now_ms);
            is_patient.then(|| (who, member.demand()))
        })
    }
}

fn held(member: &Member, weight: u64, ends_ms: Option<u64>, now_ms: u64) -> Held<Who> {
    let limit = member.demand().limit();
    let is_live = ends_ms.is_none_or(|ends_ms| ends_ms > now_ms);
    Held { member: who(member), weight, limit, ends_ms, is_live }
}

/// How long a member that was just queued, or requests again, keeps the position at least: the
/// node's liveness deadline is only renewed if less than this is left.
pub(crate) const NEWCOMER_MS: u64 = 10_000;
/// How long a skipped member keeps the position.
pub(crate) const ASIDE_MS: u64 = 15_000;
/// How long a touched member keeps the position.
pub(crate) const TOUCHED_MS: u64 = PATIENCE_MS;
