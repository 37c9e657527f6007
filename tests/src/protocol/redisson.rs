//! All keys of one lock in Redisson's layout, read and written in one step each.

use proto::{Command, FencingToken, Member, Party};
use redis::{Pipeline, cmd};
use redisson::{Hold, LastToken, LockState, Suspects, is_hold, is_member, is_token};

use crate::{EXPIRY, Raw};

const SCRIPT: &str = "
local call, time = redis.call, redis.call('TIME')
local gone = {}
for _, key in ipairs(call('KEYS', ARGV[1])) do
  gone[#gone + 1] = key
  gone[#gone + 1] = string.format('%.0f', expiry(key))
end
local ends = {}
for i, key in ipairs(KEYS) do
  ends[i] = expiry(key)
end
return {
  string.format('%.0f', time[1] * 1000000 + time[2]), call('HGETALL', KEYS[1]), call('LRANGE', KEYS[2], 0, -1),
  call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), call('GET', KEYS[4]), call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'),
  call('ZRANGE', KEYS[6], 0, -1), call('ZRANGE', KEYS[7], 0, -1, 'WITHSCORES'), ends, gone,
  call('DBSIZE') - call('EXISTS', unpack(KEYS)) - #gone / 2,
}";

/// A lock as stored on the server.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The server's time, µs since the epoch.
    pub at_us: u64,
    /// The state of the pure function that is equivalent to the keys.
    pub state: LockState,
    /// The expiries of list and sorted set; the state has a single expiry for both.
    pub queue_expiries: [i64; 2],
    /// The number of other keys on the server.
    pub others: i64,
    /// The fields of the hash stored under the lock name.
    pub fields: Vec<(String, String)>,
    /// The text stored under the token name.
    pub token: Option<String>,
}

type Parts = (
    String,
    Vec<(String, String)>,
    Vec<String>,
    Vec<(String, f64)>,
    Option<String>,
    Vec<(String, f64)>,
    Vec<String>,
    Vec<(String, f64)>,
    Vec<i64>,
    Vec<(String, i64)>,
    i64,
);

/// Returns the keys of hold, queue, scores, token, alive, arrivals and suspects.
#[must_use]
pub fn keys(lock: &str) -> [String; 7] {
    let of = |kind: &str| format!("redisson_lock_{kind}:{{{lock}}}");
    let (alive, arrivals, suspects) = (of("alive"), of("arrivals"), of("suspects"));
    [lock.to_owned(), of("queue"), of("timeout"), of("token"), alive, arrivals, suspects]
}

/// Returns the channel of a member that JVMs use to make each other try again. A name with braces
/// is not wrapped in further braces.
#[must_use]
pub fn poke_channel(lock: &str, member: &str) -> String {
    match lock.contains('{') {
        true => format!("redisson_lock__channel:{lock}:{member}"),
        false => format!("redisson_lock__channel:{{{lock}}}:{member}"),
    }
}

impl Snapshot {
    /// Reads all keys of a lock.
    ///
    /// # Panics
    /// Members of other programs stand where they cannot.
    pub async fn take(redis: &mut Raw, lock: &str) -> Self {
        let prefix = format!("redisson_lock_gone:{{{lock}}}:");
        let mut eval = cmd("EVAL");
        eval.arg(format!("{EXPIRY}{SCRIPT}")).arg(7).arg(&keys(lock)).arg(format!("{prefix}*"));
        let parts: Parts = redis.ask(&eval).await;
        let (at_us, fields, queue, scores, token, alive, arrivals, suspects, ends, gone, others) =
            parts;
        let expiry = |ends: i64| u64::try_from(ends).ok();
        let mut state = LockState {
            hold: fields.first().map(|(text, _)| Hold {
                member: Party::from(&**text),
                expires_ms: expiry(ends[0]),
            }),
            queue: queue.iter().map(|text| Party::from(&**text)).collect(),
            queue_expires_ms: expiry(ends[1]).or(expiry(ends[2])),
            token: token.as_ref().and_then(|text| {
                let value = FencingToken::try_from(text.parse::<u64>().ok()?).ok()?;
                Some(LastToken { value, expires_ms: expiry(ends[3]) })
            }),
            arrivals: arrivals.iter().map(|text| Party::from(&**text)).collect(),
            alive_expires_ms: expiry(ends[4]).or(expiry(ends[5])),
            suspects: read_suspects(&suspects, expiry(ends[6])),
            ..LockState::default()
        };
        for (text, deadline) in alive {
            state.alive.set(&Party::from(&*text), deadline as u64);
        }
        for (text, score) in scores {
            state.deadlines.set(&Party::from(&*text), score as u64);
        }
        for (key, ends) in gone {
            let member = key.strip_prefix(&prefix).and_then(Member::parse).expect("a tombstone");
            state.tombstones.insert(member, expiry(ends).expect("a tombstone has an end"));
        }
        let at_us = at_us.parse().expect("a time");
        Self { at_us, state, queue_expiries: [ends[1], ends[2]], others, fields, token }
    }

