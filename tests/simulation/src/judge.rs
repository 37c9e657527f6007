//! The judge: checks the server's actions, and what guards rely on, against a separate record.

use std::collections::{BTreeMap, BTreeSet};

use laws::{Evidence, Held, Law, judge};
use proto::ALL;
use proto::node::{Phase, StoreRequest};
use proto::queue::Bounds;
use proto::{
    Acquired, Answer, Command, Event, FencingToken, Grant, Member, Presence, Released, Renewed,
    TOMBSTONE_MS,
};

use crate::cut;
use crate::event_queue::Place;
use crate::facts::{Before, Facts};
use crate::pairs::Mechanism;
use crate::process::{Returned, Seen, Shared};
use crate::resource::{NEWCOMER_MS, Resource, TOUCHED_MS};
use crate::server::index;
use crate::world::{MS, World};

/// A member, as process name and member id.
pub(crate) type Who = (u64, u64);

/// A caller's guard.
pub(crate) struct Guard {
    pub(crate) slot: usize,
    pub(crate) name: u64,
    pub(crate) number: u64,
    /// The hold's member id on the server: in a batch, another member's id.
    pub(crate) hold: u64,
    /// The weight the guard relies on.
    pub(crate) weight: u64,
    pub(crate) shared: Shared,
}

/// A waiter's position, according to the server's replies.
#[derive(Clone, Copy)]
struct Wait {
    ticket: u64,
    /// The server's time, ms, until which the position is kept even if the node is silent.
    until_ms: u64,
}

/// The position from a late copy of an acquire, which has queued a skipped member again. It counts
/// unless the skipped member is restored to its earlier position.
struct LateCopy {
    member: Member,
    /// The position in the queue.
    score: u64,
    /// That position's ticket.
    ticket: u64,
}

/// The facts about a lock from sources other than the server's state.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) guards: Vec<Guard>,
    /// How many grants there have been; a batch counts once.
    pub(crate) grants: u64,
    /// The tokens reported for each hold.
    tokens: BTreeMap<Who, BTreeSet<u64>>,
    /// The hold of the last exclusive guard, with its token.
    last: Option<(Who, u64)>,
    waits: BTreeMap<Who, Wait>,
    line: BTreeMap<u64, Who>,
    tickets: u64,
    /// The present batch's members, with their tickets.
    pub(crate) served: BTreeMap<Who, u64>,
    /// Unserved members of ended batches, which wait again.
    pub(crate) returned: BTreeMap<Who, cut::Returned>,
    /// The attempts still waiting after their batch was cut short, with their tickets.
    pub(crate) cut: BTreeMap<Who, u64>,
    /// The members requeued by late copies while set aside.
    late: BTreeMap<Who, LateCopy>,
    /// The members queued by the last command.
    pub(crate) came: Vec<Who>,
    /// The valid tombstones, each with the end in ms. Time repeated by the server's clock
    /// counts twice: after the clock was set back a tombstone stays longer, but lock keys written
    /// since do not, and may end before the tombstone if the clock is set forward again.
    tombstones: BTreeMap<Who, u64>,
}

impl Record {
    fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn wait(&mut self, who: Who, wait: Wait) {
        self.leave(who);
        self.line.insert(wait.ticket, who);
        self.waits.insert(who, wait);
    }

    fn queue(&mut self, who: Who, until_ms: u64) {
        self.came.push(who);
        let ticket = self.next_ticket();
        self.wait(who, Wait { ticket, until_ms });
    }

    /// Restores a member granted within a batch, with the earlier ticket.
    pub(crate) fn put_back(&mut self, who: Who, until_ms: u64) {
        let Some(ticket) = self.served.get(&who).copied() else { return };
        self.wait(who, Wait { ticket, until_ms });
    }

    /// Whether the server has a tombstone for the member.
    pub(crate) fn is_gone(&self, who: Who) -> bool {
        self.tombstones.contains_key(&who)
    }

    /// Moves members that are no longer set aside to the positions of their late copies.
    fn settle_late_copies(&mut self, resource: &Resource) {
        if self.late.is_empty() {
            return;
        }
        let aside = resource.aside();
        for (who, late) in std::mem::take(&mut self.late) {
            if aside.contains(&who) {
                self.late.insert(who, late);
            } else if resource.score(&late.member) == Some(late.score)
                && let Some(Wait { until_ms, .. }) = self.waits.get(&who)
            {
                self.wait(who, Wait { ticket: late.ticket, until_ms: *until_ms });
            }
        }
    }

