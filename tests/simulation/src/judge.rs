//! The laws: what the server did, and what guards believe, against a record of our own.

use std::collections::{BTreeMap, BTreeSet};

use lockcore::FencingToken;
use lockcore::internals::node::Phase;
use lockcore::internals::protocol::PASSED_OVER_MS;
use lockcore::internals::{
    Acquired, Answer, Command, Demand, Event, Grant, Member, Presence, Released,
};

use crate::agenda::Place;
use crate::law::Law;
use crate::process::{Seen, Shared};
use crate::resource::{Held, Resource};
use crate::world::{MS, World};

/// A member, by the name of its process and its number there.
pub(crate) type Who = (u64, u64);

/// A guard that somebody has.
pub(crate) struct Guard {
    pub(crate) slot: usize,
    pub(crate) name: u64,
    pub(crate) number: u64,
    /// How much it counts on.
    pub(crate) weight: u64,
    pub(crate) shared: Shared,
}

/// Where a member waits, by what was answered.
#[derive(Clone, Copy)]
struct Wait {
    ticket: u64,
    /// The server's time, ms, when it was last heard of.
    heard_ms: u64,
}

/// What is known of a lock besides what the server says.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) guards: Vec<Guard>,
    pub(crate) token: u64,
    /// Tokens that holds may still have beside newer ones.
    replaced: BTreeSet<u64>,
    waits: BTreeMap<Who, Wait>,
    line: BTreeMap<u64, Who>,
    tickets: u64,
}

impl Record {
    fn queue(&mut self, who: Who, heard_ms: u64) {
        self.leave(who);
        self.tickets += 1;
        self.waits.insert(who, Wait { ticket: self.tickets, heard_ms });
        self.line.insert(self.tickets, who);
    }

    fn leave(&mut self, who: Who) {
        if let Some(wait) = self.waits.remove(&who) {
            self.line.remove(&wait.ticket);
        }
    }
}

pub(crate) fn who(member: &Member) -> Who {
    (member.node().parse().expect("nodes are numbers"), member.number())
}

/// What the server had before a command.
pub(crate) struct Before {
    /// With those whose leases had ended but that were still there.
    holds: Vec<Held>,
    now_ms: u64,
    token: Option<u64>,
    /// Whether those who come to share get the token that there was.
    shares: bool,
    /// Whether the token may be one of an earlier server.
    is_from_elsewhere: bool,
    /// The times that the caller had seen.
    seen: Seen,
}

impl Before {
    pub(crate) fn of(resource: &Resource, now_ms: u64, seen: Seen) -> Self {
        let token = resource.token();
        let is_from_elsewhere = token.is_some_and(|token| token <= seen.elsewhere_us);
        let shares = resource.shares_its_token() && token.is_some() && !is_from_elsewhere;
        Self { holds: resource.holds(), now_ms, token, shares, is_from_elsewhere, seen }
    }

    fn live(&self) -> impl Iterator<Item = &Held> {
        self.holds.iter().filter(|held| held.ends_ms > self.now_ms)
    }

    fn live_hold(&self, who: Who) -> Option<&Held> {
        self.live().find(|held| held.who == who)
    }
}

impl World {
    /// What a command did.
    pub(crate) fn judge(
        &mut self,
        lock: usize,
        before: &Before,
        name: u64,
        command: &Command,
        answer: &Answer,
        now_ms: u64,
    ) {
        let after = self.server.locks[lock].live(now_ms);
        let is_lost = |held: &&Held| !after.iter().any(|after| after.who == held.who);
        if let Command::ForceRelease { .. } = command {
            let forced = before.live().map(|held| held.who).filter(|who| ends(command, *who));
            self.untold.extend(forced);
        }
        let lost = before.live().filter(is_lost).find(|held| !ends(command, held.who));
        if let Some(Held { who, .. }) = lost {
            self.breaks(Law::S1, || format!("{who:?} loses lock {lock} by {command:?}"));
        }
        // First: one that asks after its patience is queued anew, behind those that this command
        // grants the lock to.
        self.follow(lock, name, command, answer, now_ms);
        let is_new = |held: &Held| before.live_hold(held.who).is_none();
        let (granted, kept): (Vec<Held>, Vec<Held>) = after.iter().copied().partition(is_new);
        self.granted(lock, before, &kept, &granted, name);
        self.token(lock, before, &after, &granted);
        if let (Command::Release { member }, Answer::Released(reply)) = (command, answer)
            && (reply.outcome == Released::Released)
                != before.holds.iter().any(|held| held.who == who(member))
        {
            self.breaks(Law::S6, || format!("{member} is told {:?}", reply.outcome));
        }
        if let Some((written, is)) = self.server.locks[lock].sums()
            && written != is
        {
            self.breaks(Law::S7, || format!("{written} of lock {lock} are in use, and not {is}"));
        }
        self.goes_on(lock, before, name, command, answer, now_ms);
    }

