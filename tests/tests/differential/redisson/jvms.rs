//! The acts of JVMs in a random sequence: they queue, take, subtract, throw out and disappear.

use proto::{FencingToken, NodeId, Party};
use redisson::{GRACE_MS, Hold, JVM_STEP_MS, LastToken, LockState, Message};

use super::HANDED_OVER;
use crate::random::Random;
use crate::world::LISTENING;

/// A thread that listens, and two of a JVM that is gone. A thread id may be negative.
pub(super) const THREADS: [&str; 3] = [
    LISTENING,
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41",
    "7f0e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:-42",
];

/// The cases that all sequences beside JVMs must have met, or they compare too little.
pub(super) const MET: [&str; 7] = [
    HANDED_OVER,
    "stopped",
    "a suspect",
    "a suspect beside an older one",
    "a JVM dropped",
    "taken back",
    "taken back for another node",
];

/// The rare cases that a command of `node` was.
pub(super) fn met(
    node: &NodeId,
    before: &LockState,
    after: &LockState,
    messages: &[Message],
) -> Vec<&'static str> {
    let mut met = Vec::new();
    let stopped = after.hold.is_none() && after.queue.iter().any(|m| m.ours().is_none());
    if stopped && messages.iter().any(|message| matches!(message, Message::Poke { .. })) {
        met.push("stopped");
    }
    let (old, suspects) = (&before.suspects.since_ms, &after.suspects.since_ms);
    if suspects.keys().any(|suspect| !old.contains_key(suspect)) {
        met.push("a suspect");
        if suspects.keys().any(|suspect| old.contains_key(suspect)) {
            met.push("a suspect beside an older one");
        }
    }
    let dropped = |m: &&Party| m.ours().is_none() && !after.queue.contains(*m);
    let is_known = |m: &Party| old.keys().any(|(suspect, _)| suspect == m);
    if before.queue.iter().filter(dropped).any(is_known) {
        met.push("a JVM dropped");
    }
    let back = |m: &&Party| before.alive.get(m).is_some() && !before.queue.contains(*m);
    for member in after.queue.iter().filter(back) {
        met.push("taken back");
        if !member.ours().is_some_and(|member| member.is_of(node)) {
            met.push("taken back for another node");
        }
    }
    met
}

/// The acts of JVMs, time and operators.
pub(super) fn disturb(state: &mut LockState, random: &mut Random, now_ms: u64) {
    let thread = Party::from(*random.one_of(&THREADS));
    let some = match state.queue.len() {
        0 => None,
        length => Some(state.queue[random.below(length)].clone()),
    };
    match random.below(16) {
        0..4 if !state.queue.contains(&thread) => {
            let last = state.queue.back().and_then(|last| state.deadlines.get(last));
            let wait_ms = *random.one_of(&[100, 5_000, JVM_STEP_MS]);
            state.deadlines.set(&thread, last.unwrap_or(now_ms) + wait_ms);
            state.queue.push_back(thread);
        }
        4 if state.hold.is_none() => {
            pop(state, random);
            state.hold = Some(Hold { member: thread, expires_ms: Some(now_ms + 30_000) });
        }
        5 => drop(state.hold.take_if(|hold| hold.member.ours().is_none())),
        // It leaves, or throws out the head.
        6 | 7 => pop(state, random),
        8 => {
            for since_ms in state.suspects.since_ms.values_mut() {
                *since_ms -= *random.one_of(&[0, 3_000, GRACE_MS + 1]);
            }
        }
        9 => {
            if let Some(member) = some.filter(|member| state.alive.get(member).is_some()) {
                let silence_ms = *random.one_of(&[0, 3_000, 9_000]);
                state.alive.set(&member, now_ms + silence_ms - 5);
            }
        }
        10 => {
            if let Some(member) = some {
                let left_ms = *random.one_of(&[0, 400_000]);
                state.deadlines.set(&member, now_ms + left_ms - 5);
            }
        }
        11 => match random.below(5) {
            0 => state.queue.clear(),
            1 => state.deadlines.clear(),
            2 => state.alive.clear(),
            3 => state.arrivals.clear(),
            _ => state.token = None,
        },
        12 => state.queue_expires_ms = Some(now_ms + 60_000),
        13 | 14 => {
            let ends_ms = *random.one_of(&[None, Some(now_ms + 20)]);
            if let Some(hold) = &mut state.hold {
                hold.expires_ms = ends_ms;
            }
        }
        15 => {
            let ahead_ms = *random.one_of(&[0, 3_600_000]);
            let value = (now_ms + ahead_ms) * if ahead_ms == 0 { 1 } else { 1_000 };
            let value = FencingToken::try_from(value).expect("a token");
            state.token = Some(LastToken { value, expires_ms: Some(now_ms + 60_000) });
        }
        _ => {}
    }
}

/// Takes out the head of the queue as a JVM does: it subtracts its wait from the scores behind it.
fn pop(state: &mut LockState, random: &mut Random) {
    let Some(head) = state.queue.pop_front() else { return };
    state.deadlines.remove(&head);
    let step_ms = *random.one_of(&[1_000, JVM_STEP_MS]);
    for member in &state.queue {
        if let Some(score_ms) = state.deadlines.get(member) {
            state.deadlines.set(member, score_ms - step_ms);
        }
    }
}
