//! The server's state of each lock, and the demands of callers for it.

use laws::Held;
use proto::queue::{self, Bounds, Mark, QueueState};
use proto::{ALL, Demand, Member, PATIENCE_MS};

use crate::dice::Dice;
use crate::judge::{Who, who};
use crate::plan::Plan;

/// The kinds of demands for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The whole lock, always.
    Locks,
    /// The whole lock, and the read that some holders make of it.
    Downgraded,
    ReadWrite,
    /// A number of permits at a time, and now and then the whole lock for one caller.
    Permits(u32),
    /// Any demand, with limits of up to so many.
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

    /// Draws a demand of a caller.
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

/// The bounds of one command: in every third run so small that much is left for the next.
pub(crate) fn bounds(plan: &Plan) -> Bounds {
    match plan.seed % 3 {
        0 => Bounds { granted: 2, reclaimed: 2, ..Bounds::default() },
        _ => Bounds::default(),
    }
}

/// A lock, as a server has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resource(pub(crate) QueueState);

impl Resource {
    /// The state of all locks of a run on a server that knows nothing.
    pub(crate) fn all(plan: &Plan) -> Vec<Self> {
        (0..plan.locks).map(|_| Self::default()).collect()
    }

    /// The hold in the door.
    fn whole(&self, now_ms: u64) -> Option<Held<Who>> {
        let (member, ends_ms) = self.0.at_door()?;
        Some(held(member, ALL.into(), ends_ms, now_ms))
    }

    /// The holds, with parts whose leases have ended but that are still there. A hold of everything
    /// is none once its lease has ended.
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

    /// The holders whose leases have not ended.
    pub(crate) fn holders(&self, now_ms: u64) -> impl Iterator<Item = Who> {
        let live = self.holds(now_ms).into_iter().filter(|held| held.is_live);
        live.map(|held| held.member)
    }

    /// The waiters, in order.
    pub(crate) fn queue(&self) -> Vec<Who> {
        self.0.queue.iter().map(|(_, member)| who(member)).collect()
    }

    /// The place of a member in the queue.
    pub(crate) fn place(&self, member: &Member) -> Option<u64> {
        self.0.queue.get(member)
    }

    pub(crate) fn queue_len(&self) -> u64 {
        self.0.queue.len() as u64
    }

    /// Whether the door says that nothing else is to be looked at.
    pub(crate) fn is_unmarked(&self) -> bool {
        self.0.door.as_ref().is_none_or(|door| {
            matches!(door.held, queue::Held::Whole { .. }) && door.mark == Mark::None
        })
    }

    /// Whether the member stands in the queue.
    pub(crate) fn is_queued(&self, waiting: Who) -> bool {
        self.0.queue.iter().any(|(_, member)| who(member) == waiting)
    }

    /// Whether the member waits, and its node was heard of lately.
    pub(crate) fn hopes(&self, waiting: Who, now_ms: u64) -> bool {
        let mut queue = self.0.queue.iter().map(|(_, member)| member);
        queue.any(|member| who(member) == waiting && self.is_patient(member, now_ms))
    }

    /// The name of the hold, if it is that of a run.
    pub(crate) fn run_of(&self) -> Option<Who> {
        let holder = self.0.at_door().map(|(member, _)| who(member));
        holder.filter(|_| !self.0.run().is_empty())
    }

    /// The members that were passed over, and may come back.
    pub(crate) fn aside(&self) -> Vec<Who> {
        let members = self.0.passed.values().flat_map(|passed| passed.members.iter());
        members.map(|(_, member)| who(member)).collect()
    }

    /// Whether the member holds or waits.
    pub(crate) fn knows(&self, member: &Member, now_ms: u64) -> bool {
        let holds = self.holds(now_ms);
        let is_holder = match self.0.run() {
            [] => holds.iter().any(|held| held.member == who(member)),
            // One that has left may have given its name to the hold of the others.
            run => {
                let (name, number) = who(member);
                holds.iter().any(|held| held.member.0 == name) && run.contains(&number)
            }
        };
        is_holder || self.0.queue.get(member).is_some()
    }

    /// The token that parts share.
    pub(crate) fn token(&self) -> Option<u64> {
        match self.0.door.as_ref()?.held {
            queue::Held::Parts { token, .. } => token.map(Into::into),
            queue::Held::Whole { .. } => None,
        }
    }

    pub(crate) fn is_held_whole(&self) -> bool {
        self.0.at_door().is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == QueueState::default()
    }

    /// The weight of parts in use as it is written in the door.
    pub(crate) fn written(&self) -> Option<u64> {
        match self.0.door.as_ref().map(|door| &door.held) {
            None => Some(0),
            Some(queue::Held::Parts { used, .. }) => Some(*used),
            Some(queue::Held::Whole { .. }) => None,
        }
    }

    /// The contradiction between the door and the keys behind it, if there is one. The door has to
    /// tell of the tombstones that count.
    pub(crate) fn contradiction(
        &self,
        now_ms: u64,
        counts: impl Fn(Who) -> bool,
    ) -> Option<String> {
        let is_live = |member: &Member| self.is_patient(member, now_ms);
        let is_waited_for = self.0.queue.iter().any(|(_, member)| is_live(member));
        let Some(door) = &self.0.door else {
            return is_waited_for.then(|| "no door, and members wait".into());
        };
        let is_whole = matches!(door.held, queue::Held::Whole { .. });
        if is_whole && !self.0.holds.is_empty() {
            return Some("parts beside a lock".into());
        }
        let is_unmarked = is_waited_for && is_whole && door.mark == Mark::None
            || self.0.gone.iter().any(|(_, gone)| counts(who(gone))) && door.mark != Mark::Gone;
        is_unmarked.then(|| format!("the mark is {:?}", door.mark))
    }

    /// Whether the process of this name was heard of lately.
    pub(crate) fn has_patience(&self, name: u64) -> bool {
        self.0.patience.keys().any(|node| node.parse() == Ok(name))
    }

    fn is_patient(&self, member: &Member, now_ms: u64) -> bool {
        self.0.patience.get(member.node()).is_some_and(|until_ms| *until_ms > now_ms)
    }

    /// The waiters in order, as far as one command looks, without those whose patience has ended.
    /// The caller is patient.
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

/// The time for which a member that has just come, or asked again, keeps its place at least: its
/// node's patience is renewed only if less than this is left.
pub(crate) const NEWCOMER_MS: u64 = 10_000;
/// The time for which a member that was passed over keeps its place.
pub(crate) const ASIDE_MS: u64 = 15_000;
/// The time for which a member that was touched keeps its place.
pub(crate) const TOUCHED_MS: u64 = PATIENCE_MS;