    fn granted(
        &mut self,
        lock: usize,
        before: &Before,
        kept: &[Held],
        granted: &[Held],
        caller: u64,
    ) {
        if granted.is_empty() {
            return;
        }
        let used: u64 = kept.iter().chain(granted).map(|held| held.weight).sum();
        if let Some(Held { who, .. }) = granted.iter().find(|held| used > held.limit) {
            let holds = &before.holds;
            self.breaks(Law::S1, || format!("{who:?} gets lock {lock} beside {holds:?}"));
        }
        self.go_together(lock, granted);
        // In the order in which they came: each is the next of those that are left.
        let ticket =
            |record: &Record, who: &Who| record.waits.get(who).map_or(u64::MAX, |wait| wait.ticket);
        let mut granted: Vec<Who> = granted.iter().map(|held| held.who).collect();
        granted.sort_by_key(|who| ticket(&self.records[lock], who));
        for who in granted {
            self.is_wanted(lock, who);
            self.is_next(lock, who, caller);
            self.records[lock].leave(who);
        }
    }

    /// Those who share have one token, as long as no other came between them.
    fn token(&mut self, lock: usize, before: &Before, after: &[Held], granted: &[Held]) {
        let all = Demand::ALONE.weight();
        let is_lowered = |held: &Held| {
            let was = before.live_hold(held.who).map_or(0, |before| before.weight);
            was == all && held.weight < all
        };
        let is_downgraded = after.iter().any(is_lowered);
        if granted.is_empty() && !is_downgraded {
            return;
        }
        let token = self.server.locks[lock].token().unwrap_or(0);
        let last = std::mem::replace(&mut self.records[lock].token, token);
        self.note(token);
        let is_write = granted.iter().any(|held| held.weight == all);
        let is_new = is_write || is_downgraded || !before.shares;
        if before.is_from_elsewhere {
            // Holds that have it keep it.
            self.records[lock].replaced.extend(before.token);
        }
        let is_right = if is_new { token > last } else { token == last };
        if !is_right {
            self.breaks(Law::S3, || format!("token {token} of lock {lock} follows {last}"));
        }
    }

    /// A token that is new is above all times that the caller had seen. That of a new hold is above
    /// all that it had seen on servers before this one.
    pub(crate) fn is_above(&mut self, lock: usize, before: &Before) {
        let resource = &self.server.locks[lock];
        let Some(token) = resource.token() else { return };
        let Seen { latest_us, elsewhere_us } = before.seen;
        let is_new = Some(token) != before.token;
        let is_old = |held: &Held| before.holds.iter().any(|before| before.who == held.who);
        let is_granted = resource.holds().iter().any(|held| !is_old(held));
        if is_new && token <= latest_us || is_granted && token <= elsewhere_us {
            self.breaks(Law::S9, || format!("token {token} of lock {lock}: {:?}", before.seen));
        }
    }

    /// What is free is handed on, as far as it goes.
    fn goes_on(
        &mut self,
        lock: usize,
        before: &Before,
        caller: u64,
        command: &Command,
        answer: &Answer,
        now_ms: u64,
    ) {
        let looks_only = match command {
            Command::Renew { .. } => true,
            Command::Reduce { member, .. } => before.live_hold(who(member)).is_none(),
            // Who asks again for what it holds is only told so.
            Command::Acquire { member, .. } => {
                let is_refused =
                    matches!(answer, Answer::Acquired(reply) if reply.outcome == Acquired::Refused);
                is_refused || before.live_hold(who(member)).is_some()
            }
            _ => false,
        };
        if looks_only || rest(answer).1 {
            return;
        }
        let hears = |name| name == caller || self.server.hears(name);
        if let Some(who) = self.server.locks[lock].left_waiting(now_ms, hears) {
            self.breaks(Law::F5, || format!("{who:?} waits for lock {lock}, and it is free"));
        }
    }

    fn is_wanted(&mut self, lock: usize, who: Who) {
        let (name, number) = who;
        let is_given_up = match self.slots[name as usize] {
            Some(slot) => {
                let core = &self.processes[slot].core;
                // One that could not tell the server for long enough has said so.
                core.phase(number).is_none() && core.counts().failed == 0
            }
            // A hold that outlives its process ends by itself: no leave says that it is over.
            None => self.ended_well[name as usize] && !self.leaked.contains(&who),
        };
        if is_given_up {
            self.breaks(Law::S5, || format!("{who:?} has gone, and gets lock {lock}"));
        }
    }

