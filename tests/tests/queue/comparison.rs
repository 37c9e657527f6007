//! The meaning of "the same": everything is exact but times that a short way does not tell, and
//! these lie within the command.

use lockcore::internals::protocol::queue::QueueState;
use lockcore::internals::{Answer, Reply};

/// Gives `expected` the gaps that `actual` has, and times that differ by no more than the command
/// took.
pub(crate) fn leave_out(expected: &mut Answer, actual: &Answer, took_ms: u64) {
    match (expected, actual) {
        (Answer::Acquired(expected), Answer::Acquired(actual)) => {
            leave_out_of(expected, actual, took_ms);
        }
        (Answer::Released(expected), Answer::Released(actual)) => {
            leave_out_of(expected, actual, took_ms);
        }
        (Answer::Renewed(expected), Answer::Renewed(actual)) => {
            leave_out_of(expected, actual, took_ms);
        }
        (Answer::Touched(expected), Answer::Touched(actual)) => {
            leave_out_of(expected, actual, took_ms);
        }
        (Answer::Left(expected), Answer::Left(actual)) => leave_out_of(expected, actual, took_ms),
        (Answer::Inspected(expected), Answer::Inspected(actual)) => {
            for (expected, actual) in expected.holds.iter_mut().zip(&actual.holds) {
                near(&mut expected.2, actual.2, took_ms);
            }
            for (expected, actual) in expected.waiters.iter_mut().zip(&actual.waiters) {
                near(&mut expected.1, actual.1, took_ms);
            }
        }
        _ => {}
    }
}

fn leave_out_of<T>(expected: &mut Reply<T>, actual: &Reply<T>, took_ms: u64) {
    match (&mut expected.first_end_ms, actual.first_end_ms) {
        (end, None) => *end = None,
        (Some(end), Some(told)) => near(end, told, took_ms),
        _ => {}
    }
    if actual.now_us.is_none() {
        expected.now_us = None;
    }
    for (expected, actual) in expected.grants.iter_mut().zip(&actual.grants) {
        near(&mut expected.left_ms, actual.left_ms, took_ms);
    }
}

fn near(expected: &mut u64, actual: u64, took_ms: u64) {
    if expected.abs_diff(actual) <= took_ms {
        *expected = actual;
    }
}

/// Gives `expected` the times of `actual` where they differ by no more than the command took.
pub(crate) fn settle(expected: &mut QueueState, actual: &QueueState, took_ms: u64) {
    let near_end = |expected: &mut Option<u64>, actual: Option<u64>| {
        if let (Some(expected), Some(actual)) = (expected, actual) {
            near(expected, actual, took_ms);
        }
    };
    if let (Some(expected), Some(actual)) = (&mut expected.door, &actual.door) {
        near_end(&mut expected.ends_ms, actual.ends_ms);
    }
    near_end(&mut expected.queue_ends_ms, actual.queue_ends_ms);
    near_end(&mut expected.holds_end_ms, actual.holds_end_ms);
    // A hold of everything that was reduced has the end of the door.
    for (told_ms, member) in actual.holds.iter() {
        if let Some(mut ends_ms) = expected.holds.get(member) {
            near(&mut ends_ms, told_ms, took_ms);
            expected.holds.set(member, ends_ms);
        }
    }
    for (node, ends_ms) in &mut expected.patience {
        if let Some(actual) = actual.patience.get(node) {
            near(ends_ms, *actual, took_ms);
        }
    }
    for (node, passed) in &mut expected.passed {
        if let Some(actual) = actual.passed.get(node) {
            near(&mut passed.ends_ms, actual.ends_ms, took_ms);
        }
    }
}
