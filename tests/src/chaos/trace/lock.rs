//! A lock as left by the commands: holders with weights and ends, and the waiters in order.

mod facts;

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use laws::{Law, judge};
use proto::{Demand, Member};

use self::facts::Facts;
use super::super::client::read_label;
use super::{Key, Line, PATIENCE_MS, ServerGrant, Step, Violation, What, unmarked};

/// How far the server's rounding to milliseconds may shift a time, in µs.
const ROUNDING_US: i64 = 2_000;
/// The time between the lease end and the expiry of its flagged lock key.
const MARGIN_MS: i64 = 60_000;
/// How long the set of skipped members lives.
const ASIDE_US: i64 = 15_000_000;

#[derive(Debug, Default)]
pub(super) struct Lock {
    /// The waiters by position.
    queue: Vec<Waiter>,
    queue_ends: Option<i64>,
    /// The highest position in the queue so far.
    last_score: i64,
    /// The time until each node's waiting members certainly count as alive.
    patience: HashMap<String, i64>,
    /// The skipped members, with their positions, and until when these certainly count.
    aside: HashMap<String, (i64, i64)>,
    /// The holds, including expired parts still stored.
    holds: Vec<Hold>,
    /// Whether the lock key of an exclusive hold outlives the lease.
    is_marked: bool,
    /// The total weight of all parts as stored in the lock key, and when the lock key expires.
    parts: Option<Parts>,
    /// The token of the last grant.
    token: u64,
    /// The hashes of members that have released the lock or have a tombstone; hashes are small.
    spent: HashSet<u64>,
    tombstones: HashSet<u64>,
    done: Done,
}

/// The content of a lock key of parts.
#[derive(Clone, Copy, Debug)]
struct Parts {
    used: u64,
    token: u64,
    ends: i64,
}

#[derive(Debug)]
struct Waiter {
    member: String,
    score: i64,
}

#[derive(Debug)]
struct Hold {
    member: String,
    demand: Demand,
    weight: u64,
    /// The time of the grant.
    at: i64,
    /// The bounds of the lease end, by the server's clock.
    ends_from: i64,
    ends_by: i64,
    /// The bounds before the step; of a new hold, the first bounds.
    ends_before: (i64, i64),
    /// The index among the grants of all locks; `None` in the step that grants.
    grant: Option<usize>,
}

/// The effects of a step on the lock so far.
#[derive(Debug, Default)]
struct Done {
    /// Whether the step has changed the holders or the waiters.
    is_change: bool,
    /// The waiters that have left the queue, or returned to be granted at once.
    left: Vec<Waiter>,
    /// The members that the step has queued at the end.
    came: HashSet<String>,
    /// The holds that ended without a release: others have the lock, or their leases had ended.
    over: Vec<Hold>,
    /// The members with reduced holds, with their earlier weights.
    reduced: HashMap<String, u64>,
}

/// Returns the child and the attempt of one of our members.
pub(in crate::chaos) fn who(member: &str) -> Option<(u32, u32)> {
    read_label(Member::parse(member)?.label())
}

pub(super) fn lease_ms(member: &str) -> i64 {
    member.split(':').nth(2).and_then(|lease| lease.parse().ok()).unwrap_or(0)
}

fn node(member: &str) -> &str {
    member.split(':').next().and_then(|node| node.strip_prefix("~2")).unwrap_or_default()
}

fn demand(member: &str) -> Demand {
    Member::parse(member).map_or(Demand::EXCLUSIVE, |member| member.demand())
}

fn hash(member: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    BuildHasherDefault::<DefaultHasher>::default().hash_one(member)
}

fn weigh<'a>(holds: impl IntoIterator<Item = &'a Hold>) -> u64 {
    holds.into_iter().map(|hold| hold.weight).sum()
}

fn to_ms(us: i64) -> u64 {
    (us / 1_000).unsigned_abs()
}

/// Returns the bounds of the end of a period of `ms` that starts with a command of the step.
fn ends(step: &Step<'_>, line: &Line, ms: i64) -> (i64, i64) {
    (step.at + ms * 1_000 - ROUNDING_US, line.at + ms * 1_000 + ROUNDING_US)
}

impl Hold {
    fn new(member: &str, at: i64, ends_before: (i64, i64)) -> Self {
        let demand = demand(member);
        let member = member.to_owned();
        let weight = demand.weight();
        let (ends_from, ends_by) = ends_before;
        Self { member, demand, weight, at, ends_from, ends_by, ends_before, grant: None }
    }

