//! All keys of a lock in our layout, read and written in one step each.

use proto::queue::{Held, LockKeyValue, Mark, QueueState, SetAside};
use proto::{Command, Demand, Member, SortedSet};
use redis::{Pipeline, cmd};

use crate::{COUNTER, EXPIRY, Raw, aside_key, patience_key};

/// The script that reads all keys of a lock. A key of another type counts as empty.
const SCRIPT: &str = "
local call, time = redis.call, redis.call('TIME')
local lock_key = KEYS[1]
local function text(key)
  local found = redis.pcall('GET', key)
  return { call('TYPE', key).ok, expiry(key), type(found) == 'string' and found or '' }
end
local function sorted_set(key)
  local found = call('TYPE', key).ok
  return { found, expiry(key), found == 'zset' and call('ZRANGE', key, 0, -1, 'WITHSCORES') or {} }
end
local patience, aside, dumps, swept = {}, {}, {}, 0
local all = call('KEYS', '*')
table.sort(all)
for i, key in ipairs(all) do
  dumps[i] = { key, string.format('%.0f ', expiry(key)) .. call('DUMP', key) }
  local node = string.match(key, '^' .. ARGV[1] .. ':patience:(.*)$')
  if node then patience[#patience + 1] = { node, expiry(key) } end
  node = string.match(key, '^' .. ARGV[1] .. ':passed:(.*)$')
  if key == ARGV[1] .. ':swept' then swept = expiry(key) end
  if node then aside[#aside + 1] = { node, sorted_set(key) } end
end
return {
  string.format('%.0f', time[1] * 1000000 + time[2]), text(lock_key), text(KEYS[2]),
  { sorted_set(lock_key .. ':queue'), sorted_set(lock_key .. ':holds'), sorted_set(lock_key .. ':reduced'), sorted_set(lock_key .. ':gone') },
  { patience, aside }, dumps, swept,
}";

type Text = (String, i64, String);
type Set = (String, i64, Vec<(String, f64)>);
type Dump = Vec<(String, Vec<u8>)>;
type OfNodes = (Vec<(String, i64)>, Vec<(String, Set)>);
type Parts = (String, Text, Text, Vec<Set>, OfNodes, Dump, i64);

/// A lock as stored on the server.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The server's time, µs since the epoch.
    pub at_us: u64,
    /// The state of the pure function that is equivalent to the keys.
    pub state: QueueState,
    /// The token counter; `None` if it is not ours.
    pub counter: Option<u64>,
    /// The keys of another program.
    pub strange: Vec<String>,
    /// All keys of the server with content and expiry.
    dumps: Dump,
}

/// Returns the lock key, and the keys of the queue, the holds, the reduced weights and the
/// tombstones.
#[must_use]
pub fn keys(lock: &str) -> [String; 5] {
    ["", ":queue", ":holds", ":reduced", ":gone"].map(|which| format!("lock:{{{lock}}}{which}"))
}

impl Snapshot {
    /// Reads all keys of a lock.
    ///
    /// # Panics
    /// A key without an end, or members of other programs, stand where they cannot.
    pub async fn take(redis: &mut Raw, lock: &str) -> Self {
        let [lock_key, ..] = keys(lock);
        let mut eval = cmd("EVAL");
        eval.arg(format!("{EXPIRY}{SCRIPT}")).arg(2).arg(&lock_key).arg(COUNTER).arg(&lock_key);
        let (at_us, held, counter, sets, (patience, aside), dumps, swept): Parts =
            redis.ask(&eval).await;
        let mut state = QueueState::default();
        let mut strange = Vec::new();
        let (found, expiry, text) = held;
        state.lock_key = read_lock_key(&text).map(|(mark, held)| LockKeyValue {
            held,
            mark,
            ends_ms: end(expiry),
        });
        if found != "none" && state.lock_key.is_none() {
            strange.push(lock_key.clone());
        }
        let names = keys(lock);
        let mut ends = Vec::new();
        let mut read = Vec::new();
        for ((found, expiry, items), name) in sets.into_iter().zip(&names[1..]) {
            let set = members(&items).filter(|_| found == "none" || found == "zset");
            if set.is_none() {
                strange.push(name.clone());
            }
            ends.push(end(expiry));
            read.push(set.unwrap_or_default());
        }
        let [queue, holds, reduced, gone] = <[_; 4]>::try_from(read).expect("four");
        state.queue_ends_ms = ends[0].filter(|_| !queue.is_empty());
        // The function has a single expiry for both, so the earlier one counts: a hold whose
        // reduced weight has expired would count as a lock.
        state.holds_end_ms = match (holds.is_empty(), reduced.is_empty()) {
            (false, false) => [ends[1], ends[2]].into_iter().flatten().min(),
            (false, true) => ends[1],
            (true, _) => ends[2],
        };
        state.holds_end_ms =
            state.holds_end_ms.filter(|_| !holds.is_empty() || !reduced.is_empty());
        state.reduced = reduced.iter().map(|(weight, one)| (one.clone(), weight)).collect();
        (state.queue, state.holds, state.tombstones) = (queue, holds, gone);
        state.patience = patience
            .into_iter()
            .map(|(node, expiry)| (node.into(), u64::try_from(expiry).expect("it ends")))
            .collect();
        for (node, (_, expiry, items)) in aside {
            let members = members(&items).expect("members");
            let ends_ms = u64::try_from(expiry).expect("it ends");
            state.set_aside.insert(node.into(), SetAside { members, ends_ms });
        }
        state.swept_until_ms = end(swept).filter(|_| swept > 0);
        let is_number = counter.2.parse::<i128>().is_ok();
        if counter.0 != "none" && !is_number {
            strange.push(COUNTER.to_owned());
        }
        let counter = counter.2.parse::<i128>().ok().map(|count| count.max(0) as u64);
        Self { at_us: at_us.parse().expect("a time"), state, counter, strange, dumps }
    }

    /// Whether a command meets another program's key, by the function's own rules. `None` where a
    /// fast path may not have checked.
    #[must_use]
    pub fn is_refused(&self, command: &Command) -> Option<bool> {
        if self.strange.is_empty() {
            return Some(false);
        }
        let is_at = |which: &str| self.strange.iter().any(|key| key.ends_with(which));
        let reads_tombstones = self
            .state
            .lock_key
            .as_ref()
            .is_some_and(|lock_key| lock_key.mark == Mark::Tombstones)
            || matches!(command, Command::Leave { leaving } if leaving.iter().any(|one| one.ambiguous));
        let is_met = is_at("}") || is_at(":queue") || is_at(":holds") || is_at(":reduced");
        match command {
            Command::Acquire { .. }
            | Command::Release { .. }
            | Command::Renew { .. }
            | Command::Confirm { .. } => None,
            Command::Touch { .. } | Command::Leave { .. } if self.is_waited_for() => None,
            _ if is_met || is_at(":gone") && reads_tombstones => Some(true),
            _ if is_at(COUNTER) => None,
            _ => Some(false),
        }
    }

    /// Whether the lock key shows that others may wait.
    fn is_waited_for(&self) -> bool {
        let lock_key = self.state.lock_key.as_ref();
        lock_key.is_some_and(|lock_key| {
            lock_key.mark != Mark::None && matches!(lock_key.held, Held::Whole { .. })
        })
    }

    /// Returns the keys of other programs that the command must not change. The fast path of a
    /// member that waits behind a lock checks the type of the queue, but not its other members.
    #[must_use]
    pub fn untouchable(&self, command: &Command) -> Vec<String> {
        let is_short = match command {
            Command::Acquire { members, .. } => {
                matches!(&**members, [one] if one.demand() == Demand::EXCLUSIVE)
            }
            Command::Touch { .. } | Command::Leave { .. } => true,
            _ => false,
        };
        let is_kept =
            |key: &&String| !(is_short && self.is_waited_for() && key.ends_with(":queue"));
        self.strange.iter().filter(is_kept).cloned().collect()
    }

    /// Returns all keys of the server, with content and expiry.
    #[must_use]
    pub fn content(&self) -> &Dump {
        &self.dumps
    }

    /// Returns the keys of other programs.
    #[must_use]
    pub fn content_of(&self, keys: &[String]) -> Dump {
        self.dumps.iter().filter(|(key, _)| keys.contains(key)).cloned().collect()
    }
}

/// Replaces all keys of a lock.
pub async fn put(redis: &mut Raw, lock: &str, state: &QueueState) {
    let [lock_key, queue, holds, reduced, gone] = keys(lock);
    let mut put = redis::pipe();
    put.atomic();
    let of_nodes = format!("{}:*", crate::lock_key(lock)).replace(['[', ']', '?', '\\'], "?");
    let mut old: Vec<String> = redis.keys(&of_nodes).await;
    old.push(lock_key.clone());
    put.cmd("DEL").arg(old);
    if let Some(found) = &state.lock_key {
        put.cmd("SET").arg(&lock_key).arg(write_lock_key(found));
        ends(&mut put, &lock_key, found.ends_ms);
    }
    put_set(&mut put, &queue, &state.queue, state.queue_ends_ms);
    put_set(&mut put, &holds, &state.holds, state.holds_end_ms);
    for (member, weight) in &state.reduced {
        put.cmd("ZADD").arg(&reduced).arg(*weight).arg(member.as_str());
        ends(&mut put, &reduced, state.holds_end_ms);
    }
    put_set(
        &mut put,
        &gone,
        &state.tombstones,
        state.tombstones.greatest().map(|(ends_ms, _)| ends_ms),
    );
    for (node, ends_ms) in &state.patience {
        let key = patience_key(lock, node);
        put.cmd("SET").arg(&key).arg("1");
        ends(&mut put, &key, Some(*ends_ms));
    }
    if let Some(ends_ms) = state.swept_until_ms {
        let key = format!("{lock_key}:swept");
        put.cmd("SET").arg(&key).arg("1");
        ends(&mut put, &key, Some(ends_ms));
    }
    for (node, aside) in &state.set_aside {
        put_set(&mut put, &aside_key(lock, node), &aside.members, Some(aside.ends_ms));
    }
    redis.run(&put).await;
}

fn put_set(put: &mut Pipeline, key: &str, set: &SortedSet<Member>, ends_ms: Option<u64>) {
    if set.is_empty() {
        return;
    }
    let scores: Vec<(u64, &str)> =
        set.iter().map(|(score, member)| (score, member.as_str())).collect();
    put.cmd("ZADD").arg(key).arg(scores);
    ends(put, key, ends_ms);
}

fn ends(put: &mut Pipeline, key: &str, ends_ms: Option<u64>) {
    if let Some(ends_ms) = ends_ms {
        put.cmd("PEXPIREAT").arg(key).arg(ends_ms);
    }
}

fn write_lock_key(lock_key: &LockKeyValue) -> String {
    let mark = match lock_key.mark {
        Mark::None => "",
        Mark::Waited => "+",
        Mark::Tombstones => "-",
    };
    match &lock_key.held {
        Held::Whole { member, batch } if batch.is_empty() => format!("{mark}{member}"),
        Held::Whole { member, batch } => {
            let numbers: Vec<_> = batch.iter().map(u64::to_string).collect();
            format!("{mark}{member}\n{}", numbers.join(" "))
        }
        Held::Parts { used, token } => {
            format!("{mark}*{used}:{}", token.map_or(0, |token| token.get()))
        }
    }
}

fn end(expiry: i64) -> Option<u64> {
    u64::try_from(expiry).ok()
}

fn members(items: &[(String, f64)]) -> Option<SortedSet<Member>> {
    let mut set = SortedSet::default();
    for (text, score) in items {
        set.set(&Member::parse(text)?, *score as u64);
    }
    Some(set)
}

fn read_lock_key(text: &str) -> Option<(Mark, Held)> {
    let (mark, body) = match text.split_at_checked(1)? {
        ("+", body) => (Mark::Waited, body),
        ("-", body) => (Mark::Tombstones, body),
        _ => (Mark::None, text),
    };
    if let Some(parts) = body.strip_prefix('*') {
        let (used, token) = parts.split_once(':')?;
        let is_number = |text: &str| {
            (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(used) || !is_number(token) {
            return None;
        }
        let token: u64 = token.parse().ok()?;
        let token = if token == 0 { None } else { Some(token.try_into().ok()?) };
        return Some((mark, Held::Parts { used: used.parse().ok()?, token }));
    }
    let (member, batch) = match body.split_once('\n') {
        Some((member, numbers)) => {
            let numbers = numbers.split(' ').map(|number| number.parse().ok());
            (member, numbers.collect::<Option<Vec<u64>>>()?)
        }
        None => (body, Vec::new()),
    };
    let member = Member::parse(member).filter(|member| member.demand() == Demand::EXCLUSIVE)?;
    Some((mark, Held::Whole { member, batch }))
}
