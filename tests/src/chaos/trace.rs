//! `Trace`: follows what the server does to each lock, command by command as MONITOR shows it, and
//! checks each script against what the commands before it have left.
//!
//! This is the server's own order, exactly: of enqueues as of grants. It knows keys and commands of
//! the protocols' pages, not the scripts.

mod lock;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use super::client::{LOCKS, lock_name};
use super::violation::{Violation, What};
use crate::{MonitorLine, Source};
use lock::Lock;
pub(super) use lock::who;

/// How many scripts are remembered.
const RECENT: usize = 64;
/// For so long a member that was heard of is believed alive.
const PATIENCE_MS: i64 = 15_000;

/// A grant as the server gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerGrant {
    pub(super) lock: u32,
    pub(super) token: u64,
    /// Child and attempt, if the member was a client's.
    pub(super) who: Option<(u32, u32)>,
    /// When, by the server's clock, µs.
    pub(super) at: i64,
    /// The lease has ended by then for certain.
    pub(super) ends: i64,
    /// It was not given back: another grant came after its lease.
    pub(super) ran_out: bool,
    /// The token that it had from then on as a read of a write.
    pub(super) reduced: Option<u64>,
}

/// What all of a run's scripts have done so far.
pub(super) struct Trace {
    passes_allowed: bool,
    names: HashMap<String, u32>,
    locks: Vec<Lock>,
    script: Option<Script>,
    /// The last scripts, to tell what came before a violation.
    recent: VecDeque<Script>,
    pub(super) grants: Vec<ServerGrant>,
    pub(super) passed_over: u64,
    pub(super) violations: Vec<Violation>,
}

/// The commands of one script: one atomic step.
struct Script {
    /// When it began, by the server's clock, µs.
    at: i64,
    args: HashSet<String>,
    lines: Vec<Line>,
}

/// One command of a script on a key of one of the locks.
pub(super) struct Line {
    pub(super) at: i64,
    lock: usize,
    pub(super) key: Key,
    pub(super) command: String,
    /// What follows the key; of a tombstone its member.
    pub(super) args: Vec<String>,
}

impl Line {
    /// Score and member, of a `ZADD key [flags] score member ...`.
    pub(super) fn scores(&self) -> impl Iterator<Item = (i64, &str)> {
        let is_flag = |arg: &&String| ["XX", "NX", "GT", "LT"].contains(&&***arg);
        let flags = self.args.iter().take_while(is_flag).count();
        let pairs = self.args[flags..].chunks_exact(2);
        pairs.filter_map(|pair| Some((pair[0].parse::<f64>().ok()? as i64, pair[1].as_str())))
    }

    /// Whether it has this flag in front.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.args.iter().take(2).any(|arg| arg == flag)
    }

    /// The members that it gives the lock to, or a longer lease.
    fn holders(&self) -> Vec<&str> {
        match (self.key, self.command.as_str()) {
            (Key::Hold, "HSET") => self.args.iter().take(1).map(String::as_str).collect(),
            (Key::Holds, "ZADD") => self.scores().map(|(_, member)| member).collect(),
            _ => Vec::new(),
        }
    }

    /// The members that it passes over in a script that began at `at`: their patience then ends
    /// sooner than that of any member that was heard of.
    fn passed(&self, at: i64) -> Vec<&str> {
        if (self.key, self.command.as_str()) != (Key::Deadlines, "ZADD") {
            return Vec::new();
        }
        let is_sooner = |until: i64| until < at / 1_000 + PATIENCE_MS;
        // A member without a name is written by nothing but a look for write access.
        let passed =
            self.scores().filter(|(until, member)| is_sooner(*until) && !member.is_empty());
        passed.map(|(_, member)| member).collect()
    }
}

/// What a key of a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The hold of a mutex,
    Hold,
    Token,
    /// and what is known of permits.
    State,
    Holds,
    Queue,
    Deadlines,
    Tombstone,
}

/// What a script does in all, looked at before it is followed line by line.
pub(super) struct Step<'a> {
    /// It began after this, by the server's clock,
    pub(super) at: i64,
    /// and was over at this: the server may have been stopped in between.
    pub(super) by: i64,
    /// The script's own arguments.
    pub(super) args: &'a HashSet<String>,
    /// Members that it passes over.
    pub(super) passed: HashSet<&'a str>,
    /// Members it grants the lock to, or a longer lease.
    pub(super) held: HashSet<&'a str>,
}