    /// Whether a command meets another program's key, by the function's own rules.
    #[must_use]
    pub fn is_refused(&self, command: &Command) -> bool {
        let hold = !self.fields.is_empty() && !is_hold(&self.fields);
        let queue = self.state.queue.front().is_some_and(|head| !is_member(head.as_str()));
        let token = self.token.as_ref().is_some_and(|text| !is_token(text));
        match command {
            Command::Renew { .. } | Command::Confirm { .. } => hold || token,
            // The fast path of a release without waiters checks only the caller's field.
            Command::Release { member } if self.state.queue.is_empty() => {
                hold || token && self.state.hold.as_ref().is_none_or(|held| held.member != *member)
            }
            _ => hold || queue || token,
        }
    }

    /// Returns the score of a queued party.
    ///
    /// # Panics
    /// It is not queued.
    #[must_use]
    pub fn score(&self, party: impl Into<Party>) -> u64 {
        self.state.deadlines.get(&party.into()).expect("it is queued")
    }

    /// Returns everything except the time, to compare two snapshots.
    #[must_use]
    pub fn content(&self) -> impl PartialEq + std::fmt::Debug + '_ {
        (&self.state, self.queue_expiries, self.others, &self.fields, &self.token)
    }

    /// Returns the server's time, in ms since the epoch.
    #[must_use]
    pub fn at_ms(&self) -> u64 {
        self.at_us / 1_000
    }

    /// Whether something expires in this period, both ends included, or in the ms before it: a
    /// command in the period may have seen it or not. The clock of the keys is frozen while a
    /// script runs, so a snapshot contains keys that ended in the ms before its time.
    #[must_use]
    pub fn expires_within(state: &LockState, from_ms: u64, to_ms: u64) -> bool {
        let hold = state.hold.as_ref().and_then(|hold| hold.expires_ms);
        let token = state.token.as_ref().and_then(|token| token.expires_ms);
        let mut ends: Vec<u64> =
            [hold, token, state.queue_expires_ms].into_iter().flatten().collect();
        ends.extend(state.tombstones.values());
        ends.iter().any(|at_ms| (from_ms.saturating_sub(1)..=to_ms).contains(at_ms))
    }
}

/// Replaces all keys of a lock.
pub async fn put(redis: &mut Raw, lock: &str, state: &LockState) {
    let [hold, queue, scores, token, alive, arrivals, suspects] = keys(lock);
    let mut old = redis.keys(&format!("redisson_lock_*:{{{lock}}}*")).await;
    old.push(hold.clone());
    let mut put = redis::pipe();
    put.atomic().cmd("DEL").arg(old);
    if let Some(found) = &state.hold {
        put.cmd("HSET").arg(&hold).arg(found.member.as_str()).arg(1);
        ends(&mut put, &hold, found.expires_ms);
    }
    if let Some(found) = &state.token {
        put.cmd("SET").arg(&token).arg(found.value.get());
        ends(&mut put, &token, found.expires_ms);
    }
    for party in &state.queue {
        put.cmd("RPUSH").arg(&queue).arg(party.as_str());
    }
    for (score, party) in state.deadlines.iter() {
        put.cmd("ZADD").arg(&scores).arg(score).arg(party.as_str());
    }
    for (deadline, party) in state.alive.iter() {
        put.cmd("ZADD").arg(&alive).arg(deadline).arg(party.as_str());
    }
    for (place, party) in state.arrivals.iter().enumerate() {
        put.cmd("ZADD").arg(&arrivals).arg(place + 1).arg(party.as_str());
    }
    for ((party, score), since) in &state.suspects.since_ms {
        put.cmd("ZADD").arg(&suspects).arg(*since).arg(format!("{score} {party}"));
    }
    for (member, ends_ms) in &state.tombstones {
        let key = format!("redisson_lock_gone:{{{lock}}}:{member}");
        put.cmd("SET").arg(&key).arg(1);
        ends(&mut put, &key, Some(*ends_ms));
    }
    let of = [
        (&queue, state.queue_expires_ms),
        (&scores, state.queue_expires_ms),
        (&alive, state.alive_expires_ms),
        (&arrivals, state.alive_expires_ms),
        (&suspects, state.suspects.expire_ms),
    ];
    for (key, ends_ms) in of {
        ends(&mut put, key, ends_ms);
    }
    redis.run(&put).await;
}

fn ends(put: &mut Pipeline, key: &str, ends_ms: Option<u64>) {
    if let Some(ends_ms) = ends_ms {
        put.cmd("PEXPIREAT").arg(key).arg(ends_ms);
    }
}

fn read_suspects(entries: &[(String, f64)], expire_ms: Option<u64>) -> Suspects {
    let read = |(text, since): &(String, f64)| {
        let (score, party) = text.split_once(' ').expect("a score and a party");
        ((Party::from(party), score.parse().expect("ms")), *since as u64)
    };
    Suspects { since_ms: entries.iter().map(read).collect(), expire_ms }
}
