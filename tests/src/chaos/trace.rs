//! `Trace`: follows the server's changes to each lock, command by command as MONITOR shows them,
//! and checks each script against the state after the commands before it.
//!
//! The trace has exactly the server's own order of enqueues and grants. It uses the keys and rules
//! of the protocol's page, and only the names of the scripts.
//!
//! # Implementation notes
//!
//! - MONITOR does not show whether a `SET NX` took effect. The lock state shows it, except in the
//!   few milliseconds when the lock key may have expired. Then this step and all later steps wait
//!   in order until a later step shows it.

mod lock;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use proto::Topology;
use proto::wire::scripts;

use super::client::{LOCKS, lock_name};
use super::violation::{Violation, What};
use crate::{COUNTER, MonitorLine, PATIENCE_MS, Source};
use lock::Lock;
pub(super) use lock::who;

/// How many of the last scripts are kept for reports.
const RECENT: usize = 64;
/// The scripts with rules in the protocol's page.
const SCRIPTS: [&str; 12] = [
    "lock",
    "acquire",
    "acquire_all",
    "unlock",
    "release",
    "extend",
    "renew",
    "confirm",
    "reduce",
    "touch",
    "leave",
    "force_release",
];
/// The name of a step that is no script: the transaction that acquires a free lock.
const TRANSACTION: &str = "transaction";
/// The name of another such step: the command that releases a lock without waiters.
const DELETION: &str = "deletion";

/// Whether the step requests a lock.
fn is_acquire(name: &str) -> bool {
    ["lock", "acquire", "acquire_all", TRANSACTION].contains(&name)
}

/// A grant issued by the server.
#[derive(Clone, Debug)]
pub(super) struct ServerGrant {
    pub(super) lock: u32,
    pub(super) token: u64,
    /// The tokens reported to its client when it repeated the request.
    pub(super) again: Vec<u64>,
    /// The child and the attempt, if the member belongs to a client.
    pub(super) who: Option<(u32, u32)>,
    /// When the lock was granted, by the server's clock, in µs.
    pub(super) at: i64,
    /// When the lease has certainly ended, by the server's clock, in µs.
    pub(super) ends: i64,
    /// Whether the grant was not released: another grant came after its lease.
    pub(super) ran_out: bool,
    /// The token of the read after a downgrade.
    pub(super) reduced: Option<u64>,
}

/// The effects of all scripts of a run so far.
pub(super) struct Trace {
    skips_allowed: bool,
    names: HashMap<String, u32>,
    scripts: HashMap<String, &'static str>,
    locks: Vec<Lock>,
    /// The counter of tokens.
    counter: u64,
    script: Option<Script>,
    /// The steps that are not judged yet, because it is unknown whether the first of them had an
    /// effect.
    undecided: VecDeque<Script>,
    /// The last scripts, for the report of a violation.
    recent: VecDeque<Script>,
    pub(super) grants: Vec<ServerGrant>,
    /// How often a holder's name was written into a lock key, and how often with a batch.
    pub(super) named: u64,
    pub(super) with_batch: u64,
    /// Whether scripts are judged, not only counted.
    is_judged: bool,
    pub(super) skipped: u64,
    pub(super) violations: Vec<Violation>,
}

/// The commands of a script: one atomic step.
struct Script {
    /// When the script began, by the server's clock, in µs.
    at: i64,
    name: &'static str,
    args: HashSet<String>,
    lines: Vec<Line>,
    /// The values of the counter before and after the script.
    before: u64,
    counter: u64,
    /// The tokens in the messages that the script published.
    published: Vec<u64>,
}

impl Script {
    fn is_transaction(&self) -> bool {
        self.name == TRANSACTION
    }

    /// Whether this later script shows that the lock key was set for `member`, or still names
    /// `before`. `None` if the script does not write the lock key.
    fn shows(&self, lock: usize, member: &str, before: Option<&str>) -> Option<bool> {
        let writes = ["PSETEX", "SET", "PEXPIRE", "PEXPIREAT", "DEL"];
        let is_it = |line: &&Line| {
            line.lock == lock && line.key == Key::Lock && writes.contains(&line.command.as_str())
        };
        let line = self.lines.iter().find(is_it).filter(|_| !self.is_transaction())?;
        Some(match line.holders().first() {
            Some(holder) if *holder == member => true,
            Some(holder) if Some(*holder) == before => false,
            _ => !is_acquire(self.name) && self.args.contains(member),
        })
    }
}

