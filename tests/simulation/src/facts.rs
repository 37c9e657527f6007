//! A command's facts, from the server's state and the reply.

use laws::{Evidence, Held, Kind, Waiting, new_holds};
use proto::{Acquired, Answer, Command, Member, Released};

use crate::event_queue::Sent;
use crate::judge::{Record, Who, is_not_served, who};
use crate::process::Seen;
use crate::resource::Resource;
use crate::world::World;

/// The server's lock state before a command.
pub(crate) struct Before {
    /// The holds, including expired parts not removed yet.
    pub(crate) holds: Vec<Held<Who>>,
    pub(crate) now_ms: u64,
    is_free: bool,
    /// Whether the lock key shows no waiters. A clock that ran ahead ends the lock key before the
    /// queue, long after all liveness deadlines: then remaining waiters may be overlooked.
    is_unmarked: bool,
    /// The member ids of the holding batch.
    pub(crate) batch: Vec<u64>,
    /// The name of the batch's hold.
    pub(crate) batch_of: Option<Who>,
    /// The token shared by the parts.
    pub(crate) token: Option<u64>,
    /// The tokens and times seen by the caller.
    pub(crate) seen: Seen,
    /// The greatest token received by the caller.
    pub(crate) greatest_token: u64,
    /// The members of an acquire that waited already, with their positions.
    scores: Vec<(Who, u64)>,
}

impl Before {
    pub(crate) fn of(resource: &Resource, now_ms: u64, sent: Sent, command: &Command) -> Self {
        let holds = resource.holds(now_ms);
        let token = resource.token();
        let is_free = resource.0.lock_key.is_none();
        let is_unmarked = resource.is_unmarked();
        let batch = resource.0.batch().to_vec();
        let batch_of = resource.batch_of();
        let scores = match command {
            Command::Acquire { members, .. } => {
                let score = |member| Some((who(member), resource.score(member)?));
                members.iter().filter_map(score).collect()
            }
            _ => Vec::new(),
        };
        let Sent { seen, greatest_token, .. } = sent;
        Self {
            holds,
            now_ms,
            is_free,
            is_unmarked,
            batch,
            batch_of,
            token,
            seen,
            greatest_token,
            scores,
        }
    }

    /// Whether the member of an acquire waits at the earlier position.
    pub(crate) fn has_kept_its_position(&self, member: &Member, after: &Resource) -> bool {
        after.score(member).is_some_and(|score| self.scores.contains(&(who(member), score)))
    }

    pub(crate) fn is_free(&self) -> bool {
        self.is_free
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Held<Who>> {
        self.holds.iter().filter(|held| held.is_live)
    }
}

/// An executed command, with the server's state before and after.
pub(crate) struct Facts<'a> {
    pub(crate) world: &'a World,
    pub(crate) lock: usize,
    pub(crate) before: &'a Before,
    pub(crate) after: Vec<Held<Who>>,
    pub(crate) caller: u64,
    pub(crate) command: &'a Command,
    pub(crate) answer: &'a Answer,
    /// The tokens reported to members.
    pub(crate) reported: &'a [(Who, u64)],
}

impl<'a> Facts<'a> {
    fn resource(&self) -> &'a Resource {
        &self.world.home(self.lock).locks[self.lock]
    }

    fn record(&self) -> &'a Record {
        &self.world.records[self.lock]
    }

    /// Returns true if the node is the caller, or the server counts the node's subscription.
    fn is_reached(&self, name: u64) -> bool {
        name == self.caller || self.world.home(self.lock).hears(name)
    }

    /// Whether a waiter counts: a clock that ran ahead may have ended the lock key before the
    /// queue.
    fn counts(&self, waiting: Who) -> bool {
        !self.before.is_unmarked || self.resource().hopes(waiting, self.before.now_ms)
    }

    /// Whether an arrived waiter counts, is reachable, and is not set aside.
    fn is_due(&self, waiting: Who) -> bool {
        self.counts(waiting)
            && self.is_reached(waiting.0)
            && !self.resource().aside().contains(&waiting)
    }

    /// Returns the members ahead of the granted members that the server dropped because their
    /// liveness deadlines had expired.
    pub(crate) fn dropped(&self, granted: &[Held<Who>]) -> Vec<Who> {
        let ahead = granted.iter().flat_map(|held| self.record().ahead(held.member));
        let is_dropped = |who: &Who| self.is_due(*who) && !self.resource().is_queued(*who);
        ahead.filter(is_dropped).collect()
    }
}