    /// With those whose guards are valid.
    fn go_together(&mut self, lock: usize, granted: &[Held]) {
        let believes = |guard: &&Guard| {
            let now = self.processes[guard.slot].moment(self.now);
            let is_granted = granted.iter().any(|held| held.who == (guard.name, guard.number));
            let is_untold = self.untold.contains(&(guard.name, guard.number));
            !is_granted && !is_untold && guard.shared.believes(now)
        };
        let guards = self.records[lock].guards.iter().filter(believes);
        let believed: u64 = guards.map(|guard| guard.weight).sum();
        let used = believed + granted.iter().map(|held| held.weight).sum::<u64>();
        if let Some(Held { who, .. }) = granted.iter().find(|held| used > held.limit) {
            self.breaks(Law::S2, || {
                format!("{who:?} gets lock {lock}, and guards of {believed} are valid")
            });
        }
    }

    /// What stands before it cannot be reached, or is no longer there.
    fn is_next(&mut self, lock: usize, who: Who, caller: u64) {
        let record = &mut self.records[lock];
        let ticket = record.waits.get(&who).map_or(u64::MAX, |wait| wait.ticket);
        if record.line.first_key_value().is_none_or(|(first, _)| *first >= ticket) {
            return;
        }
        let ahead = record.line.range(..ticket).map(|(_, who)| *who);
        let is_reached = |other: &Who| other.0 == caller || self.server.hears(other.0);
        let ahead: Vec<Who> = ahead.filter(is_reached).collect();
        if ahead.is_empty() {
            return;
        }
        let mut barged = None;
        let queue = self.server.locks[lock].queue();
        for other in ahead {
            match queue.contains(&other) {
                true => barged = barged.or(Some(other)),
                // Its patience was over.
                false => self.records[lock].leave(other),
            }
        }
        if let Some(other) = barged {
            self.breaks(Law::F1, || format!("{who:?} gets lock {lock} before {other:?}"));
        }
    }

    /// Writes down who waits, by what is answered.
    fn follow(&mut self, lock: usize, name: u64, command: &Command, answer: &Answer, now_ms: u64) {
        let record = &mut self.records[lock];
        let patient = |wait: &Wait| now_ms < wait.heard_ms + PASSED_OVER_MS;
        let mut lost = None;
        match (command, answer) {
            (Command::Acquire { member, .. }, Answer::Acquired(reply)) => {
                let Acquired::Queued { position } = reply.outcome else { return };
                let who = who(member);
                let is_last = position + 1 == self.server.locks[lock].queue_len();
                match record.waits.get_mut(&who) {
                    Some(wait) if !is_last => wait.heard_ms = now_ms,
                    Some(wait) if wait.ticket == record.tickets => wait.heard_ms = now_ms,
                    wait => {
                        // Those behind it may have gone: then it is last at its own place.
                        let place = wait.filter(|wait| patient(wait)).map(|wait| wait.ticket);
                        if let Some(ticket) = place {
                            let queue = self.server.locks[lock].queue();
                            let mut behind = record.line.range(ticket + 1..);
                            if behind.any(|(_, other)| queue.contains(other)) {
                                lost = Some(who);
                            }
                        }
                        record.queue(who, now_ms);
                    }
                }
            }
            (Command::Touch { members }, Answer::Touched(reply)) => {
                for (member, presence) in members.iter().zip(&reply.outcome.members) {
                    let who = (name, member.number());
                    match presence {
                        Presence::Waiting => {
                            if let Some(wait) = record.waits.get_mut(&who) {
                                wait.heard_ms = now_ms;
                            }
                        }
                        Presence::Holding => {}
                        Presence::Gone => {
                            if record.waits.get(&who).is_some_and(patient) {
                                lost = Some(who);
                            }
                            record.leave(who);
                        }
                    }
                }
            }
            (Command::Leave { leaving }, Answer::Left(_)) => {
                for leaving in leaving {
                    record.leave(who(&leaving.member));
                }
            }
            _ => {}
        }
        if let Some(who) = lost {
            self.breaks(Law::F2, || format!("{who:?} has lost its place in lock {lock}"));
        }
    }

    /// A guard was just given, or extended: the server has its hold, and longer than the guard
    /// says.
    pub(crate) fn has_lease(&mut self, place: Place, lock: usize, number: u64) {
        let process = &self.processes[place.slot];
        let guards = &self.records[lock].guards;
        let who = (place.name, number);
        let Some(guard) = guards.iter().find(|guard| (guard.name, guard.number) == who) else {
            return;
        };
        if self.untold.contains(&who) || !guard.shared.believes(process.moment(self.now)) {
            return;
        }
        let until = process.world_us(guard.shared.until());
        let holds = self.server.locks[lock].holds();
        let hold = holds.iter().find(|held| held.who == who);
        let ends = hold.map(|held| self.server.world_us(held.ends_ms.saturating_mul(MS)));
        if ends.is_none_or(|ends| until > ends) {
            self.breaks(Law::S2, || {
                format!("the guard of {who:?} is valid until {until}, the server's hold {ends:?}")
            });
        }
    }

