//! `Trace`: follows what the server does to each lock, command by command as MONITOR shows it, and
//! checks each script against what the commands before it have left.
//!
//! This is the server's own order, exactly: of enqueues as of grants. It knows keys and commands of
//! the protocol page, not the scripts.

mod lock;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};

use super::client::{LOCKS, lock_name, read_label};
use super::violation::{Violation, What};
use crate::{MonitorLine, Source};
use lock::Lock;
pub(super) use lock::label as member_label;

/// How many scripts are remembered.
const RECENT: usize = 64;

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
    /// Nobody gave it back: another grant came after its lease.
    pub(super) ran_out: bool,
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

/// What a key of a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Hold,
    Queue,
    Deadlines,
    Token,
    Tombstone,
}

/// What a script does in all, looked at before it is followed line by line.
pub(super) struct Step<'a> {
    /// It began after this, by the server's clock,
    pub(super) at: i64,
    /// and before this: the server may have been stopped in between.
    pub(super) by: i64,
    /// The script's own arguments.
    pub(super) args: &'a HashSet<String>,
    /// Members whose deadline it lowers: passed over.
    pub(super) lowered: HashSet<&'a str>,
    /// Members it grants the lock to.
    pub(super) granted: HashSet<&'a str>,
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
        let lowers =
            |line: &&Line| line.command == "ZADD" && line.args.iter().any(|arg| arg == "LT");
        let step = Step {
            at: script.at,
            by: script.lines.first().map_or(script.at, |line| line.at),
            args: &script.args,
            lowered: script
                .lines
                .iter()
                .filter(lowers)
                .flat_map(|line| line.args.iter().skip(3).step_by(2).map(String::as_str))
                .collect(),
            granted: script
                .lines
                .iter()
                .filter(|line| line.command == "HSET" && line.key == Key::Hold)
                .filter_map(|line| line.args.first().map(String::as_str))
                .collect(),
        };
        self.passed_over += step.lowered.len() as u64;
        if !step.lowered.is_empty() && !self.passes_allowed {
            let detail = format!("{:?} at {}", step.lowered, step.at);
            self.violations.push(Violation::new(What::PassedOver, detail));
        }
        for line in &script.lines {
            let lock = &mut self.locks[line.lock];
            let held = lock.is_held();
            let granted = lock.follow(&step, line, &mut self.violations);
            if let Some((member, token)) = granted {
                if let (true, Some(last)) = (held, lock.last_grant) {
                    self.grants[last].ran_out = true;
                }
                lock.last_grant = Some(self.grants.len());
                self.grants.push(ServerGrant {
                    lock: line.lock as u32,
                    token,
                    who: lock::label(&member).and_then(read_label),
                    at: line.at,
                    ends: i64::MAX,
                    ran_out: false,
                });
            }
            if let (Some(ends), Some(index)) = (lock.ends_at_last(), lock.last_grant) {
                self.grants[index].ends = ends;
            }
        }
        // A hold needs an end in the same step.
        for lock in script.lines.iter().map(|line| line.lock).collect::<HashSet<_>>() {
            self.locks[lock].finish_step(&step, &mut self.violations);
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
    ];
    for (prefix, key) in prefixes {
        if let Some(rest) = text.strip_prefix(prefix) {
            let (name, rest) = rest.split_once('}')?;
            return Some((key, name, rest.strip_prefix(':').unwrap_or(rest)));
        }
    }
    Some((Key::Hold, text, ""))
}
