//! The laws: what the server did, and what guards believe, against a record of our own.

use std::collections::BTreeMap;

use lockcore::FencingToken;
use lockcore::internals::node::Phase;
use lockcore::internals::protocol::{Answer, Command, PASSED_OVER_MS};
use lockcore::internals::{Acquired, Member, Presence, Released};

use crate::agenda::Place;
use crate::law::Law;
use crate::process::Shared;
use crate::world::{MS, World};

/// A member, by the name of its process and its number there.
pub(crate) type Who = (u64, u64);

/// A guard that somebody has.
pub(crate) struct Guard {
    pub(crate) slot: usize,
    pub(crate) name: u64,
    pub(crate) number: u64,
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
    token: u64,
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
    let ours = member.ours().expect("all members are ours");
    (ours.node.parse().expect("nodes are numbers"), ours.number)
}

impl World {
    /// What a command did.
    pub(crate) fn judge(
        &mut self,
        lock: usize,
        before: Option<&Member>,
        name: u64,
        command: &Command,
        answer: &Answer,
        now_ms: u64,
    ) {
        let after = self.server.locks[lock].hold.as_ref().map(|hold| hold.member.clone());
        if let Some(before) = before
            && after.as_ref() != Some(before)
            && !ends(command, before)
        {
            self.breaks(Law::S1, || format!("{before} loses lock {lock} by {command:?}"));
        }
        // First: one that asks after its patience is queued anew, behind the one that this command
        // grants the lock to.
        self.follow(lock, name, command, answer, now_ms);
        if let Some(after) = after.as_ref().filter(|after| Some(*after) != before) {
            self.granted(lock, after, name);
        }
        if let (Command::Release { member }, Answer::Released(reply)) = (command, answer)
            && (reply.outcome == Released::Released) != (before == Some(member))
        {
            self.breaks(Law::S6, || format!("{member} is told {:?}", reply.outcome));
        }
    }

    fn granted(&mut self, lock: usize, member: &Member, caller: u64) {
        let state = &self.server.locks[lock];
        let token = state.token.as_ref().map_or(0, |token| token.value.get());
        let last = std::mem::replace(&mut self.records[lock].token, token);
        self.note(token);
        if token <= last {
            self.breaks(Law::S3, || format!("token {token} of lock {lock} is not above {last}"));
        }
        let who = who(member);
        self.is_wanted(lock, member, who);
        self.is_alone(lock, member, who);
        self.is_next(lock, member, who, caller);
        self.records[lock].leave(who);
    }

    fn is_wanted(&mut self, lock: usize, member: &Member, (name, number): Who) {
        let is_given_up = match self.slots[name as usize] {
            Some(slot) => {
                let core = &self.processes[slot].core;
                // One that could not tell the server for long enough has said so.
                core.phase(number).is_none() && core.counts().failed == 0
            }
            None => self.ended_well[name as usize],
        };
        if is_given_up {
            self.breaks(Law::S5, || format!("{member} has gone, and gets lock {lock}"));
        }
    }

    fn is_alone(&mut self, lock: usize, member: &Member, who: Who) {
        let believes = |guard: &Guard| {
            let now = self.processes[guard.slot].moment(self.now);
            (guard.name, guard.number) != who && guard.shared.believes(now)
        };
        if let Some(guard) = self.records[lock].guards.iter().find(|guard| believes(guard)) {
            let other = (guard.name, guard.number);
            self.breaks(Law::S2, || {
                format!("{member} gets lock {lock}, and the guard of {other:?} is valid")
            });
        }
    }

    /// Whoever stands before it cannot be reached, or is no longer there.
    fn is_next(&mut self, lock: usize, member: &Member, who: Who, caller: u64) {
        let record = &mut self.records[lock];
        let ticket = record.waits.get(&who).map_or(u64::MAX, |wait| wait.ticket);
        if record.line.first_key_value().is_none_or(|(first, _)| *first >= ticket) {
            return;
        }
        let ahead: Vec<Who> = record.line.range(..ticket).map(|(_, who)| *who).collect();
        let mut barged = None;
        for other in ahead {
            if other.0 != caller && !self.server.hears(other.0) {
                continue;
            }
            let mut queue = self.server.locks[lock].queue.iter();
            match queue.any(|member| self::who(member) == other) {
                true => barged = barged.or(Some(other)),
                // Its patience was over.
                false => self.records[lock].leave(other),
            }
        }
        if let Some(other) = barged {
            self.breaks(Law::F1, || format!("{member} gets lock {lock} before {other:?}"));
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
                let is_last = position + 1 == self.server.locks[lock].queue.len() as u64;
                match record.waits.get_mut(&who) {
                    Some(wait) if !is_last => wait.heard_ms = now_ms,
                    Some(wait) if wait.ticket == record.tickets => wait.heard_ms = now_ms,
                    wait => {
                        // Those behind it may have gone: then it is last at its own place.
                        let mut queue = self.server.locks[lock].queue.iter().map(self::who);
                        let place = wait.filter(|wait| patient(wait)).map(|wait| wait.ticket);
                        let behind = place.map(|ticket| record.line.range(ticket + 1..));
                        let mut behind = behind.into_iter().flatten().map(|(_, who)| *who);
                        if behind.any(|other| queue.any(|waiting| waiting == other)) {
                            lost = Some(who);
                        }
                        record.queue(who, now_ms);
                    }
                }
            }
            (Command::Touch { members }, Answer::Touched(reply)) => {
                for (member, presence) in members.iter().zip(&reply.outcome.members) {
                    let Some(number) = member.ours().map(|ours| ours.number) else { continue };
                    let who = (name, number);
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
        if !guard.shared.believes(process.moment(self.now)) {
            return;
        }
        let until = process.world_us(guard.shared.until());
        let hold = self.server.locks[lock].hold.as_ref();
        let ends_ms = hold.filter(|hold| self::who(&hold.member) == who).and_then(|h| h.expires_ms);
        let ends = ends_ms.map(|ends_ms| self.server.world_us(ends_ms * MS));
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
        let is_holder = state.hold.as_ref().is_some_and(|hold| self::who(&hold.member) == who);
        let granted = state.token.as_ref().map(|token| token.value);
        if is_holder && granted != Some(token) {
            self.breaks(Law::S3, || {
                format!("the guard of {who:?} has token {token}, its hold {granted:?}")
            });
        }
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
    pub(crate) fn is_known(&mut self, place: Place, answer: &Answer) {
        let grant = match answer {
            Answer::Acquired(reply) => &reply.grant,
            Answer::Released(reply) => &reply.grant,
            Answer::Touched(reply) => &reply.grant,
            Answer::Left(reply) => &reply.grant,
            Answer::Renewed(_) | Answer::Inspected(_) | Answer::SharedInspected(_) => return,
        };
        let Some(grant) = grant else { return };
        let (_, number) = who(&grant.member);
        if self.processes[place.slot].core.phase(number).is_none() {
            let member = grant.member.clone();
            self.breaks(Law::L3, || format!("{member} is told its hold, and leaves it there"));
        }
    }
}

/// Whether the command means to end this hold.
fn ends(command: &Command, hold: &Member) -> bool {
    match command {
        Command::Release { member } => member == hold,
        Command::Leave { leaving } => leaving.iter().any(|leaving| leaving.member == *hold),
        _ => false,
    }
}