    fn leave(&mut self, who: Who) {
        if let Some(wait) = self.waits.remove(&who) {
            self.line.remove(&wait.ticket);
        }
    }

    /// Returns a waiting member's ticket.
    pub(crate) fn ticket(&self, who: Who) -> Option<u64> {
        self.waits.get(&who).map(|wait| wait.ticket)
    }

    /// Returns true if the process has a guard on the lock, or waits for it.
    pub(crate) fn has(&self, name: u64) -> bool {
        self.guards.iter().any(|guard| guard.name == name)
            || self.waits.range((name, 0)..=(name, u64::MAX)).next().is_some()
    }

    /// Returns the waiters in the order of arrival.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = Who> {
        self.line.values().copied()
    }

    /// Returns the waiters that arrived before this member; all waiters if the member does not
    /// wait.
    pub(crate) fn ahead(&self, who: Who) -> impl Iterator<Item = Who> {
        let ticket = self.waits.get(&who).map_or(u64::MAX, |wait| wait.ticket);
        self.line.range(..ticket).map(|(_, who)| *who)
    }

    /// Continues with the clock of the server to which the lock has moved: `ahead_ms` ahead, or
    /// `passed_ms` if the clocks had never been set back. Keys move with their remaining time.
    pub(crate) fn change_clock(&mut self, ahead_ms: i64, passed_ms: i64) {
        let later = |until_ms: &mut u64, by_ms| *until_ms = until_ms.saturating_add_signed(by_ms);
        self.waits.values_mut().for_each(|wait| later(&mut wait.until_ms, ahead_ms));
        self.tombstones.values_mut().for_each(|until_ms| later(until_ms, passed_ms));
    }

    /// Records the members ended by the command. `passed_ms` is the time by a clock never set back.
    fn bury(&mut self, command: &Command, passed_ms: u64) {
        self.tombstones.retain(|_, until_ms| *until_ms > passed_ms);
        if let Command::Leave { leaving } = command {
            let ambiguous = leaving.iter().filter(|leaving| leaving.ambiguous);
            let until_ms = passed_ms + TOMBSTONE_MS;
            self.tombstones.extend(ambiguous.map(|leaving| (who(&leaving.member), until_ms)));
        }
    }
}

pub(crate) fn who(member: &Member) -> Who {
    (member.node().parse().expect("nodes are numbers"), member.number())
}

impl World {
    /// Judges the effects of a process's command, and the tokens reported to members.
    pub(crate) fn judge(
        &mut self,
        lock: usize,
        before: &Before,
        (name, reported): (u64, &[(Who, u64)]),
        command: &Command,
        answer: &Answer,
    ) {
        let now_ms = before.now_ms;
        // This comes first, because a waiter that requests again after the liveness deadline is
        // queued behind the waiters granted by this command.
        self.follow(lock, name, command, answer, before);
        let after = self.home(lock).locks[lock].holds(now_ms);
        let facts =
            Facts { world: self, lock, before, after, caller: name, command, answer, reported };
        let broken = judge(&facts);
        let granted = facts.granted();
        let dropped = facts.dropped(&granted);
        let forced: Vec<Who> = match command {
            Command::ForceRelease { .. } => {
                before.live().map(|held| held.member).filter(|who| facts.names(*who)).collect()
            }
            _ => Vec::new(),
        };
        let batch = facts.batch();
        let after = facts.after;
        self.unnotified.extend(forced);
        for broken in broken {
            self.breaks(broken.law, || format!("lock {lock}, {command:?}: {}", broken.how));
        }
        self.records[lock].grants += granted.len() as u64;
        self.go_together(lock, &granted);
        granted.iter().for_each(|held| self.are_given_back(held.member.0));
        for member in granted.iter().map(|held| held.member).chain(batch.iter().copied()) {
            self.is_wanted(lock, member);
        }
        let all: Vec<Who> =
            granted.iter().map(|held| held.member).chain(batch.iter().copied()).collect();
        self.follow_grants(lock, (command, answer), &all, &batch);
        let mut to_report = said_to_hold(command, answer);
        if !is_not_served(answer) {
            to_report.extend(granted.iter().map(|held| held.member));
        }
        self.tokens(lock, before, &granted, &after, (to_report, reported));
        let gone = granted.iter().map(|held| held.member).chain(dropped).chain(batch);
        gone.for_each(|who| self.records[lock].leave(who));
        self.is_gone(lock, command, now_ms);
        let passed_ms = now_ms + self.home(lock).set_back_us / MS;
        let record = &mut self.records[lock];
        record.bury(command, passed_ms);
        let counts = |gone: Who| record.tombstones.contains_key(&gone);
        let state = &self.servers[self.homes[lock]].locks[lock];
        if let Some(contradiction) = state.contradiction(now_ms, counts) {
            self.breaks(Law::S7, || format!("lock {lock}: {contradiction}"));
        }
    }

