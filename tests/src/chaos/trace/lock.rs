//! One lock as the commands leave it: who holds how much of it until when, and who waits in which
//! order. That of a mutex is the case in which each asks for all of it.

use std::collections::{HashMap, HashSet, VecDeque};

use lockcore::internals::{Demand, Member};

use super::super::client::read_label;
use super::{Key, Line, ServerGrant, Step, Violation, What};

/// The server's own rounding, to milliseconds each way.
const ROUNDING_US: i64 = 2_000;

#[derive(Debug, Default)]
pub(super) struct Lock {
    queue: VecDeque<Waiter>,
    /// How many have ever been queued.
    queued: u64,
    deadlines: HashMap<String, i64>,
    /// With those whose leases have ended but that are still there.
    holds: Vec<Hold>,
    /// What all of them weigh, as it is written down; that of a mutex is not.
    used: Option<u64>,
    /// What a script has set the token to; its grants are with it.
    token: u64,
    last_token: u64,
    /// Whether those who come to share get the last token.
    shares: bool,
    /// Members that have given the lock back, and those with a tombstone; by hash, to be small.
    spent: HashSet<u64>,
    gone: HashSet<u64>,
    done: Done,
}

#[derive(Debug)]
struct Waiter {
    member: String,
    /// Greater than that of all before it.
    place: u64,
}

#[derive(Debug)]
struct Hold {
    member: String,
    demand: Demand,
    weight: u64,
    /// When it was granted.
    at: i64,
    /// The lease's end is between these two, by the server's clock.
    ends_from: Option<i64>,
    ends_by: i64,
    /// Its number among the grants of all locks; none in the step that grants it.
    grant: Option<usize>,
}

/// What a step has done to the lock so far.
#[derive(Debug, Default)]
struct Done {
    /// Whether it has changed who holds or who waits.
    is_change: bool,
    /// Who has left the queue.
    left: Vec<Waiter>,
    /// Waiting members that were heard of when their patience was over.
    late: HashSet<String>,
    /// Holds that were not given back: others have the lock, or their leases had ended.
    over: Vec<Hold>,
    /// Members whose holds weigh less.
    reduced: HashSet<String>,
    is_write_reduced: bool,
}

/// Child and attempt of a member of ours.
pub(in crate::chaos) fn who(member: &str) -> Option<(u32, u32)> {
    read_label(Member::parse(member)?.label())
}

fn lease_ms(member: &str) -> Option<i64> {
    member.split(':').nth(2)?.parse().ok()
}

/// What a member asks for; of a mutex, all of it.
fn demand(member: &str) -> Demand {
    Member::parse(member).map_or(Demand::ALONE, |member| member.demand())
}

fn hash(member: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(member)
}

fn weigh<'a>(holds: impl IntoIterator<Item = &'a Hold>) -> u64 {
    holds.into_iter().map(|hold| hold.weight).sum()
}

impl Hold {
    fn new(member: &str, at: i64, ends: Option<i64>) -> Self {
        let demand = demand(member);
        Self {
            member: member.to_owned(),
            demand,
            weight: demand.weight(),
            at,
            ends_from: ends,
            ends_by: ends.unwrap_or(i64::MAX),
            grant: None,
        }
    }

    fn is_new(&self) -> bool {
        self.grant.is_none()
    }

    /// Whether its lease had not ended for certain.
    fn is_live(&self, at: i64) -> bool {
        self.ends_from.is_none_or(|ends| at < ends)
    }
}