/// A command of a script on a key of one of the locks.
pub(super) struct Line {
    pub(super) at: i64,
    lock: usize,
    pub(super) key: Key,
    pub(super) command: String,
    /// The arguments after the key.
    pub(super) args: Vec<String>,
    /// The node id in the key name.
    pub(super) node: String,
}

impl Line {
    /// Returns the scores and members of a `ZADD key [flags] score member ...`.
    pub(super) fn scores(&self) -> impl Iterator<Item = (i64, &str)> {
        let flags = usize::from(self.is_new_only() || self.is_lower_only());
        let pairs = self.args[flags..].chunks_exact(2);
        pairs.filter_map(|pair| Some((pair[0].parse().ok()?, pair[1].as_str())))
    }

    /// Returns true if the command leaves existing members unchanged.
    pub(super) fn is_new_only(&self) -> bool {
        self.args.first().is_some_and(|arg| arg == "NX")
    }

    /// Returns true if the command only lowers the scores of existing members.
    pub(super) fn is_lower_only(&self) -> bool {
        self.args.first().is_some_and(|arg| arg == "LT")
    }

    fn is(&self, key: Key, command: &str) -> bool {
        self.key == key && self.command == command
    }

    /// Returns the members that the command grants the lock to, or a longer lease.
    fn holders(&self) -> Vec<&str> {
        match (self.key, self.command.as_str()) {
            (Key::Lock, "PSETEX") => {
                self.args.get(1).map(|text| unmarked(text)).into_iter().collect()
            }
            (Key::Holds, "ZADD") => self.scores().map(|(_, member)| member).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the members skipped by the command.
    fn set_aside(&self) -> Vec<&str> {
        match self.is(Key::Aside, "ZADD") {
            true => self.scores().map(|(_, member)| member).collect(),
            false => Vec::new(),
        }
    }
}

/// Returns the text of a lock key without the flag.
pub(super) fn unmarked(text: &str) -> &str {
    text.strip_prefix(['+', '-']).unwrap_or(text)
}

/// The purpose of a key of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Lock,
    Queue,
    Patience,
    Aside,
    Holds,
    Reduced,
    Tombstones,
}

/// The effects of a whole script, collected before it is followed line by line.
pub(super) struct Step<'a> {
    /// The script did not begin before this server time.
    pub(super) at: i64,
    /// The script was over at this server time: the server may have been stopped in between.
    pub(super) by: i64,
    /// The script's name.
    pub(super) name: &'static str,
    /// The script's own arguments.
    pub(super) args: &'a HashSet<String>,
    /// The members skipped by the script.
    pub(super) aside: HashSet<&'a str>,
    /// The members that the script grants the lock to, or a longer lease.
    pub(super) held: HashSet<&'a str>,
    /// The token drawn by the script, which must be above `above`.
    pub(super) issued: Option<u64>,
    pub(super) above: u64,
    /// The tokens in the messages that the script published.
    pub(super) published: &'a [u64],
}

impl Step<'_> {
    pub(super) fn is_acquire(&self) -> bool {
        is_acquire(self.name)
    }

    /// Returns true if the step releases the hold of this member.
    pub(super) fn gives_back(&self, member: &str) -> bool {
        let all = ["unlock", "release", "leave", "force_release", DELETION];
        let gives_back = all.contains(&self.name);
        gives_back && self.args.contains(member)
    }
}

impl Trace {
    pub(super) fn new(skips_allowed: bool) -> Self {
        let names = (0..LOCKS).map(|lock| (lock_name(lock), lock)).collect();
        let locks = (0..LOCKS).map(|_| Lock::default()).collect();
        let known =
            |name| scripts::of_queue(Topology::Single).get(name).expect("a script of the protocol");
        let texts = SCRIPTS.into_iter().map(known).flat_map(|script| {
            [&script.digest, &script.source].map(|text| (text.clone(), script.name))
        });
        Self {
            skips_allowed,
            names,
            scripts: texts.collect(),
            locks,
            counter: 0,
            script: None,
            undecided: VecDeque::new(),
            recent: VecDeque::new(),
            grants: Vec::new(),
            named: 0,
            with_batch: 0,
            is_judged: true,
            skipped: 0,
            violations: Vec::new(),
        }
    }