    /// Checks that each holding member receives a token, and that a new token is above everything
    /// seen by its process.
    fn tokens(
        &mut self,
        lock: usize,
        before: &Before,
        granted: &[Held<Who>],
        after: &[Held<Who>],
        (to_report, reported): (Vec<Who>, &[(Who, u64)]),
    ) {
        let is_granted = |who: &Who| granted.iter().any(|held| held.member == *who);
        let Seen { elsewhere_us, .. } = before.seen;
        let floor_us = before.seen.floor_us().max(before.greatest_token);
        let record = &mut self.records[lock];
        let batch = self.servers[self.homes[lock]].locks[lock].0.batch();
        let is_kept = |who: &Who| match after {
            [held] if !batch.is_empty() => held.member.0 == who.0 && batch.contains(&who.1),
            _ => after.iter().any(|held| held.member == *who),
        };
        record.tokens.retain(|who, _| is_kept(who) && !granted.iter().any(|_| !batch.is_empty()));
        for held in granted {
            record.tokens.remove(&held.member);
        }
        let is_unreported = |who: &Who| reported.iter().all(|(of, _)| of != who);
        if let Some(who) = to_report.into_iter().find(is_unreported) {
            self.breaks(Law::S3, || format!("{who:?} has lock {lock}, and is told no token"));
        }
        for &(who, token) in reported {
            let is_old = Some(token) == before.token;
            if !is_old && token <= floor_us || is_granted(&who) && token <= elsewhere_us {
                self.breaks(Law::S9, || {
                    format!("{who:?} has token {token} of lock {lock}: {:?}", before.seen)
                });
            }
            self.note(token);
            let slot = self.plan.slot(lock);
            self.issued[slot] = self.issued[slot].max(token);
            self.records[lock].tokens.entry(who).or_default().insert(token);
        }
    }

    /// Checks that a leaving member is gone, and is not set aside either.
    fn is_gone(&mut self, lock: usize, command: &Command, now_ms: u64) {
        let Command::Leave { leaving: all } = command else { return };
        let has_left: BTreeSet<Who> = leaving(command).collect();
        self.given_up.retain(|who| !has_left.contains(who));
        let state = &self.home(lock).locks[lock];
        let is_there =
            |member: &&Member| state.knows(member, now_ms) || state.aside().contains(&who(member));
        // A served member has left the batch. A hold reduced since then may have its name.
        let leaving = all.iter().filter(|one| !one.served);
        let mut members = leaving.map(|leaving| &leaving.member);
        if let Some(member) = members.find(is_there).cloned() {
            self.breaks(Law::L3, || format!("{member} leaves lock {lock}, and is there"));
        }
    }

    /// Records the members whose leave a node has given up. The node has reported this, so the
    /// server may know them. If a later leave arrives, the server has to forget them.
    pub(crate) fn gives_up(&mut self, command: &Command) {
        self.given_up.extend(leaving(command));
    }

    fn is_wanted(&mut self, lock: usize, who: Who) {
        let (name, number) = who;
        let has_gone = match self.slots[name as usize] {
            Some(slot) => self.processes[slot].core.phase(number).is_none(),
            // A hold that outlives its process ends by itself: the server receives no leave for it.
            None => self.ended_well[name as usize] && !self.leaked.contains(&who),
        };
        // Served in a batch, or leaked within a batch without the server being informed.
        let is_done = self.records[lock].returned.get(&who).is_some_and(|it| !it.waits)
            || self.leaked.contains(&who);
        let has_gone = has_gone && (laws::SERVED_MEMBERS_STAY_GONE || !is_done);
        if has_gone && !self.given_up.contains(&who) {
            self.breaks(Law::S5, || format!("{who:?} has gone, and gets lock {lock}"));
        }
    }