    /// Returns the lease end after the step, ms: the same as before, unless the step has certainly
    /// changed it. A downgrade reads the clock after the lease, so if the server is stopped in
    /// between, the end moves on.
    fn ends_ms(&self, step: &Step<'_>) -> u64 {
        let (from, by) = self.ends_before;
        let moves_us = if step.name == "reduce" { step.by - step.at } else { 0 };
        let is_same = self.ends_from <= by + moves_us && from <= self.ends_by;
        to_ms(if is_same { from } else { self.ends_from })
    }

    /// Returns the lease end before the step, ms.
    fn ended_ms(&self) -> u64 {
        to_ms(self.ends_before.0)
    }

    fn is_new(&self) -> bool {
        self.grant.is_none()
    }

    /// Whether the hold is exclusive.
    fn is_whole(&self) -> bool {
        self.weight == Demand::EXCLUSIVE.weight()
    }

    /// Whether the lease has certainly not ended.
    fn is_live(&self, at: i64) -> bool {
        at < self.ends_from
    }
}

impl Lock {
    /// Whether there is no lock key at this time. `None` where it may just have expired.
    pub(super) fn is_free(&self, at: i64) -> Option<bool> {
        let margin = if self.is_marked { MARGIN_MS * 1_000 } else { 0 };
        let (from, by) = match (self.parts, self.holds.first()) {
            (Some(parts), _) => (parts.ends - ROUNDING_US, parts.ends.saturating_add(ROUNDING_US)),
            (None, Some(hold)) => (hold.ends_from + margin, hold.ends_by + margin),
            (None, None) => return Some(true),
        };
        (at < from || at > by).then_some(at > by)
    }

    /// Returns the current or last exclusive holder.
    pub(super) fn holder(&self) -> Option<&str> {
        self.holds.first().map(|hold| hold.member.as_str())
    }

    /// Removes the keys that had expired before the step.
    pub(super) fn expire(&mut self, step: &Step<'_>) {
        if self.parts.is_some_and(|parts| parts.ends <= step.at) {
            self.parts = None;
            self.done.over.append(&mut self.holds);
        }
        if self.queue_ends.is_some_and(|ends| ends <= step.at) {
            self.queue.clear();
            self.queue_ends = None;
        }
    }

    /// Follows one command.
    pub(super) fn follow(&mut self, step: &Step<'_>, line: &Line, found: &mut Vec<Violation>) {
        let arg = |index: usize| line.args.get(index).map_or("", String::as_str);
        let number = |index: usize| arg(index).parse::<i64>().unwrap_or(i64::MAX / 1_000_000);
        let members = || line.args.iter().map(String::as_str);
        match (line.key, line.command.as_str()) {
            (Key::Lock, "PSETEX") => self.alone(step, line, arg(1), number(0), found),
            (Key::Lock, "SET") => self.shared(step, line, found),
            (Key::Lock, "PEXPIRE") => self.lasts(step, line, number(0), found),
            (Key::Lock, "PEXPIREAT") => {
                if let Some(parts) = &mut self.parts {
                    parts.ends = number(0) * 1_000;
                }
            }
            // Deletes a lock key that contains only the member.
            (Key::Lock, "DELIFEQ")
                if self.is_marked || self.parts.is_some() || self.holder() != Some(arg(0)) => {}
            (Key::Lock, "DEL" | "DELIFEQ") => {
                self.parts = None;
                for member in self.members() {
                    self.ended(step, line, &member);
                }
            }
            (Key::Lock | Key::Holds | Key::Queue, "PERSIST") => {
                found.push(Violation::new(Law::T2, "a key was made to last for ever"));
            }
            (Key::Queue, "ZADD") => {
                for (score, member) in line.scores() {
                    self.queued(step, line, member, score, found);
                }
            }
            (Key::Queue, "ZREM") => members().for_each(|one| self.left(step, line, one, found)),
            (Key::Queue, "ZREMRANGEBYSCORE") => self.undone(step, number(0)..=number(1), found),
            (Key::Queue, "PEXPIRE") => self.queue_ends = Some(ends(step, line, number(0)).1),
            (Key::Patience, "PSETEX") => {
                self.patience.insert(line.node.clone(), ends(step, line, number(0)).0);
                if number(0) > PATIENCE_MS {
                    found.push(Violation::new(Law::T2, format!("patience of {}", arg(0))));
                }
            }
            (Key::Aside, "ZADD") => {
                for (score, member) in line.scores() {
                    let until = step.at + ASIDE_US - ROUNDING_US;
                    let kept = self.aside.get(member).filter(|_| line.is_lower_only());
                    let score = kept.map_or(score, |(before, _)| score.min(*before));
                    self.aside.insert(member.to_owned(), (score, until));
                }
            }
            (Key::Aside, "ZREM") => members().for_each(|member| self.returned(member)),
            (Key::Holds, "ZADD") => {
                for (ends_ms, member) in line.scores() {
                    self.held(step, line, member, ends_ms, found);
                }
            }
            (Key::Holds, "ZREM") => members().for_each(|one| self.ended(step, line, one)),
            (Key::Reduced, "ZADD") => {
                for (weight, member) in line.scores() {
                    self.reduced(member, weight as u64);
                }
            }
            (Key::Tombstones, "ZADD") => {
                let gone: Vec<u64> = line.scores().map(|(_, member)| hash(member)).collect();
                self.tombstones.extend(gone);
            }
            _ => return, // no change
        }
        self.done.is_change = true;
    }

