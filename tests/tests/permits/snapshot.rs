//! All keys of one resource, read in one step.

use lock_tests::{EXPIRY, Raw};
use lockcore::FencingToken;
use lockcore::internals::protocol::permits::{Era, PermitState, is_state, is_tombstone};
use lockcore::internals::{Command, Member};
use redis::cmd;

/// Keys of other types count as empty.
const SCRIPT: &str = "
local call, time = redis.call, redis.call('TIME')
local function content(key, type_of, ...)
  return call('TYPE', key).ok == type_of and call(...) or {}
end
local gone, types, ends, dumps = {}, {}, {}, {}
for _, key in ipairs(call('KEYS', ARGV[1])) do
  local mark = redis.pcall('GET', key)
  gone[#gone + 1] = { key, string.format('%.0f', expiry(key)), type(mark) == 'string' and mark or '' }
end
for i, key in ipairs(KEYS) do
  types[i], ends[i] = call('TYPE', key).ok, expiry(key)
end
local all = call('KEYS', '*')
table.sort(all)
for i, key in ipairs(all) do
  dumps[i] = key .. string.format(' %.0f ', expiry(key)) .. call('DUMP', key)
end
local function sorted_set(key)
  return content(key, 'zset', 'ZRANGE', key, 0, -1, 'WITHSCORES')
end
return {
  string.format('%.0f', time[1] * 1000000 + time[2]), types, ends, content(KEYS[1], 'hash', 'HGETALL', KEYS[1]),
  { sorted_set(KEYS[2]), sorted_set(KEYS[3]), sorted_set(KEYS[4]) }, gone, dumps,
}";

/// A resource as it stands on the server.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) at_us: u64,
    pub(crate) state: PermitState,
    /// Of state, holds, queue and deadlines; -2 without the key.
    pub(crate) expiries: Vec<i64>,
    /// Which of these are another program's.
    pub(crate) strange: Vec<bool>,
    /// Tombstones that are another program's.
    pub(crate) strange_marks: Vec<Member>,
    /// All keys of the server with content and expiry.
    dumps: Vec<Vec<u8>>,
}

type Parts = (
    String,
    Vec<String>,
    Vec<i64>,
    Vec<(String, String)>,
    Vec<Vec<(String, f64)>>,
    Vec<(String, String, String)>,
    Vec<Vec<u8>>,
);

pub(crate) fn keys(lock: &str) -> [String; 4] {
    ["", "_holds", "_queue", "_deadlines"].map(|which| format!("lock_permits{which}:{{{lock}}}"))
}

impl Snapshot {
    pub(crate) async fn take(redis: &mut Raw, lock: &str) -> Self {
        let prefix = format!("lock_permits_gone:{{{lock}}}:");
        let mut eval = cmd("EVAL");
        eval.arg(format!("{EXPIRY}{SCRIPT}")).arg(4).arg(&keys(lock)).arg(format!("{prefix}*"));
        let (at_us, types, expiries, fields, sets, marks, dumps): Parts = redis.ask(&eval).await;
        let mut state = PermitState::default();
        let mut strange: Vec<bool> = types
            .iter()
            .zip(["hash", "zset", "zset", "zset"])
            .map(|(found, ours)| found != "none" && found != ours)
            .collect();
        strange[0] |= !fields.is_empty() && !is_state(&fields);
        if !strange[0] {
            read_state(&mut state, &fields);
        }
        let into = [&mut state.holds, &mut state.queue, &mut state.deadlines];
        for (at, (set, into)) in sets.into_iter().zip(into).enumerate() {
            let members: Option<Vec<_>> = set
                .iter()
                .map(|(text, score)| Some((Member::parse(text)?, *score as u64)))
                .collect();
            let Some(members) = members else {
                strange[at + 1] = true;
                continue;
            };
            for (member, score) in members {
                into.set(&member, score);
            }
        }
        let mut strange_marks = Vec::new();
        for (key, ends, mark) in marks {
            let member = key.strip_prefix(&prefix).and_then(Member::parse).expect("a tombstone");
            if is_tombstone(&mark) {
                state.gone.insert(member, ends.parse().expect("a tombstone has an end"));
            } else {
                strange_marks.push(member);
            }
        }
        let at_us = at_us.parse().expect("a time");
        Self { at_us, state, expiries, strange, strange_marks, dumps }
    }

    /// Whether a command meets another program's key, by the function's own rules. Nothing where a
    /// short way may not have looked: at deadlines, with none waiting.
    pub(crate) fn is_refused(&self, command: &Command) -> Option<bool> {
        let [state, holds, queue, deadlines] = self.strange[..] else { unreachable!() };
        let is_marked = |member: &Member| self.strange_marks.contains(member);
        match command {
            Command::Renew { .. } => return Some(state || holds),
            Command::Acquire { member, .. } if is_marked(member) => return Some(true),
            Command::Leave { leaving }
                if leaving.iter().any(|one| one.ambiguous && is_marked(&one.member)) =>
            {
                return Some(true);
            }
            _ => {}
        }
        let is_short = matches!(command, Command::Acquire { .. } | Command::Release { .. });
        if state || holds || queue {
            Some(true)
        } else if deadlines && is_short && self.state.queue.is_empty() {
            None
        } else {
            Some(deadlines)
        }
    }

    /// Every key of the server.
    pub(crate) fn content(&self) -> &[Vec<u8>] {
        &self.dumps
    }
}

fn read_state(state: &mut PermitState, fields: &[(String, String)]) {
    for (field, value) in fields {
        let number = || value.parse::<u64>().expect("a number");
        match &**field {
            "used" => state.used = Some(number()),
            "token" => state.token = FencingToken::try_from(number()).ok(),
            "era" => state.era = Some(if value == "x" { Era::Exclusive } else { Era::Shared }),
            "ends" => state.ends_ms = Some(number()),
            _ => {
                let member = Member::parse(field).expect("a member");
                state.reduced.insert(member, number());
            }
        }
    }
}
