//! What "the same" means: everything is exact, since all is counted from the time in the reply.
//! Places count by their order only, and what a short answer leaves out is not compared.

use lockcore::internals::protocol::SortedSet;
use lockcore::internals::protocol::permits::PermitState;
use lockcore::internals::{Answer, Reply};

/// Gives `expected` the gaps that `actual` has.
pub(crate) fn leave_out(expected: &mut Answer, actual: &Answer) {
    match (expected, actual) {
        (Answer::Acquired(expected), Answer::Acquired(actual)) => leave_out_of(expected, actual),
        (Answer::Released(expected), Answer::Released(actual)) => leave_out_of(expected, actual),
        (Answer::Renewed(expected), Answer::Renewed(actual)) => leave_out_of(expected, actual),
        _ => {}
    }
}

fn leave_out_of<T>(expected: &mut Reply<T>, actual: &Reply<T>) {
    if actual.first_end_ms.is_none() {
        expected.first_end_ms = None;
    }
    if actual.now_us.is_none() {
        expected.now_us = None;
    }
}

/// Places become 1, 2, 3; deadlines without a queue count for nothing.
pub(crate) fn settle(state: &mut PermitState) {
    let mut queue = SortedSet::default();
    for (place, (_, member)) in state.queue.iter().enumerate() {
        queue.set(member, place as u64 + 1);
    }
    state.queue = queue;
    if state.queue.is_empty() {
        state.deadlines.clear();
    }
}
