//! The facts of a script, as shown by its writes.

use laws::{Evidence, Held, Kind, Waiting};
use proto::Demand;

use super::{Hold, Lock, Step, demand};

/// The effects of a script on a lock, as the laws need them.
pub(super) struct Facts<'a> {
    lock: &'a Lock,
    step: &'a Step<'a>,
    before: Vec<Held<&'a str>>,
    after: Vec<Held<&'a str>>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(lock: &'a Lock, step: &'a Step<'a>) -> Self {
        let held = |hold: &'a Hold, weight: u64, ends_ms: u64| Held {
            member: hold.member.as_str(),
            weight,
            limit: hold.demand.limit(),
            ends_ms: Some(ends_ms),
            is_live: hold.is_new() || hold.is_live(step.by),
        };
        let weight = |hold: &Hold| lock.done.reduced.get(&hold.member).copied();
        let kept = lock.holds.iter().filter(|hold| !hold.is_new());
        let before = kept.chain(&lock.done.over);
        let before =
            before.map(|hold| held(hold, weight(hold).unwrap_or(hold.weight), hold.ended_ms()));
        let after = lock.holds.iter().map(|hold| held(hold, hold.weight, hold.ends_ms(step)));
        Self { lock, step, before: before.collect(), after: after.collect() }
    }

    /// Returns the token of the step's grants, or of an exclusive hold that has become a part.
    pub(super) fn token(&self) -> Option<u64> {
        let mut granted = self.lock.new_holds().peekable();
        let was_whole = |weight: &u64| *weight == Demand::EXCLUSIVE.weight();
        let is_lowered = self.lock.done.reduced.values().any(was_whole);
        (granted.peek().is_some() || is_lowered).then(|| match granted.any(Hold::is_whole) {
            true => self.step.issued.unwrap_or(0),
            false => self.lock.parts.map_or(0, |parts| parts.token),
        })
    }
}

impl<'a> Evidence for Facts<'a> {
    type Member = &'a str;

    fn kind(&self) -> Kind {
        match self.step.name {
            _ if self.step.is_acquire() => Kind::Acquire { is_refused: false },
            "extend" | "renew" | "confirm" => Kind::Extend,
            "reduce" => Kind::Lower,
            "unlock" | "release" | "leave" | "force_release" => Kind::End,
            _ => Kind::Other,
        }
    }

    fn names(&self, member: &'a str) -> bool {
        self.step.args.contains(member)
    }

    fn before(&self) -> &[Held<&'a str>] {
        &self.before
    }

    fn after(&self) -> &[Held<&'a str>] {
        &self.after
    }

    fn granted(&self) -> Vec<Held<&'a str>> {
        let holds = self.lock.holds.iter().zip(&self.after);
        holds.filter(|(hold, _)| hold.is_new()).map(|(_, held)| *held).collect()
    }

    /// Returns the queue, including members that have left it.
    fn arrivals(&self) -> impl Iterator<Item = &'a str> {
        let mut waiters: Vec<_> = self.lock.queue.iter().chain(&self.lock.done.left).collect();
        waiters.sort_by_key(|waiter| waiter.score);
        waiters.into_iter().map(|waiter| waiter.member.as_str())
    }

    fn could_be_granted(&self, member: &'a str) -> bool {
        self.lock.index(member).is_some()
    }

    /// Returns true if both were queued by this command. Their order within the command is unknown.
    fn came_after(&self, waiter: &'a str, other: &'a str) -> bool {
        self.lock.done.came.contains(waiter) && self.names(other)
    }

    fn is_of_several(&self) -> bool {
        self.step.name == "acquire_all"
    }

    /// Returns only the first waiter, because it is unknown whether other waiters are connected.
    fn queue(&self) -> impl Iterator<Item = Waiting<&'a str>> {
        let first = self.lock.queue.first();
        let patient = first.filter(|first| self.lock.is_patient(first, self.step.by));
        patient.into_iter().map(|waiter| Waiting {
            member: waiter.member.as_str(),
            demand: demand(&waiter.member),
            is_reached: true,
        })
    }

    fn leaves_more(&self) -> bool {
        false
    }

    fn hands_on(&self) -> bool {
        // A member that repeats the request for its own hold hands nothing off.
        let stays = |hold: &Hold| self.names(&hold.member) && !hold.is_new();
        self.lock.done.is_change
            && match self.kind() {
                Kind::Acquire { .. } => !self.lock.holds.iter().any(stays),
                Kind::Lower => !self.lock.done.reduced.is_empty(),
                Kind::Extend => false,
                Kind::Release { .. } | Kind::End | Kind::Other => true,
            }
    }

    fn in_use(&self) -> u64 {
        // A script sees the time when it began.
        self.lock.used(self.step.at)
    }

    fn written(&self) -> Option<u64> {
        self.lock.parts.map(|parts| parts.used)
    }

    fn reported_tokens(&self) -> Vec<u64> {
        self.token().into_iter().chain(self.step.published.iter().copied()).collect()
    }

    fn last_token(&self) -> u64 {
        self.lock.token.max(self.step.above)
    }

    fn shared_token(&self) -> u64 {
        self.lock.token
    }
}