    /// Checks the laws of a whole script.
    pub(super) fn finish_step(&mut self, step: &Step<'_>, found: &mut Vec<Violation>) {
        let said = found.len();
        let facts = Facts::new(self, step);
        let token = facts.token();
        let broken = judge(&facts);
        found.extend(broken.into_iter().map(|broken| Violation::new(broken.law, broken.how)));
        self.judge_aside(step, found);
        self.judge_again(found);
        self.judge_drawn(step, token, found);
        for violation in &mut found[said..] {
            violation.detail += &format!(", at {}", step.at);
        }
    }

    /// Records the grants of the step in `grants`, and the ends of earlier holds.
    pub(super) fn note(&mut self, step: &Step<'_>, lock: u32, grants: &mut Vec<ServerGrant>) {
        let done = std::mem::take(&mut self.done);
        for grant in done.over.iter().filter_map(|hold| hold.grant) {
            grants[grant].ran_out = true;
        }
        for hold in &mut self.holds {
            let is_new = hold.is_new();
            let index = *hold.grant.get_or_insert_with(|| {
                grants.push(ServerGrant {
                    lock,
                    token: self.token,
                    again: Vec::new(),
                    who: who(&hold.member),
                    at: hold.at,
                    ends: i64::MAX,
                    ran_out: false,
                    reduced: None,
                });
                grants.len() - 1
            });
            grants[index].ends = hold.ends_by;
            hold.ends_before = (hold.ends_from, hold.ends_by);
            if done.reduced.contains_key(&hold.member) {
                grants[index].reduced = Some(self.token);
            } else if !is_new && hold.is_whole() && step.args.contains(&hold.member) {
                // A lock's token is stored nowhere: a client that repeats the request gets a new
                // token.
                grants[index].again.extend(step.issued);
            }
        }
    }

