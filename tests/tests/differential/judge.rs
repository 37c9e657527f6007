//! The comparison of one command: the meaning of "the same".
//!
//! Our own deadlines, tokens and all outcomes are exact: both sides count them from the time in the
//! reply. Keys expire by a relative PEXPIRE or PX, for which the server reads its clock once more,
//! and PTTL reads it too; a short answer does not tell the time at all. All these readings lie
//! between the snapshots before and after the command, and so far they may differ.

use lock_tests::refused_unchanged;
use proto::{Answer, Reply, StoreError};

use crate::layout::{Layout, Near, Request, Stepped};

/// The outcome of a comparison without a difference.
pub(crate) enum Verdict<S> {
    /// The function does the same.
    Same(Box<Stepped<S>>),
    /// Another program's key was met, and nothing was changed.
    Refused,
    /// Another program's key is there, and the command did not look at it.
    Unseen,
    /// A key or a lease ended at the very instant of the command: either answer is right.
    Undecided,
}

/// Compares a command that was run by its script with the function.
///
/// # Errors
/// The difference.
pub(crate) fn judge<L: Layout>(
    layout: &L,
    request: &Request<'_>,
    before: &L::Snapshot,
    after: &L::Snapshot,
    answer: Result<Answer, StoreError>,
) -> Result<Verdict<L::State>, String> {
    let Request { wire, command, floors, way, .. } = request;
    let state = L::state(before);
    let differs = |difference: String| {
        let node = &wire.node;
        format!("{command:?}\nby {node:?}, {floors:?}, way {way}, at\n{state:#?}\n{difference}")
    };
    let (from_ms, to_ms) = (L::at_us(before) / 1_000, L::at_us(after) / 1_000);
    // The clock of the keys stands still while a script runs, so a snapshot has keys that ended in
    // the millisecond before its time.
    let ends_meanwhile = |state: &L::State| {
        L::ends(state).iter().any(|at_ms| (from_ms.saturating_sub(1)..=to_ms).contains(at_ms))
    };
    if ends_meanwhile(&state) {
        return Ok(Verdict::Undecided);
    }
    let is_refused = L::is_refused(before, command);
    if is_refused.unwrap_or(answer.is_err()) {
        return refused_unchanged(&answer, &L::content(before), &L::content(after))
            .map(|()| Verdict::Refused)
            .map_err(differs);
    }
    if !L::spares_others(before, after, command) {
        return Err(differs("another program's key was changed".to_owned()));
    }
    let answer = answer.map_err(|error| differs(format!("{error:?}")))?;
    if is_refused.is_none() {
        return Ok(Verdict::Unseen);
    }
    let is_short = L::is_short(command, &answer);
    if answer.now_us().is_none() && !is_short {
        return Err(differs(format!("the answer does not tell the time: {answer:?}")));
    }

    // A short answer does not tell its time, and what is due may differ between the first that it
    // can be and the last.
    let possible = match answer.now_us() {
        Some(now_us) => vec![now_us],
        None => vec![L::at_us(before), L::at_us(after)],
    };
    let near = Near { ms: to_ms - from_ms };
    let actual = L::state(after);
    let mut first_difference = None;
    for now_us in possible {
        let mut stepped = layout.step(request, &state, now_us);
        if ends_meanwhile(&stepped.state) {
            return Ok(Verdict::Undecided);
        }
        let mut expected = stepped.answer.clone();
        settle(&mut expected, &answer, is_short, near);
        L::settle(&state, &answer, &mut stepped.state, &actual, near);
        let difference = if answer != expected {
            format!("Lua answers  {answer:?}\nRust answers {expected:?}")
        } else if actual != stepped.state {
            format!("Lua leaves {actual:#?}\nRust leaves {:#?}", stepped.state)
        } else {
            return Ok(Verdict::Same(Box::new(stepped)));
        };
        first_difference.get_or_insert(difference);
    }
    let difference = first_difference.expect("no possible time is the same");
    Err(differs(format!("{near:?}\n{difference}")))
}

/// Gives `expected` the times of `actual` that are near, and of a short answer the gaps.
fn settle(expected: &mut Answer, actual: &Answer, is_short: bool, near: Near) {
    match (expected, actual) {
        (Answer::Acquired(expected), Answer::Acquired(actual)) => {
            settle_reply(expected, actual, is_short, near);
        }
        (Answer::Released(expected), Answer::Released(actual)) => {
            settle_reply(expected, actual, is_short, near);
        }
        (Answer::Renewed(expected), Answer::Renewed(actual)) => {
            settle_reply(expected, actual, is_short, near);
        }
        (Answer::Touched(expected), Answer::Touched(actual)) => {
            settle_reply(expected, actual, is_short, near);
        }
        (Answer::Left(expected), Answer::Left(actual)) => {
            settle_reply(expected, actual, is_short, near);
        }
        (Answer::Inspected(expected), Answer::Inspected(actual)) => {
            for (expected, actual) in expected.holds.iter_mut().zip(&actual.holds) {
                near.settle(&mut expected.left_ms, actual.left_ms);
            }
            for ((_, expected), (_, actual)) in expected.waiters.iter_mut().zip(&actual.waiters) {
                near.settle(expected, *actual);
            }
        }
        _ => {}
    }
}

fn settle_reply<T>(expected: &mut Reply<T>, actual: &Reply<T>, is_short: bool, near: Near) {
    near.settle_end(&mut expected.first_end_ms, actual.first_end_ms);
    for (expected, actual) in expected.grants.iter_mut().zip(&actual.grants) {
        near.settle(&mut expected.left_ms, actual.left_ms);
    }
    if is_short {
        expected.first_end_ms = actual.first_end_ms.and(expected.first_end_ms);
        expected.now_us = actual.now_us.and(expected.now_us);
    }
}
