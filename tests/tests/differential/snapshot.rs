//! All keys of one lock, read in one step.

use lock_tests::{EXPIRY, Raw};
use lockcore::FencingToken;
use lockcore::internals::Member;
use lockcore::internals::protocol::{Hold, LastToken, LockState};
use redis::cmd;

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
  string.format('%.0f', time[1] * 1000000 + time[2]), call('HKEYS', KEYS[1]), call('LRANGE', KEYS[2], 0, -1),
  call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), call('GET', KEYS[4]), ends, gone,
  call('DBSIZE') - call('EXISTS', unpack(KEYS)) - #gone / 2,
}";

/// A lock as it stands on the server.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) at_us: u64,
    pub(crate) state: LockState,
    /// Expiries of list and sorted set; the state has one for both.
    pub(crate) queue_expiries: [i64; 2],
    /// How many keys there are besides.
    pub(crate) others: i64,
}

type Parts = (
    String,
    Vec<String>,
    Vec<String>,
    Vec<(String, f64)>,
    Option<String>,
    Vec<i64>,
    Vec<(String, i64)>,
    i64,
);

pub(crate) fn keys(lock: &str) -> [String; 4] {
    [
        lock.to_owned(),
        format!("redisson_lock_queue:{{{lock}}}"),
        format!("redisson_lock_timeout:{{{lock}}}"),
        format!("redisson_lock_token:{{{lock}}}"),
    ]
}

impl Snapshot {
    pub(crate) async fn take(redis: &mut Raw, lock: &str) -> Self {
        let prefix = format!("redisson_lock_gone:{{{lock}}}:");
        let mut eval = cmd("EVAL");
        eval.arg(format!("{EXPIRY}{SCRIPT}")).arg(4).arg(&keys(lock)).arg(format!("{prefix}*"));
        let (at_us, holders, queue, scores, token, ends, gone, others): Parts =
            redis.ask(&eval).await;
        assert!(holders.len() <= 1, "more than one holder: {holders:?}");
        let expiry = |ends: i64| u64::try_from(ends).ok();
        let mut state = LockState {
            hold: holders
                .first()
                .map(|text| Hold { member: Member::from(&**text), expires_ms: expiry(ends[0]) }),
            queue: queue.iter().map(|text| Member::from(&**text)).collect(),
            queue_expires_ms: expiry(ends[1]).or(expiry(ends[2])),
            token: token.and_then(|text| {
                let value = FencingToken::try_from(text.parse::<u64>().ok()?).ok()?;
                Some(LastToken { value, expires_ms: expiry(ends[3]) })
            }),
            ..LockState::default()
        };
        for (text, score) in scores {
            state.deadlines.set(&Member::from(&*text), score as u64);
        }
        for (key, ends) in gone {
            let member = key.strip_prefix(&prefix).expect("a tombstone's key");
            state.gone.insert(Member::from(member), expiry(ends).expect("a tombstone has an end"));
        }
        let at_us = at_us.parse().expect("a time");
        Self { at_us, state, queue_expiries: [ends[1], ends[2]], others }
    }

    pub(crate) fn at_ms(&self) -> u64 {
        self.at_us / 1_000
    }

    /// Whether something expires in this span, both ends included: a command in it may have seen it or not.
    pub(crate) fn expires_within(state: &LockState, from_ms: u64, to_ms: u64) -> bool {
        let hold = state.hold.as_ref().and_then(|hold| hold.expires_ms);
        let token = state.token.as_ref().and_then(|token| token.expires_ms);
        let mut ends: Vec<u64> =
            [hold, token, state.queue_expires_ms].into_iter().flatten().collect();
        ends.extend(state.gone.values());
        ends.iter().any(|at_ms| (from_ms..=to_ms).contains(at_ms))
    }
}