    /// Creates a trace that only counts, because batch members do not identify their attempts.
    pub(super) fn counting() -> Self {
        Self { is_judged: false, ..Self::new(true) }
    }

    pub(super) fn feed(&mut self, line: &MonitorLine) {
        let at = i64::try_from(line.time_us).expect("a clock before the year 290 000");
        if line.source == Source::Lua {
            self.inside(at, line);
            return;
        }
        // The commands of a transaction run consecutively, like those of a script.
        let is_of_transaction = line.is("SET") || line.is("INCR");
        let goes_on = line.is("INCR") && self.script.as_ref().is_some_and(Script::is_transaction);
        if !goes_on {
            self.finish_script();
        }
        let is_deletion = line.is("DELIFEQ") || line.is("DELEX");
        let begun = match line.is("EVALSHA") || line.is("EVAL") {
            true => Some(self.scripts.get(&line.text(1)).copied().unwrap_or_default()),
            false if is_deletion => Some(DELETION),
            false => (is_of_transaction && !goes_on).then_some(TRANSACTION),
        };
        if let Some(name) = begun {
            let args = (2..line.args.len()).map(|index| line.text(index)).collect();
            let (lines, published, before) = (Vec::new(), Vec::new(), self.counter);
            self.script =
                Some(Script { at, name, args, lines, before, counter: before, published });
        }
        if is_of_transaction || is_deletion {
            self.inside(at, line);
        }
    }

    /// Adds a command of the script.
    fn inside(&mut self, at: i64, line: &MonitorLine) {
        let found = self.line(at, line);
        let Some(script) = &mut self.script else { return };
        let text = line.text(1);
        if text == COUNTER {
            let number = line.args.get(2).and_then(|_| line.text(2).parse().ok()).unwrap_or(0);
            script.counter = match line.text(0).to_ascii_uppercase().as_str() {
                "INCR" => script.counter + 1,
                "INCRBY" => script.counter + number,
                "DECR" => script.counter.saturating_sub(1),
                "DECRBY" => script.counter.saturating_sub(number),
                "SET" => number,
                "DEL" => 0,
                _ => script.counter,
            };
        } else if line.is("PUBLISH") {
            let message = line.text(2);
            let token = message.strip_prefix("p ").and_then(|grants| grants.split(' ').next());
            script.published.extend(token.and_then(|token| token.parse::<u64>().ok()));
        }
        script.lines.extend(found);
    }

    /// Follows everything received so far, at the end of a run.
    pub(super) fn finish(&mut self) {
        self.finish_script();
        while !self.undecided.is_empty() {
            // No later script can show it any more.
            self.follow_next(self.had_effect().unwrap_or(true));
        }
    }

    /// Follows the last script to its end, if it is known whether earlier steps had an effect.
    fn finish_script(&mut self) {
        let Some(script) = self.script.take() else { return };
        self.counter = script.counter;
        if !self.is_judged {
            self.count(&script);
            return;
        }
        self.undecided.push_back(script);
        while let Some(had_effect) = self.had_effect() {
            self.follow_next(had_effect);
        }
    }

    /// Whether the first undecided step had an effect. `None` if still unknown.
    fn had_effect(&self) -> Option<bool> {
        let first = self.undecided.front()?;
        let Some(set) = first.lines.first().filter(|_| first.is_transaction()) else {
            return Some(true);
        };
        let lock = &self.locks[set.lock];
        lock.is_free(set.at).or_else(|| {
            let member = *set.holders().first()?;
            let over = set.at + lock::lease_ms(member) * 1_000;
            let mut later = self.undecided.iter().skip(1);
            later.find_map(|step| match step.at > over {
                true => Some(true),
                false => step.shows(set.lock, member, lock.holder()),
            })
        })
    }

    fn count(&mut self, script: &Script) {
        for line in script.lines.iter().filter(|line| line.is(Key::Lock, "PSETEX")) {
            self.named += 1;
            self.with_batch += u64::from(line.args.get(1).is_some_and(|text| text.contains('\n')));
        }
    }