    /// Checks that a process has released most holds it does not need: at any time, servers have at
    /// most twice as many of them as the process has callers.
    fn are_given_back(&mut self, name: u64) {
        let Some(slot) = self.slots[name as usize] else { return };
        let core = &self.processes[slot].core;
        let is_given_back =
            |who: &Who| who.0 == name && core.phase(who.1) == Some(Phase::Releasing);
        let holders = (0..self.records.len()).flat_map(|lock| {
            let server = self.home(lock);
            server.locks[lock].holders(server.clock_ms(self.now))
        });
        let count = holders.filter(is_given_back).count() as u64;
        if count > 2 * self.plan.callers {
            self.breaks(Law::L3, || format!("{name} is to release {count} holds"));
        }
    }

    /// Checks that the grants, in the order of their limits, fit beside the holds with valid
    /// guards.
    fn go_together(&mut self, lock: usize, granted: &[Held<Who>]) {
        let believes = |guard: &&Guard| {
            let now = self.processes[guard.slot].moment(self.now);
            let who = (guard.name, guard.hold);
            let is_granted = granted.iter().any(|held| held.member == who);
            !is_granted && !self.unnotified.contains(&who) && guard.shared.believes(now)
        };
        let guards = self.records[lock].guards.iter().filter(believes);
        let believed: Vec<_> =
            guards.map(|guard| (guard.name, guard.number, guard.weight)).collect();
        let mut used: u64 = believed.iter().map(|(.., weight)| weight).sum();
        let exceeds = |held: &&Held<Who>| {
            used += held.weight;
            used > held.limit
        };
        if let Some(held) = granted.iter().find(exceeds) {
            self.breaks(Law::S2, || {
                format!("{:?} gets lock {lock}, and the guards {believed:?} are valid", held.member)
            });
        }
    }

