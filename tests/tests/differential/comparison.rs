//! What "the same" means.
//!
//! Our own deadlines, tokens and all outcomes are exact: both sides count them from the time in the
//! reply. Keys expire by a relative PEXPIRE or PX, for which the server reads its clock once more,
//! and PTTL reads it too: usually in the same millisecond or the next. The second reading lies
//! between two others that the test has, so that is what is allowed, and no more. A newcomer's
//! score is built on the rest of the hold, as PTTL tells it.

use lockcore::internals::protocol::redisson::LockState;
use lockcore::internals::{Answer, Reply};

use crate::snapshot::Snapshot;

/// The server's clock in ms: before a command, as in its reply, and after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) before: u64,
    pub(crate) now: u64,
    pub(crate) after: u64,
}

impl Clock {
    fn allows_left(self, expected: u64, actual: u64) -> bool {
        let from = expected.saturating_sub(self.after - self.now);
        (from..=expected + (self.now - self.before)).contains(&actual)
    }
}

/// When the command ran, by the server. A release with none waiting does not tell it, and nothing
/// of what it does depends on it.
pub(crate) fn time_of(answer: &mut Answer, before: &Snapshot) -> u64 {
    match answer {
        Answer::Released(reply) if reply.now_us.is_none() => reply.now_us = Some(before.at_us),
        _ => {}
    }
    answer.now_us().expect("every other answer tells the time")
}

/// Moves `actual` to what was expected where the difference is allowed, so that the rest can be
/// compared.
pub(crate) fn settle_answer(clock: Clock, expected: &Answer, actual: &mut Answer) {
    match (expected, actual) {
        (Answer::Acquired(expected), Answer::Acquired(actual)) => {
            settle_reply(clock, expected, actual)
        }
        (Answer::Released(expected), Answer::Released(actual)) => {
            settle_reply(clock, expected, actual)
        }
        (Answer::Renewed(expected), Answer::Renewed(actual)) => {
            settle_reply(clock, expected, actual)
        }
        (Answer::Touched(expected), Answer::Touched(actual)) => {
            settle_reply(clock, expected, actual)
        }
        (Answer::Left(expected), Answer::Left(actual)) => settle_reply(clock, expected, actual),
        (Answer::Inspected(expected), Answer::Inspected(actual)) => {
            for ((.., expected), (.., actual)) in expected.holds.iter().zip(&mut actual.holds) {
                settle_left(clock, *expected, actual);
            }
        }
        _ => {}
    }
}

fn settle_reply<T>(clock: Clock, expected: &Reply<T>, actual: &mut Reply<T>) {
    if let (Some(expected), Some(actual)) = (expected.first_end_ms, &mut actual.first_end_ms) {
        settle_left(clock, expected, actual);
    }
    for (expected, actual) in expected.grants.iter().zip(&mut actual.grants) {
        settle_left(clock, expected.left_ms, &mut actual.left_ms);
    }
}

/// Settles a time that is counted from the time left, as the server tells it.
fn settle_left(clock: Clock, expected: u64, actual: &mut u64) {
    if clock.allows_left(expected, *actual) {
        *actual = expected;
    }
}

/// As [`settle_answer`], for the keys. Moves times of `actual` to the expected ones where they
/// differ by no more than the time that the command took: Redis reads its clock once more for a
/// TTL.
pub(crate) fn settle_state(clock: Clock, expected: &LockState, actual: &mut LockState) {
    let span_ms = clock.after - clock.before;
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