impl Step<'_> {
    /// Only an acquire says whether it asks once or waits.
    pub(super) fn is_acquire(&self) -> bool {
        self.args.contains("try") || self.args.contains("wait")
    }
}

impl Trace {
    pub(super) fn new(passes_allowed: bool) -> Self {
        let names = (0..LOCKS).map(|lock| (lock_name(lock), lock)).collect();
        let locks = (0..LOCKS).map(|_| Lock::default()).collect();
        Self {
            passes_allowed,
            names,
            locks,
            script: None,
            recent: VecDeque::new(),
            grants: Vec::new(),
            passed_over: 0,
            violations: Vec::new(),
        }
    }

    pub(super) fn feed(&mut self, line: &MonitorLine) {
        let at = i64::try_from(line.time_us).expect("a clock before the year 290 000");
        if line.source == Source::Lua {
            let line = self.line(at, line);
            if let (Some(script), Some(line)) = (&mut self.script, line) {
                script.lines.push(line);
            }
            return;
        }
        self.finish();
        if line.is("EVALSHA") || line.is("EVAL") {
            let args = (3..line.args.len()).map(|index| line.text(index)).collect();
            self.script = Some(Script { at, args, lines: Vec::new() });
        }
    }

    /// Follows the last script to its end.
    pub(super) fn finish(&mut self) {
        let Some(script) = self.script.take() else { return };
        let known = self.violations.len();
        let lines = &script.lines;
        let step = Step {
            at: script.at,
            by: lines.last().map_or(script.at, |line| line.at),
            args: &script.args,
            passed: lines.iter().flat_map(|line| line.passed(script.at)).collect(),
            held: lines.iter().flat_map(Line::holders).collect(),
        };
        self.passed_over += step.passed.len() as u64;
        if !step.passed.is_empty() && !self.passes_allowed {
            let detail = format!("{:?} at {}", step.passed, step.at);
            self.violations.push(Violation::new(What::PassedOver, detail));
        }
        for line in lines {
            self.locks[line.lock].follow(&step, line, &mut self.violations);
        }
        for lock in lines.iter().map(|line| line.lock).collect::<HashSet<_>>() {
            self.locks[lock].finish_step(&step, &mut self.violations);
            self.locks[lock].note(lock as u32, &mut self.grants);
        }
        let lock = script.lines.first().map(|line| line.lock);
        self.recent.push_back(script);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        if let (Some(violation), Some(lock)) = (self.violations.get_mut(known), lock) {
            violation.detail += &before(&self.recent, lock);
        }
    }

    fn line(&self, at: i64, line: &MonitorLine) -> Option<Line> {
        let text = line.text(1);
        let (key, name, rest) = split_key(&text)?;
        let lock = *self.names.get(name)? as usize;
        let command = line.text(0).to_ascii_uppercase();
        let args = match key {
            Key::Tombstone => vec![rest.to_owned()],
            _ => (2..line.args.len()).map(|index| line.text(index)).collect(),
        };
        Some(Line { at, lock, key, command, args })
    }
}

/// What the last scripts did to a lock.
fn before(scripts: &VecDeque<Script>, lock: usize) -> String {
    let mut text = String::new();
    for script in scripts.iter().filter(|script| script.lines.iter().any(|line| line.lock == lock))
    {
        text += &format!("\n    {}", script.at);
        for Line { at, key, command, args, .. } in &script.lines {
            text += &format!("\n      {at} {command} {key:?} {}", args.join(" "));
        }
    }
    text
}

/// What a key is for, the name of its lock, and for a tombstone its member.
fn split_key(text: &str) -> Option<(Key, &str, &str)> {
    let prefixes = [
        ("redisson_lock_queue:{", Key::Queue),
        ("redisson_lock_timeout:{", Key::Deadlines),
        ("redisson_lock_token:{", Key::Token),
        ("redisson_lock_gone:{", Key::Tombstone),
        ("lock_permits:{", Key::State),
        ("lock_permits_holds:{", Key::Holds),
        ("lock_permits_queue:{", Key::Queue),
        ("lock_permits_deadlines:{", Key::Deadlines),
        ("lock_permits_gone:{", Key::Tombstone),
    ];
    for (prefix, key) in prefixes {
        if let Some(rest) = text.strip_prefix(prefix) {
            let (name, rest) = rest.split_once('}')?;
            return Some((key, name, rest.strip_prefix(':').unwrap_or(rest)));
        }
    }
    Some((Key::Hold, text, ""))
}