    /// Judges the first undecided step.
    fn follow_next(&mut self, had_effect: bool) {
        let Some(mut script) = self.undecided.pop_front() else { return };
        if !had_effect {
            script.lines.clear();
        }
        self.count(&script);
        let known = self.violations.len();
        let lines = &script.lines;
        let step = Step {
            at: script.at,
            by: lines.last().map_or(script.at, |line| line.at),
            name: script.name,
            args: &script.args,
            aside: lines.iter().flat_map(Line::set_aside).collect(),
            held: lines.iter().flat_map(Line::holders).collect(),
            issued: issued(&script),
            above: script.before,
            published: &script.published,
        };
        self.skipped += step.aside.len() as u64;
        if !step.aside.is_empty() && !self.skips_allowed {
            let detail = format!("{:?} at {}", step.aside, step.at);
            self.violations.push(Violation::new(What::Skipped, detail));
        }
        let locks: HashSet<usize> = lines.iter().map(|line| line.lock).collect();
        locks.iter().for_each(|lock| self.locks[*lock].expire(&step));
        for line in lines {
            self.locks[line.lock].follow(&step, line, &mut self.violations);
        }
        for lock in locks {
            self.locks[lock].finish_step(&step, &mut self.violations);
            self.locks[lock].note(&step, lock as u32, &mut self.grants);
        }
        let lock = script.lines.first().map(|line| line.lock);
        self.recent.push_back(script);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        if let (Some(violation), Some(lock)) = (self.violations.get_mut(known), lock) {
            violation.detail += &self::before(&self.recent, lock);
        }
    }

    fn line(&self, at: i64, line: &MonitorLine) -> Option<Line> {
        let text = line.text(1);
        let (key, name, node) = split_key(&text)?;
        let lock = *self.names.get(name)? as usize;
        let mut command = line.text(0).to_ascii_uppercase();
        let mut args: Vec<String> = (2..line.args.len()).map(|index| line.text(index)).collect();
        // Normalises one command to the words of the other.
        match (&*command, &*args) {
            ("SET", [member, nx, _, ms]) if nx == "NX" => {
                args = vec![ms.clone(), member.clone()];
                command = "PSETEX".to_owned();
            }
            // Any other form would delete another member's lock key.
            ("DELEX", [condition, member]) if condition == "IFEQ" => {
                args = vec![member.clone()];
                command = "DELIFEQ".to_owned();
            }
            _ => {}
        }
        Some(Line { at, lock, key, command, args, node: node.to_owned() })
    }
}

/// Returns the token drawn by a script: the last counter value, without the positions of newcomers,
/// which are drawn last.
fn issued(script: &Script) -> Option<u64> {
    let queued = script.lines.iter().filter(|line| line.is(Key::Queue, "ZADD"));
    let scores: HashSet<u64> =
        queued.flat_map(Line::scores).map(|(score, _)| score as u64).collect();
    let mut token = script.counter;
    while token != script.before && scores.contains(&token) {
        token -= 1;
    }
    (token != script.before).then_some(token)
}

/// Returns a report of the last scripts on a lock.
fn before(scripts: &VecDeque<Script>, lock: usize) -> String {
    let mut text = String::new();
    for script in scripts.iter().filter(|script| script.lines.iter().any(|line| line.lock == lock))
    {
        text +=
            &format!("\n    {} {}, then the counter is {}", script.at, script.name, script.counter);
        for Line { at, key, command, args, node, .. } in &script.lines {
            text += &format!("\n      {at} {command} {key:?} {node} {}", args.join(" "));
        }
    }
    text
}

/// Returns the purpose of a key, the lock name, and the node id in the key name.
fn split_key(text: &str) -> Option<(Key, &str, &str)> {
    let (name, rest) = text.strip_prefix("lock:{")?.split_once('}')?;
    let (kind, node) = match rest.strip_prefix(':') {
        None => return rest.is_empty().then_some((Key::Lock, name, "")),
        Some(rest) => rest.split_once(':').unwrap_or((rest, "")),
    };
    let key = match kind {
        "queue" => Key::Queue,
        "patience" => Key::Patience,
        "passed" => Key::Aside,
        "holds" => Key::Holds,
        "reduced" => Key::Reduced,
        "gone" => Key::Tombstones,
        _ => return None,
    };
    Some((key, name, node))
}