impl Lock {
    /// Follows one command.
    pub(super) fn follow(&mut self, step: &Step<'_>, line: &Line, found: &mut Vec<Violation>) {
        let arg = |index: usize| line.args.get(index).map_or("", String::as_str);
        let members = || line.args.iter().map(String::as_str);
        match (line.key, line.command.as_str()) {
            (Key::Queue, "RPUSH") => self.enqueued(step, arg(0), found),
            (Key::Queue, "ZADD") => {
                line.scores().for_each(|(_, member)| self.placed(step, member, found));
            }
            (Key::Queue, "LREM") => self.left(step, line, arg(1), found),
            (Key::Queue, "ZREM") => members().for_each(|one| self.left(step, line, one, found)),
            (Key::Queue, "LPOP") => {
                if let Some(member) = self.queue.front().map(|waiter| waiter.member.clone()) {
                    self.left(step, line, &member, found);
                }
            }
            (Key::Queue, "DEL") => {
                while let Some(member) = self.queue.front().map(|waiter| waiter.member.clone()) {
                    self.left(step, line, &member, found);
                }
            }
            (Key::Deadlines, "ZADD") => self.scored(line),
            (Key::Deadlines, "ZREM") => {
                for member in members() {
                    self.dropped(step, line, member, found);
                    self.deadlines.remove(member);
                }
            }
            (Key::Deadlines, "DEL") => self.deadlines.clear(),
            (Key::Token, "SET") => self.token = arg(0).parse().unwrap_or(0),
            (Key::Tombstone, "SET") => {
                self.gone.insert(hash(arg(0)));
            }
            (Key::Hold, "HSET") => {
                // Of a mutex there is one hold.
                self.done.over.append(&mut self.holds);
                self.holds.push(Hold::new(arg(0), line.at, None));
            }
            (Key::Hold, "HDEL") => self.ended(step, line, arg(0), found),
            (Key::Hold, "DEL") => self.holds.clear(), // forced off
            (Key::Hold, "PEXPIRE") => self.lasts(step, line, arg(0), found),
            (Key::Hold, "PERSIST") => {
                found.push(Violation::new(What::Endless, "a hold was made to last for ever"));
            }
            (Key::Holds, "ZADD") => {
                for (ends_ms, member) in line.scores() {
                    self.held(step, line, member, ends_ms, found);
                }
            }
            (Key::Holds, "ZREM") => members().for_each(|one| self.ended(step, line, one, found)),
            (Key::State, "HSET") => {
                for pair in line.args.chunks_exact(2) {
                    self.stated(&pair[0], &pair[1], found);
                }
            }
            _ => return, // it changes nothing
        }
        self.done.is_change = true;
    }

    /// What must be true after a whole script.
    pub(super) fn finish_step(&mut self, step: &Step<'_>, found: &mut Vec<Violation>) {
        let said = found.len();
        self.judge_ends(found);
        self.judge_weights(step, found);
        self.judge_order(step, found);
        self.judge_token(found);
        self.judge_again(found);
        self.judge_sum(found);
        self.judge_rest(step, found);
        for violation in &mut found[said..] {
            violation.detail += &format!(", at {}", step.at);
        }
    }

    /// Writes the step's grants down, and what has become of those before.
    pub(super) fn note(&mut self, lock: u32, grants: &mut Vec<ServerGrant>) {
        let done = std::mem::take(&mut self.done);
        for grant in done.over.iter().filter_map(|hold| hold.grant) {
            grants[grant].ran_out = true;
        }
        for hold in &mut self.holds {
            let index = *hold.grant.get_or_insert_with(|| {
                grants.push(ServerGrant {
                    lock,
                    token: self.token,
                    who: who(&hold.member),
                    at: hold.at,
                    ends: i64::MAX,
                    ran_out: false,
                    reduced: None,
                });
                grants.len() - 1
            });
            grants[index].ends = hold.ends_by;
            if done.reduced.contains(&hold.member) {
                grants[index].reduced = Some(self.token);
            }
        }
    }