    /// A new guard has the token of the hold that it stands for, or a store would refuse what it
    /// writes.
    pub(crate) fn has_token(
        &mut self,
        place: Place,
        lock: usize,
        number: u64,
        token: FencingToken,
    ) {
        let who = (place.name, number);
        let state = &self.server.locks[lock];
        let is_holder = state.holds().iter().any(|held| held.who == who);
        let granted = state.token();
        let is_replaced = self.records[lock].replaced.contains(&token.get());
        if is_holder && granted != Some(token.get()) && !is_replaced {
            self.breaks(Law::S3, || {
                format!("the guard of {who:?} has token {token}, its hold {granted:?}")
            });
        }
    }

    /// A process hears of a hold that was force-released: from now on its guard is not valid, and
    /// no grant that was on its way becomes one.
    pub(crate) fn hears_of_revoked(&mut self, name: u64, event: &Event) {
        let Event::Revoked { numbers } = event else { return };
        for number in numbers {
            self.untold.remove(&(name, *number));
        }
    }

    /// A process is subscribed anew: it has every grant confirmed that was on its way. A guard
    /// hears of its end with its next renewal.
    pub(crate) fn hears_again(&mut self, place: Place) {
        let core = &self.processes[place.slot].core;
        let has_guard = |number| matches!(core.phase(number), Some(Phase::Held | Phase::Offered));
        self.untold.retain(|(name, number)| *name != place.name || has_guard(*number));
    }

    /// A guard that has ended was told so, unless nothing could tell it.
    pub(crate) fn was_told(&mut self, place: Place, shared: &Shared) {
        let process = &self.processes[place.slot];
        let until = process.world_us(shared.until());
        let was_awake = process.unseen == 0 && process.stopped_until + 1_000 * MS < until;
        if !shared.was_told() && was_awake && self.now > until + MS {
            self.breaks(Law::L4, || format!("a guard of {} ended untold", place.name));
        }
    }

    /// A grant that its caller did not come for is given back after a claim.
    pub(crate) fn lapses(
        &mut self,
        place: Place,
        attempt: u64,
        lock: usize,
        lease_us: u64,
        woken: u64,
    ) {
        let process = &self.processes[place.slot];
        let claim_us = lease_us.min((lease_us / 3).clamp(2_000 * MS, 10_000 * MS));
        let lapsed = woken + claim_us + claim_us / 10;
        let was_awake = process.unseen == 0 && process.stopped_until < woken;
        let number = process.core.round(attempt);
        let is_offered = number.is_some_and(|n| process.core.phase(n) == Some(Phase::Offered));
        if self.now > lapsed && was_awake && is_offered {
            self.breaks(Law::L2, || {
                format!("{number:?} of {} is offered lock {lock} beyond its claim", place.name)
            });
        }
    }

    /// A node that is told of a hold of its own has it in its table from then on, so that it is
    /// used or given back.
    pub(crate) fn is_known(&mut self, place: Place, command: &Command, answer: &Answer) {
        let is_asked_for = |grant: &Grant| match command {
            // It grants nothing.
            Command::Renew { .. } => true,
            Command::Reduce { member, .. } => *member == grant.member,
            _ => false,
        };
        let core = &self.processes[place.slot].core;
        let is_unknown =
            |grant: &&Grant| core.phase(grant.member.number()).is_none() && !is_asked_for(grant);
        if let Some(Grant { member, .. }) = rest(answer).0.iter().find(is_unknown) {
            self.breaks(Law::L3, || format!("{member} is told its hold, and leaves it there"));
        }
    }
}

/// The holds that an answer tells of, and whether it says that there is more to do.
fn rest(answer: &Answer) -> (&[Grant], bool) {
    match answer {
        Answer::Acquired(reply) => (&reply.grants, reply.more),
        Answer::Released(reply) => (&reply.grants, reply.more),
        Answer::Touched(reply) => (&reply.grants, reply.more),
        Answer::Left(reply) => (&reply.grants, reply.more),
        Answer::Renewed(reply) => (&reply.grants, reply.more),
        Answer::Inspected(_) => (&[], false),
    }
}

/// Whether the command means to end this hold.
fn ends(command: &Command, hold: Who) -> bool {
    match command {
        Command::Release { member } => who(member) == hold,
        Command::Leave { leaving } => leaving.iter().any(|leaving| who(&leaving.member) == hold),
        Command::ForceRelease { member } => {
            member.as_ref().is_none_or(|member| who(member) == hold)
        }
        _ => false,
    }
}
