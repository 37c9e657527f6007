//! All keys of a shared queue, read in one step, and compared with what the function leaves.

use lock_tests::{EXPIRY, Raw};
use lockcore::FencingToken;
use lockcore::internals::Member;
use lockcore::internals::protocol::{Hold, LastToken, LockState, Suspects};
use redis::cmd;

const SCRIPT: &str = "
local call, time, ends = redis.call, redis.call('TIME'), {}
for i, key in ipairs(KEYS) do
  ends[i] = expiry(key)
end
local gone = {}
for _, key in ipairs(call('KEYS', ARGV[1])) do
  gone[#gone + 1] = key
  gone[#gone + 1] = string.format('%.0f', expiry(key))
end
return {
  string.format('%.0f', time[1] * 1000000 + time[2]), call('HKEYS', KEYS[1]), call('LRANGE', KEYS[2], 0, -1),
  call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'), call('GET', KEYS[4]), call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'),
  call('ZRANGE', KEYS[6], 0, -1), call('ZRANGE', KEYS[7], 0, -1, 'WITHSCORES'), ends, gone,
}";

type Parts = (
    String,
    Vec<String>,
    Vec<String>,
    Vec<(String, f64)>,
    Option<String>,
    Vec<(String, f64)>,
    Vec<String>,
    Vec<(String, f64)>,
    Vec<i64>,
    Vec<(String, i64)>,
);

/// Hold, queue, scores, token, alive, arrivals, suspects.
pub(crate) fn keys(lock: &str) -> [String; 7] {
    let of = |kind: &str| format!("redisson_lock_{kind}:{{{lock}}}");
    let (alive, arrivals, suspects) = (of("alive"), of("arrivals"), of("suspects"));
    [lock.to_owned(), of("queue"), of("timeout"), of("token"), alive, arrivals, suspects]
}

#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) at_ms: u64,
    pub(crate) state: LockState,
}

impl Snapshot {
    pub(crate) async fn take(redis: &mut Raw, lock: &str) -> Self {
        let prefix = format!("redisson_lock_gone:{{{lock}}}:");
        let mut eval = cmd("EVAL");
        eval.arg(format!("{EXPIRY}{SCRIPT}")).arg(7).arg(&keys(lock)).arg(format!("{prefix}*"));
        let (at_us, holders, queue, scores, token, alive, arrivals, suspects, ends, gone): Parts =
            redis.ask(&eval).await;
        let expiry = |ends: i64| u64::try_from(ends).ok();
        let mut state = LockState {
            hold: holders
                .first()
                .map(|text| Hold { member: Member::from(&**text), expires_ms: expiry(ends[0]) }),
            queue: queue.iter().map(|text| Member::from(&**text)).collect(),
            queue_expires_ms: expiry(ends[1]).or(expiry(ends[2])),
            token: token.map(|text| LastToken {
                value: FencingToken::try_from(text.parse::<u64>().expect("a number"))
                    .expect("small"),
                expires_ms: expiry(ends[3]),
            }),
            arrivals: arrivals.iter().map(|text| Member::from(&**text)).collect(),
            alive_expires_ms: expiry(ends[4]).or(expiry(ends[5])),
            suspects: read_suspects(&suspects, expiry(ends[6])),
            ..LockState::default()
        };
        for (text, score) in scores {
            state.deadlines.set(&Member::from(&*text), score as u64);
        }
        for (text, deadline) in alive {
            state.alive.set(&Member::from(&*text), deadline as u64);
        }
        for (key, ends) in gone {
            let member = key.strip_prefix(&prefix).expect("a tombstone's key");
            state.gone.insert(Member::from(member), expiry(ends).expect("a tombstone has an end"));
        }
        Self { at_ms: at_us.parse::<u64>().expect("a time") / 1_000, state }
    }

    /// Whether a hold ends in this span: a command in it may have seen it or not.
    pub(crate) fn ends_within(state: &LockState, from_ms: u64, to_ms: u64) -> bool {
        let ends = state.hold.as_ref().and_then(|hold| hold.expires_ms);
        ends.is_some_and(|at_ms| (from_ms..=to_ms).contains(&at_ms))
    }
}

fn read_suspects(entries: &[(String, f64)], expire_ms: Option<u64>) -> Suspects {
    let read = |(text, since): &(String, f64)| {
        let (score, member) = text.split_once(' ').expect("a score and a member");
        ((Member::from(member), score.parse().expect("ms")), *since as u64)
    };
    Suspects { since_ms: entries.iter().map(read).collect(), expire_ms }
}

/// Moves times of `actual` to what was expected where they differ by no more than the time that the
/// command took: Redis reads its clock once more for a TTL.
pub(crate) fn settle(expected: &LockState, actual: &mut LockState, span_ms: u64) {
    let near = |one: u64, other: u64| one.abs_diff(other) <= span_ms;
    let settle = |expected: Option<u64>, actual: &mut Option<u64>| {
        if let (Some(one), Some(other)) = (expected, *actual)
            && near(one, other)
        {
            *actual = expected;
        }
    };
    if let (Some(expected), Some(actual)) = (&expected.hold, &mut actual.hold) {
        settle(expected.expires_ms, &mut actual.expires_ms);
    }
    if let (Some(expected), Some(actual)) = (&expected.token, &mut actual.token) {
        settle(expected.expires_ms, &mut actual.expires_ms);
    }
    settle(expected.alive_expires_ms, &mut actual.alive_expires_ms);
    settle(expected.suspects.expire_ms, &mut actual.suspects.expire_ms);
    for (member, at_ms) in &mut actual.gone {
        if let Some(expected) = expected.gone.get(member).filter(|ms| near(**ms, *at_ms)) {
            *at_ms = *expected;
        }
    }
    // A newcomer's score is built on what is left of the hold.
    let scores: Vec<_> = expected.deadlines.iter().map(|(ms, m)| (ms, m.clone())).collect();
    for (expected, member) in scores {
        if actual.deadlines.get(&member).is_some_and(|ms| near(ms, expected)) {
            actual.deadlines.set(&member, expected);
        }
    }
}

/// A sorted set without its list counts for nothing: it may be there or not.
pub(crate) fn forget_what_is_apart(state: &mut LockState) {
    if state.queue.is_empty() {
        state.deadlines.clear();
        state.queue_expires_ms = None;
    }
}