impl Evidence for Facts<'_> {
    type Member = Who;

    fn kind(&self) -> Kind {
        match (self.command, self.answer) {
            (Command::Acquire { .. }, Answer::Acquired(reply)) => {
                let is_refused = reply.outcome.iter().all(|one| *one == Acquired::Refused);
                Kind::Acquire { is_refused }
            }
            (Command::Release { .. }, Answer::Released(reply)) => {
                Kind::Release { counts: reply.outcome == Released::Released }
            }
            (Command::Renew { .. } | Command::Confirm { .. }, _) => Kind::Extend,
            (Command::Reduce { .. }, _) => Kind::Lower,
            (Command::Leave { .. } | Command::ForceRelease { .. }, _) => Kind::End,
            _ => Kind::Other,
        }
    }

    fn names(&self, named: Who) -> bool {
        let is_it = |member: &Member| who(member) == named;
        match self.command {
            Command::Release { member }
            | Command::Confirm { member }
            | Command::Reduce { member, .. } => is_it(member),
            Command::Acquire { members, .. }
            | Command::Renew { members, .. }
            | Command::Touch { members } => members.iter().any(is_it),
            // A batch's last members end the hold, even if the name is another member's.
            Command::Leave { leaving } => {
                // A served batch member leaves the hold to the others.
                let mut leaving = leaving.iter().filter(|one| !one.served);
                let numbers: Vec<u64> = leaving.clone().map(|one| one.member.number()).collect();
                let batch = &self.before.batch;
                let ends = !batch.is_empty() && batch.iter().all(|number| numbers.contains(number));
                ends || leaving.any(|one| is_it(&one.member))
            }
            Command::ForceRelease { member } => member.as_ref().is_none_or(is_it),
            Command::Inspect { .. } => false,
        }
    }

    fn before(&self) -> &[Held<Who>] {
        &self.before.holds
    }

    fn after(&self) -> &[Held<Who>] {
        &self.after
    }

    fn granted(&self) -> Vec<Held<Who>> {
        let may_rename = matches!(self.command, Command::Leave { .. });
        let name = self.before.batch_of.map(|(name, _)| name).filter(|_| may_rename);
        let batch = self.before.batch.iter().filter_map(|number| Some((name?, *number)));
        let mut granted = new_holds(&self.before.holds, &self.after, &batch.collect::<Vec<Who>>());
        granted.sort_by_key(|held| held.limit);
        granted
    }

    fn batch(&self) -> Vec<Who> {
        let granted = self.granted();
        let [Held { member: (name, _), .. }] = granted.as_slice() else { return Vec::new() };
        self.resource().0.batch().iter().map(|number| (*name, *number)).collect()
    }

    fn arrivals(&self) -> impl Iterator<Item = Who> {
        self.record().arrivals()
    }

    /// Returns true if an ungranted waiter could have been granted first. A member set aside could
    /// not: it is restored by the node's next touch, even if a late copy has queued it again.
    fn could_be_granted(&self, waiting: Who) -> bool {
        self.is_due(waiting) && self.resource().is_queued(waiting)
    }

    fn came_after(&self, waiter: Who, other: Who) -> bool {
        let record = self.record();
        // `other` was granted earlier, while the waiter was skipped or the waiter's batch had just
        // ended.
        let cut = |who| record.returned.get(&who).map(|returned| returned.cut);
        if cut(other).is_some() && cut(other) != cut(waiter) {
            return true;
        }
        let Command::Acquire { members, .. } = self.command else { return false };
        let turn = |named| members.iter().position(|member| who(member) == named);
        record.came.contains(&waiter) && turn(other) < turn(waiter)
    }

    fn is_of_several(&self) -> bool {
        matches!(self.command, Command::Acquire { members, .. } if members.len() > 1)
    }

    fn queue(&self) -> impl Iterator<Item = Waiting<Who>> {
        let caller = (!self.before.is_unmarked).then_some(self.caller);
        let patient = self.resource().patient(self.before.now_ms, caller);
        patient.map(move |(member, demand)| {
            let is_reached = caller == Some(member.0) || self.world.home(self.lock).hears(member.0);
            Waiting { member, demand, is_reached }
        })
    }

    fn leaves_more(&self) -> bool {
        self.answer.more() || is_not_served(self.answer)
    }

    fn written(&self) -> Option<u64> {
        self.resource().written()
    }

    /// Returns the reported tokens; of a batch only the first, because the others follow it.
    fn reported_tokens(&self) -> Vec<u64> {
        let tokens = self.reported.iter().map(|(_, token)| *token);
        match self.resource().0.batch() {
            [] => tokens.collect(),
            _ => tokens.take(1).collect(),
        }
    }

    fn is_left_to_the_script(&self) -> bool {
        is_not_served(self.answer)
    }

    fn last_token(&self) -> u64 {
        self.world.issued[self.world.plan.slot(self.lock)]
    }

    fn shared_token(&self) -> u64 {
        self.before.token.unwrap_or(0)
    }

    /// Returns true if the next part may get a new token although parts are held, because a
    /// previous server may have granted a lock with a token unknown here.
    fn may_renew_shared_token(&self) -> bool {
        self.before.token.is_none_or(|shared| shared <= self.before.seen.elsewhere_us)
    }
}