    /// Where a member waits in the queue.
    fn index(&self, member: &str) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.member == member)
    }

    fn enqueued(&mut self, step: &Step<'_>, member: &str, found: &mut Vec<Violation>) {
        if self.index(member).is_some() {
            let detail = format!("{member} at {}", step.at);
            found.push(Violation::new(What::QueuedTwice, detail));
        }
        if self.spent.contains(&hash(member)) || self.gone.contains(&hash(member)) {
            let detail = format!("{member} queued at {} after its end", step.at);
            found.push(Violation::new(What::GrantedAgain, detail));
        }
        self.queued += 1;
        self.queue.push_back(Waiter { member: member.to_owned(), place: self.queued });
    }

    /// Put into a sorted set: a member that is there already moves to its end, which only one may
    /// whose patience was over.
    fn placed(&mut self, step: &Step<'_>, member: &str, found: &mut Vec<Violation>) {
        if let Some(index) = self.index(member) {
            if !self.done.late.contains(member) {
                let detail = format!("{member} moved to the end at {}", step.at);
                found.push(Violation::new(What::PlaceLost, detail));
            }
            self.queue.remove(index);
        }
        self.enqueued(step, member, found);
    }

    fn scored(&mut self, line: &Line) {
        for (until, member) in line.scores() {
            match self.deadlines.get_mut(member) {
                Some(_) if line.has("NX") => {}
                Some(deadline) => {
                    if *deadline * 1_000 <= line.at {
                        self.done.late.insert(member.to_owned());
                    }
                    *deadline = match (line.has("GT"), line.has("LT")) {
                        (true, _) => until.max(*deadline),
                        (_, true) => until.min(*deadline),
                        _ => until,
                    };
                }
                None if line.has("XX") => {}
                None => {
                    self.deadlines.insert(member.to_owned(), until);
                }
            }
        }
    }

    /// A member is no longer in the queue.
    fn left(&mut self, step: &Step<'_>, line: &Line, member: &str, found: &mut Vec<Violation>) {
        self.dropped(step, line, member, found);
        if let Some(waiter) = self.index(member).and_then(|index| self.queue.remove(index)) {
            self.done.left.push(waiter);
        }
    }

    /// A member leaves list or sorted set: granted, by its own request, or because its time is up.
    fn dropped(&self, step: &Step<'_>, line: &Line, member: &str, found: &mut Vec<Violation>) {
        let Some(until) = self.deadlines.get(member) else { return };
        let is_over = until * 1_000 <= line.at;
        if !is_over && !step.held.contains(member) && !step.args.contains(member) {
            let detail = format!("{member}, alive until {until} ms, dropped at {}", line.at);
            found.push(Violation::new(What::PlaceLost, detail));
        }
    }

    /// A hold's end in the sorted set: a new hold, or a longer lease.
    fn held(
        &mut self,
        step: &Step<'_>,
        line: &Line,
        member: &str,
        ends_ms: i64,
        found: &mut Vec<Violation>,
    ) {
        let ends = ends_ms * 1_000;
        let index = self.holds.iter().position(|hold| hold.member == member);
        if index.is_some() && line.has("NX") {
            return; // it is there already
        }
        if lease_ms(member).is_some_and(|lease| ends > line.at + lease * 1_000) {
            let detail = format!("{member} is to last until {ends_ms} at {}", line.at);
            found.push(Violation::new(What::Endless, detail));
        }
        match index.map(|index| &mut self.holds[index]) {
            Some(hold) if step.at < hold.ends_by && !step.is_acquire() => {
                (hold.ends_from, hold.ends_by) = (Some(ends), ends);
                return;
            }
            Some(hold) if !step.is_acquire() => {
                let detail = format!("{member}, over at {}, lasts on at {}", hold.ends_by, line.at);
                found.push(Violation::new(What::Endless, detail));
            }
            _ => {}
        }
        // It asks again after its lease.
        self.done.over.extend(index.map(|index| self.holds.remove(index)));
        self.holds.push(Hold::new(member, line.at, Some(ends)));
    }

    /// A field of the state: the sum, the token, or what a hold weighs from now on.
    fn stated(&mut self, field: &str, value: &str, found: &mut Vec<Violation>) {
        let number: u64 = value.parse().unwrap_or(0);
        match field {
            "used" => self.used = Some(number),
            "token" => self.token = number,
            member => {
                let Some(hold) = self.holds.iter_mut().find(|hold| hold.member == member) else {
                    return;
                };
                if number > hold.weight {
                    let detail = format!("{member} weighs {number} after {}", hold.weight);
                    found.push(Violation::new(What::TwoHolds, detail));
                }
                self.done.is_write_reduced |= hold.weight == Demand::ALONE.weight();
                self.done.reduced.insert(member.to_owned());
                hold.weight = number;
            }
        }
    }

    fn ended(&mut self, step: &Step<'_>, line: &Line, member: &str, found: &mut Vec<Violation>) {
        let Some(index) = self.holds.iter().position(|hold| hold.member == member) else {
            return; // it has nothing to end
        };
        let hold = self.holds.remove(index);
        if hold.ends_by <= line.at {
            self.done.over.push(hold);
            return; // it may ask again
        }
        if !step.args.contains(member) && hold.is_live(line.at) {
            let detail = format!("the hold of {member} at {}", step.at);
            found.push(Violation::new(What::WrongRelease, detail));
        }
        self.spent.insert(hash(member));
    }

    /// The expiry of a mutex.
    fn lasts(&mut self, step: &Step<'_>, line: &Line, ms: &str, found: &mut Vec<Violation>) {
        let Some(hold) = self.holds.last_mut() else { return };
        let ms: i64 = ms.parse().unwrap_or(i64::MAX / 1_000_000);
        if lease_ms(&hold.member).is_some_and(|lease| ms > lease) {
            let detail = format!("{} is to last {ms} ms", hold.member);
            found.push(Violation::new(What::Endless, detail));
        }
        let is_first = hold.ends_from.is_none();
        if !is_first && step.at > hold.ends_by {
            return; // the key is gone
        }
        hold.ends_from = Some(step.at + ms * 1_000 - ROUNDING_US);
        hold.ends_by = line.at + ms * 1_000 + ROUNDING_US;
    }

    fn new_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|hold| hold.is_new())
    }

    /// A hold needs an end in the same step.
    fn judge_ends(&mut self, found: &mut Vec<Violation>) {
        for hold in self.holds.iter_mut().filter(|hold| hold.ends_from.is_none()) {
            let detail = format!("{} was granted without an end", hold.member);
            found.push(Violation::new(What::Endless, detail));
            hold.ends_from = Some(i64::MAX); // said once
        }
    }

    /// What is granted fits beside all leases that have not ended, by its own limit.
    fn judge_weights(&self, step: &Step<'_>, found: &mut Vec<Violation>) {
        let is_live = |hold: &&Hold| !hold.is_new() && hold.is_live(step.by);
        let live: Vec<_> = self.holds.iter().chain(&self.done.over).filter(is_live).collect();
        let mut used = weigh(live.iter().copied());
        for hold in self.new_holds() {
            used += hold.weight;
            if used > hold.demand.limit() {
                let others: Vec<_> = live.iter().map(|hold| (&hold.member, hold.ends_by)).collect();
                let detail = format!("{}, {used} with {others:?}", hold.member);
                found.push(Violation::new(What::TwoHolds, detail));
            }
        }
    }

    /// A waiter ahead of the one that is granted was passed over; for one that was not queued,
    /// those ahead are all.
    fn judge_order(&self, step: &Step<'_>, found: &mut Vec<Violation>) {
        for hold in self.new_holds() {
            let is_its = |waiter: &&Waiter| waiter.member == hold.member;
            let place = self.done.left.iter().find(is_its).map_or(u64::MAX, |waiter| waiter.place);
            let mut ahead = self.queue.iter().take_while(|waiter| waiter.place < place);
            if let Some(ahead) = ahead.find(|ahead| !step.passed.contains(ahead.member.as_str())) {
                let detail = format!("{}: {} was there before", hold.member, ahead.member);
                found.push(Violation::new(What::OutOfOrder, detail));
            }
        }
    }

    /// Tokens rise, but that those who share have the same, as long as no other came between them.
    fn judge_token(&mut self, found: &mut Vec<Violation>) {
        let is_reduced = self.done.is_write_reduced;
        if !is_reduced && self.new_holds().next().is_none() {
            return;
        }
        let is_write = self.new_holds().any(|hold| hold.weight == Demand::ALONE.weight());
        let is_new = is_write || is_reduced || !self.shares;
        let last = std::mem::replace(&mut self.last_token, self.token);
        let is_right = if is_new { self.token > last } else { self.token == last };
        if !is_right {
            let members: Vec<_> = self.new_holds().map(|hold| &hold.member).collect();
            let detail = format!("{members:?}: {} after {last}", self.token);
            found.push(Violation::new(What::TokenNotRising, detail));
        }
        self.shares = !is_write;
    }

    /// No member is granted again after its hold, or after it was given up.
    fn judge_again(&self, found: &mut Vec<Violation>) {
        for hold in self.new_holds() {
            let member = &hold.member;
            if self.spent.contains(&hash(member)) {
                let detail = format!("{member}: it has given the lock back");
                found.push(Violation::new(What::GrantedAgain, detail));
            }
            if self.gone.contains(&hash(member)) {
                let detail = format!("{member}: it was given up");
                found.push(Violation::new(What::GrantedAgain, detail));
            }
        }
    }

    /// The written sum is that of the holds.
    fn judge_sum(&self, found: &mut Vec<Violation>) {
        let is = weigh(&self.holds);
        if let Some(written) = self.used.filter(|written| *written != is) {
            let detail = format!("{written} are in use, and not {is}");
            found.push(Violation::new(What::WrongSum, detail));
        }
    }

    /// What is free is handed on, as far as it goes.
    fn judge_rest(&self, step: &Step<'_>, found: &mut Vec<Violation>) {
        let Some(used) = self.used.filter(|_| self.done.is_change) else { return };
        // A renewal hands nothing on, nor does who asks again for what it holds.
        let stays = |hold: &Hold| {
            let is_named = step.args.contains(&hold.member);
            is_named && !hold.is_new() && !self.done.reduced.contains(&hold.member)
        };
        let mut waiting = self.queue.iter().map(|waiter| waiter.member.as_str());
        let Some(first) = waiting.find(|member| !step.passed.contains(member)) else { return };
        let is_patient = self.deadlines.get(first).is_some_and(|until| until * 1_000 > step.by);
        if is_patient && demand(first).fits(used) && !self.holds.iter().any(stays) {
            let detail = format!("{first} waits, and {used} are in use");
            found.push(Violation::new(What::LeftWaiting, detail));
        }
    }
}