    /// Records the waiters, from the replies.
    fn follow(
        &mut self,
        lock: usize,
        name: u64,
        command: &Command,
        answer: &Answer,
        before: &Before,
    ) {
        let now_ms = before.now_ms;
        // While the lock's keys move, some are on the other server.
        let is_moving = self.is_moving(lock);
        let record = &mut self.records[lock];
        if !is_moving {
            record.settle_late_copies(&self.servers[self.homes[lock]].locks[lock]);
        }
        record.came.clear();
        let patient = |wait: &Wait| now_ms < wait.until_ms;
        let newcomer_ms = now_ms + NEWCOMER_MS;
        let mut lost = None;
        match (command, answer) {
            (Command::Acquire { members, .. }, Answer::Acquired(reply)) => {
                let resource = &self.servers[self.homes[lock]].locks[lock];
                for (member, outcome) in members.iter().zip(&reply.outcome) {
                    let Acquired::Queued { .. } = outcome else { continue };
                    let who = who(member);
                    let is_kept = before.has_kept_its_position(member, resource);
                    // A late copy of the acquire requeues the member: the node's next touch
                    // restores it.
                    let is_aside = || resource.aside().contains(&who);
                    match record.waits.get_mut(&who) {
                        Some(wait) if is_kept || is_aside() => {
                            wait.until_ms = wait.until_ms.max(newcomer_ms);
                            if let Some(score) = resource.score(member).filter(|_| !is_kept) {
                                let (member, ticket) = (member.clone(), record.next_ticket());
                                record.late.insert(who, LateCopy { member, score, ticket });
                            }
                        }
                        wait => {
                            let place = wait.filter(|wait| patient(wait)).map(|wait| wait.ticket);
                            if let Some(ticket) = place {
                                let queue = resource.queue();
                                // Not by the reported position, which includes the members of a
                                // batch that holds.
                                let at = queue.iter().position(|other| *other == who);
                                let ahead = &queue[..at.unwrap_or(0)];
                                let mut behind = record.line.range(ticket + 1..);
                                // Members queued by the same command are in order among themselves.
                                let is_past = |other: &Who| {
                                    ahead.contains(other) && !record.came.contains(other)
                                };
                                if behind.any(|(_, other)| is_past(other)) {
                                    lost = Some(who);
                                }
                            }
                            record.queue(who, newcomer_ms);
                        }
                    }
                }
            }
            (Command::Touch { members }, Answer::Touched(reply)) => {
                for (member, presence) in members.iter().zip(&reply.outcome.members) {
                    let who = (name, member.number());
                    match presence {
                        Presence::Waiting => {
                            if let Some(wait) = record.waits.get_mut(&who) {
                                wait.until_ms = now_ms + TOUCHED_MS;
                            }
                        }
                        Presence::Holding => {}
                        Presence::Superseded => {
                            if !record.tombstones.contains_key(&who) {
                                lost = Some(who);
                            }
                            record.leave(who);
                        }
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
        self.follow_batch(lock, command, before);
        let superseded = self.superseded(lock, command, before);
        if !superseded.is_empty() {
            self.meets(lock, Mechanism::Newest);
        }
        let passed_ms = now_ms + self.home(lock).set_back_us / MS;
        let record = &mut self.records[lock];
        for who in superseded {
            record.leave(who);
            record.tombstones.insert(who, passed_ms + TOMBSTONE_MS);
            self.outcome.superseded += 1;
        }
        if let Some(who) = lost {
            self.breaks(Law::F2, || format!("{who:?} has lost its position in lock {lock}"));
        }
    }

    /// Returns the members superseded by the member that this command has queued. Checks that no
    /// other member of the same kind waits, as far as the server looks for them.
    fn superseded(&mut self, lock: usize, command: &Command, before: &Before) -> Vec<Who> {
        let Command::Acquire { members, .. } = command else { return Vec::new() };
        let resource = &self.home(lock).locks[lock];
        let is_new = |member: &&Member| {
            member.keeps_newest()
                && resource.score(member).is_some()
                && !before.has_kept_its_position(member, resource)
        };
        let Some(newest) = members.iter().find(is_new) else { return Vec::new() };
        let last = resource.0.queue.iter().rev().take(Bounds::default().looked_at);
        let others = last.filter(|(_, member)| member.keeps_newest() && *member != newest);
        let others: Vec<Who> = others.map(|(_, member)| who(member)).collect();
        let gone = resource.0.tombstones.iter().map(|(_, member)| who(member));
        let waited = |who: &Who| self.records[lock].waits.contains_key(who);
        let left = gone.filter(waited).filter(|who| !resource.is_queued(*who));
        let superseded: Vec<Who> = left.collect();
        if let Some(older) = others.first() {
            self.breaks(Law::F2, || format!("{older:?} waits for lock {lock} beside {newest}"));
        }
        // Ids show which member is newer within a node, and if the newest re-enqueues.
        let (name, number) = who(newest);
        let is_newer =
            |other: &&Who| other.1 > number && (newest.was_requeued() || other.0 == name);
        if let Some(newer) = superseded.iter().find(is_newer) {
            self.breaks(Law::F2, || format!("{newer:?} of lock {lock} leaves for {newest}"));
        }
        superseded
    }

    /// Checks a new or extended guard: the server has the hold, and its lease ends after the
    /// guard's.
    pub(crate) fn has_lease(&mut self, place: Place, lock: usize, number: u64) {
        let process = &self.processes[place.slot];
        let guards = &self.records[lock].guards;
        let own = (place.name, number);
        let Some(guard) = guards.iter().find(|guard| (guard.name, guard.number) == own) else {
            return;
        };
        let who = (place.name, guard.hold);
        if self.unnotified.contains(&who) || !guard.shared.believes(process.moment(self.now)) {
            return;
        }
        let until = process.world_us(guard.shared.until());
        let server = self.home(lock);
        let now_ms = server.time_us(self.now) / MS;
        let holds = server.locks[lock].holds(now_ms);
        let ends_ms = holds.iter().find(|held| held.member == who).and_then(|held| held.ends_ms);
        let ends = ends_ms.map(|ends_ms| server.world_us(ends_ms.saturating_mul(MS)));
        if ends.is_none_or(|ends| until > ends) {
            self.breaks(Law::S2, || {
                format!("the guard of {who:?} is valid until {until}, the server's hold {ends:?}")
            });
        }
    }

    /// Checks that a new guard has the hold's token: otherwise a resource would refuse the writes.
    pub(crate) fn has_token(
        &mut self,
        place: Place,
        lock: usize,
        number: u64,
        token: FencingToken,
    ) {
        let core = &self.processes[place.slot].core;
        let hold = core.held_as(number);
        // The attempt of a batch's first member continues under an id unknown to the server.
        let is_first = proto::node::Core::<Shared>::parts_of(number).0
            == proto::node::Core::<Shared>::parts_of(hold).0;
        let who = (place.name, if is_first { hold } else { number });
        let server = self.home(lock);
        let now_ms = server.time_us(self.now) / MS;
        let is_hold = |held: &Held<Who>| held.member == (place.name, hold);
        let is_holder = server.locks[lock].holds(now_ms).iter().any(is_hold);
        let tokens = self.records[lock].tokens.get(&who).cloned().unwrap_or_default();
        // A copy of the acquire may have been granted since the force release.
        let is_unnotified = self.unnotified.contains(&(place.name, hold));
        if is_holder && !is_unnotified && !tokens.contains(&token.get()) {
            self.breaks(Law::S3, || {
                format!("the guard of {who:?} has token {token}, its hold {tokens:?}")
            });
        }
    }

    /// Checks that a new guard is valid beside the lock's other valid guards, and that its token is
    /// above the previous guard's in the same batch.
    pub(crate) fn goes_with_others(&mut self, lock: usize, guard: &Guard, token: FencingToken) {
        let believes = |guard: &Guard| {
            let now = self.processes[guard.slot].moment(self.now);
            let is_unnotified = self.unnotified.contains(&(guard.name, guard.hold));
            !is_unnotified && guard.shared.believes(now)
        };
        if !believes(guard) {
            return;
        }
        let others = self.records[lock].guards.iter().filter(|other| believes(other));
        let others: u64 = others.map(|other| other.weight).sum();
        if guard.weight == u64::from(ALL) && others > 0 {
            self.breaks(Law::S2, || {
                format!("a guard of lock {lock} begins, and guards of {others} are valid")
            });
        }
        let hold = (guard.name, guard.hold);
        let last = self.records[lock].last.replace((hold, token.get()));
        if let Some((_, last)) = last.filter(|(of, last)| *of == hold && *last >= token.get()) {
            self.breaks(Law::S3, || {
                format!("a guard of a batch of lock {lock} has token {token}, one before it {last}")
            });
        }
    }

    /// Records that a process has received the message about a force release: from now on the guard
    /// must not be valid, and no earlier grant under way becomes a guard.
    pub(crate) fn hears_of_revoked(&mut self, name: u64, event: &Event) {
        let Event::Revoked { numbers } = event else { return };
        for number in numbers {
            self.unnotified.remove(&(name, *number));
        }
    }

    /// Records that a process has subscribed again: the process confirms every grant that was under
    /// way. A guard is notified of the end by the next renewal.
    pub(crate) fn hears_again(&mut self, place: Place) {
        let core = &self.processes[place.slot].core;
        let has_guard = |number| {
            matches!(core.phase(number), Some(Phase::Held | Phase::Offered | Phase::Serving))
        };
        self.unnotified.retain(|(name, number)| *name != place.name || has_guard(*number));
    }

    /// Whether the server has this hold now.
    pub(crate) fn is_held_by(&self, lock: usize, who: Who) -> bool {
        let server = self.home(lock);
        let mut holders = server.locks[lock].holders(server.clock_ms(self.now));
        holders.any(|holder| holder == who)
    }

    /// Checks the releases in mid-batch whose outcomes have become known: none may claim that an
    /// ended hold existed, and none that an existing hold was lost.
    pub(crate) fn returned(&mut self, place: Place) {
        let mut returned = std::mem::take(&mut self.processes[place.slot].returned);
        returned.retain(|Returned { shared, lock, who, was_there }| {
            let Some(outcome) = shared.take_outcome() else { return true };
            if outcome == Ok(Released::Released) && was_there.is_none() {
                self.breaks(Law::T1, || format!("{who:?} releases a hold that was over"));
            }
            // A later grant may have been to the same member, after a force release.
            let is_same = *was_there == Some(self.records[*lock].grants);
            let is_lost = outcome == Ok(Released::NotHeld);
            if laws::WHOLE_SECTIONS_ARE_NOT_LOST
                && is_lost
                && is_same
                && self.is_held_by(*lock, *who)
            {
                self.breaks(Law::T1, || {
                    format!("a guard of {who:?} was whole, and is told that its hold was lost")
                });
            }
            false
        });
        self.processes[place.slot].returned = returned;
    }

    /// Checks that an ended guard was notified, unless that was impossible.
    pub(crate) fn check_notified(&mut self, place: Place, shared: &Shared) {
        let process = &self.processes[place.slot];
        let until = process.world_us(shared.until());
        let was_awake = process.unseen == 0 && process.stopped_until + 1_000 * MS < until;
        if !shared.was_notified() && was_awake && self.now > until + MS {
            self.breaks(Law::L4, || format!("a guard of {} ended untold", place.name));
        }
    }

    /// Checks that a grant never taken by the caller is released after a claim.
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

    /// Checks that a node's core knows every own hold that was reported to it, so that the hold is
    /// used or released.
    pub(crate) fn is_known(&mut self, place: Place, request: &StoreRequest, answer: &Answer) {
        let (lock, command) = (index(request), &request.command);
        let is_asked_for = |grant: &Grant| match command {
            // These commands grant nothing.
            Command::Renew { .. } | Command::Confirm { .. } => true,
            Command::Reduce { member, .. } => *member == grant.member,
            _ => false,
        };
        let core = &self.processes[place.slot].core;
        let home = self.home(lock);
        let holders: Vec<Who> = home.locks[lock].holders(home.clock_ms(self.now)).collect();
        // A primary's reply may arrive after the hold has ended on the next primary.
        let is_over = |member: &Member| self.servers.len() > 1 && !holders.contains(&who(member));
        let is_unknown = |grant: &&Grant| {
            // In a batch, the first member may have left the hold to the others.
            let mut members = std::iter::once(grant.member.number()).chain(grant.batch.clone());
            members.all(|number| core.phase(number).is_none())
                && !is_asked_for(grant)
                && !is_over(&grant.member)
        };
        if let Some(Grant { member, .. }) = answer.grants().iter().find(is_unknown) {
            self.breaks(Law::L3, || format!("{member} is told its hold, and leaves it there"));
        }
    }
}

/// Returns the members that leave the server by this command.
fn leaving(command: &Command) -> impl Iterator<Item = Who> {
    let all = match command {
        Command::Leave { leaving } => leaving.as_slice(),
        _ => &[],
    };
    all.iter().filter(|one| !one.served).map(|one| who(&one.member))
}

/// Whether the fast path has left an acquire to the script, which then reports the token.
pub(crate) fn is_not_served(answer: &Answer) -> bool {
    matches!(answer, Answer::Acquired(reply) if matches!(*reply.outcome, [Acquired::NotServed { .. }]))
}

/// Returns the command's members that hold, according to the reply.
fn said_to_hold(command: &Command, answer: &Answer) -> Vec<Who> {
    match (command, answer) {
        (Command::Acquire { members, .. }, Answer::Acquired(reply)) => {
            let each = members.iter().zip(&reply.outcome);
            let held = each.filter(|(_, outcome)| **outcome == Acquired::Granted);
            held.map(|(member, _)| who(member)).collect()
        }
        // A leak draws no token: the hold is unchanged.
        (Command::Reduce { weight, .. }, _) if weight.get() == ALL => Vec::new(),
        (Command::Confirm { member } | Command::Reduce { member, .. }, Answer::Renewed(reply)) => {
            // A batch's hold may have the name of a member that has left.
            let is_of_batch = reply.grants.iter().any(|grant| !grant.batch.is_empty());
            let is_held = reply.outcome == [Renewed::Held] && !is_of_batch;
            is_held.then(|| who(member)).into_iter().collect()
        }
        (Command::Touch { members }, Answer::Touched(reply)) => {
            let each = members.iter().zip(&reply.outcome.members);
            let held = each.filter(|(_, presence)| **presence == Presence::Holding);
            held.map(|(member, _)| who(member)).collect()
        }
        _ => Vec::new(),
    }
}