    /// Returns the position of a member in the queue.
    fn index(&self, member: &str) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.member == member)
    }

    fn members(&self) -> Vec<String> {
        self.holds.iter().map(|hold| hold.member.clone()).collect()
    }

    /// Puts a member into the queue: a newcomer at the end, and a skipped member at its position.
    fn queued(
        &mut self,
        step: &Step<'_>,
        line: &Line,
        member: &str,
        score: i64,
        found: &mut Vec<Violation>,
    ) {
        let before = self.aside.get(member).copied();
        if let Some(index) = self.index(member) {
            if before.is_some_and(|(before, _)| before == score) {
                // A late acquire has queued the skipped member at the end.
                self.queue.remove(index);
                return self.insert(member, score);
            }
            if !line.is_new_only() {
                let detail = format!("{member} at {}", step.at);
                found.push(Violation::new(What::QueuedTwice, detail));
            }
            return;
        }
        if self.spent.contains(&hash(member)) || self.tombstones.contains(&hash(member)) {
            let detail = format!("{member} queued at {} after its end", step.at);
            found.push(Violation::new(Law::S5, detail));
        }
        match before {
            Some((before, _)) if before == score => {}
            Some((before, until)) if step.by < until && !step.is_acquire() => {
                let detail = format!("{member} comes back to {score} and not to {before}");
                found.push(Violation::new(Law::F2, detail));
            }
            _ if score <= self.last_score => {
                let detail = format!("{member} is to come at {score}, after {}", self.last_score);
                found.push(Violation::new(Law::F1, detail));
            }
            _ => {
                self.done.came.insert(member.to_owned());
            }
        }
        self.insert(member, score);
    }

    fn insert(&mut self, member: &str, score: i64) {
        self.last_score = self.last_score.max(score);
        let at = self.queue.partition_point(|waiter| waiter.score < score);
        self.queue.insert(at, Waiter { member: member.to_owned(), score });
    }

    /// Takes a member out of the queue, because it was granted or skipped, requested it, or because
    /// its node was silent for too long.
    fn left(&mut self, step: &Step<'_>, line: &Line, member: &str, found: &mut Vec<Violation>) {
        let Some(index) = self.index(member) else { return };
        let is_expected =
            step.held.contains(member) || step.aside.contains(member) || step.args.contains(member);
        let until = self.patience.get(node(member)).copied().unwrap_or(i64::MIN);
        if !is_expected && until > line.at {
            let detail = format!("{member}, alive until {until}, dropped at {}", line.at);
            found.push(Violation::new(Law::F2, detail));
        }
        self.done.left.push(self.queue.remove(index));
    }

    /// Takes out the members that the step has queued at these positions: another member of the
    /// step was there already, so all are queued individually.
    fn undone(&mut self, step: &Step<'_>, scores: RangeInclusive<i64>, found: &mut Vec<Violation>) {
        let came = &mut self.done.came;
        self.queue.retain(|Waiter { member, score }| {
            let is_undone = scores.contains(score);
            if is_undone && !came.remove(member) {
                let detail = format!("{member} dropped at {}", step.at);
                found.push(Violation::new(Law::F2, detail));
            }
            !is_undone
        });
        self.last_score = self.last_score.min(scores.start() - 1);
    }

    /// Restores a skipped member.
    fn returned(&mut self, member: &str) {
        if let Some((score, _)) = self.aside.remove(member)
            && self.index(member).is_none()
        {
            self.done.left.push(Waiter { member: member.to_owned(), score });
        }
    }

    /// Follows a lock key that names the exclusive holder: a new hold, a renewal, or another flag.
    fn alone(
        &mut self,
        step: &Step<'_>,
        line: &Line,
        text: &str,
        ms: i64,
        found: &mut Vec<Violation>,
    ) {
        let member = unmarked(text);
        self.is_marked = member.len() < text.len();
        self.parts = None;
        let ms = if self.is_marked { ms - MARGIN_MS } else { ms };
        let until = ends(step, line, ms);
        if ms > lease_ms(member) {
            let detail = format!("{member} is to last {ms} ms");
            found.push(Violation::new(Law::T2, detail));
        }
        for other in self.members().iter().filter(|other| *other != member) {
            self.ended(step, line, other);
        }
        match self.holds.first_mut() {
            Some(hold) if step.at <= hold.ends_by => {
                // If only the flag is new, rounding must not widen the bounds.
                let is_same = until.0 <= hold.ends_by && hold.ends_from <= until.1;
                if !is_same || step.args.contains(member) {
                    (hold.ends_from, hold.ends_by) = until;
                }
                return;
            }
            Some(hold) if !step.is_acquire() => {
                let detail = format!("{member}, over at {}, lasts on at {}", hold.ends_by, line.at);
                found.push(Violation::new(Law::T2, detail));
            }
            _ => {}
        }
        // The member repeats the request after the lease.
        self.done.over.append(&mut self.holds);
        self.holds.push(Hold::new(member, line.at, until));
    }

    /// Follows a lock key that contains the weight of the parts.
    fn shared(&mut self, step: &Step<'_>, line: &Line, found: &mut Vec<Violation>) {
        let text = line.args.first().map_or("", |text| unmarked(text));
        let numbers = text.strip_prefix('*').and_then(|text| text.split_once(':'));
        let read = |(used, token): (&str, &str)| Some((used.parse().ok()?, token.parse().ok()?));
        let Some((used, token)) = numbers.and_then(read) else {
            found.push(Violation::new(What::Broken, format!("the lock key is {text}")));
            return;
        };
        let last = self.parts.map(|parts| parts.ends);
        let ends = match line.args.get(1).map(String::as_str) {
            Some("PXAT") => line.args.get(2).and_then(|at| Some(at.parse::<i64>().ok()? * 1_000)),
            Some("KEEPTTL") => last,
            _ => None,
        };
        if ends.is_none() {
            found.push(Violation::new(Law::T2, format!("the lock key {text} has no end")));
        }
        self.parts = Some(Parts { used, token, ends: ends.unwrap_or(i64::MAX) });
        let whole = self.holds.iter().find(|hold| hold.is_whole());
        if let Some(member) = whole.map(|hold| hold.member.clone()) {
            self.ended(step, line, &member);
        }
    }

    /// Follows the expiry of a lock key that names the exclusive holder.
    fn lasts(&mut self, step: &Step<'_>, line: &Line, ms: i64, found: &mut Vec<Violation>) {
        let ms = if self.is_marked { ms - MARGIN_MS } else { ms };
        let Some(hold) = self.holds.first_mut() else { return };
        if ms > lease_ms(&hold.member) {
            let detail = format!("{} is to last {ms} ms", hold.member);
            found.push(Violation::new(Law::T2, detail));
        }
        if step.at > hold.ends_by {
            let detail = format!("{}, over at {}, lasts on", hold.member, hold.ends_by);
            found.push(Violation::new(Law::T2, detail));
        }
        (hold.ends_from, hold.ends_by) = ends(step, line, ms);
    }

    /// Follows the end of a part: a new hold, or a longer lease.
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
        if index.is_some() && line.is_new_only() {
            return; // already present
        }
        if ends > line.at + lease_ms(member) * 1_000 + ROUNDING_US {
            let detail = format!("{member} is to last until {ends_ms} at {}", line.at);
            found.push(Violation::new(Law::T2, detail));
        }
        match index.map(|index| &mut self.holds[index]) {
            Some(hold) if step.at < hold.ends_by && !step.is_acquire() => {
                (hold.ends_from, hold.ends_by) = (ends, ends);
                return;
            }
            Some(hold) if !step.is_acquire() => {
                let detail = format!("{member}, over at {}, lasts on at {}", hold.ends_by, line.at);
                found.push(Violation::new(Law::T2, detail));
            }
            _ => {}
        }
        // The member repeats the request after the lease.
        self.done.over.extend(index.map(|index| self.holds.remove(index)));
        self.holds.push(Hold::new(member, line.at, (ends, ends)));
    }

    /// Follows the new weight of a hold.
    fn reduced(&mut self, member: &str, weight: u64) {
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.member == member) else { return };
        self.done.reduced.entry(member.to_owned()).or_insert(hold.weight);
        hold.weight = weight;
    }

    fn ended(&mut self, step: &Step<'_>, line: &Line, member: &str) {
        let Some(index) = self.holds.iter().position(|hold| hold.member == member) else {
            return; // nothing to end
        };
        let hold = self.holds.remove(index);
        if hold.ends_by > line.at && step.gives_back(member) {
            self.spent.insert(hash(member));
            return;
        }
        self.done.over.push(hold); // the member may repeat its request
    }

    fn new_holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(|hold| hold.is_new())
    }

    /// Checks that a skipped member is not in the queue.
    fn judge_aside(&self, step: &Step<'_>, found: &mut Vec<Violation>) {
        if let Some(member) = step.aside.iter().find(|member| self.index(member).is_some()) {
            let detail = format!("{member} was skipped, and waits");
            found.push(Violation::new(What::QueuedTwice, detail));
        }
    }

    /// Checks that a new token was drawn from the counter, and that the lock key has the token of
    /// the parts.
    fn judge_drawn(&mut self, step: &Step<'_>, token: Option<u64>, found: &mut Vec<Violation>) {
        if let Some(token) = token.filter(|token| *token != self.token) {
            self.token = token;
            // A lock without a token drew no token.
            if token > 0 && step.issued != Some(token) {
                let detail = format!("{token} was not drawn, but {:?}", step.issued);
                found.push(Violation::new(Law::S3, detail));
            }
        }
        let shared = self.parts.map(|parts| parts.token).filter(|_| weigh(&self.holds) > 0);
        if let Some(shared) = shared.filter(|shared| *shared != self.token) {
            let detail = format!("the lock key says {shared}, and it is {}", self.token);
            found.push(Violation::new(Law::S3, detail));
        }
    }

    /// Checks that no member is granted again after its hold, or after it gave up.
    fn judge_again(&self, found: &mut Vec<Violation>) {
        for hold in self.new_holds() {
            let member = &hold.member;
            if self.spent.contains(&hash(member)) {
                let detail = format!("{member}: it has given the lock back");
                found.push(Violation::new(Law::S5, detail));
            }
            if self.tombstones.contains(&hash(member)) {
                let detail = format!("{member}: it was given up");
                found.push(Violation::new(Law::S5, detail));
            }
        }
    }

    /// Returns the greatest weight that may be in use.
    fn used(&self, at: i64) -> u64 {
        match self.parts {
            Some(parts) => parts.used,
            None => weigh(self.holds.iter().filter(|hold| at < hold.ends_by)),
        }
    }

    fn is_patient(&self, waiter: &Waiter, at: i64) -> bool {
        self.patience.get(node(&waiter.member)).is_some_and(|until| *until > at)
    }
}
