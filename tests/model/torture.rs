//! Scopes of minutes or hours, run by `scripts/torture`.

use crate::model::{Scope, Want};
use crate::scopes::{in_batches, three};
use crate::state::Budget;
use crate::{NOTHING, exhaust, two};

use Want::{Lock, Permits, Read};

/// Puts each of four clients on a separate node.
fn four(wants: &'static [Want]) -> Scope {
    let scope = three(wants, NOTHING);
    Scope { homes: &[0, 1, 2, 3], operations: &[1, 1, 1, 1], ..scope }
}

/// Run by `cargo test --release -p lock-model -- --ignored --nocapture`, as in `scripts/torture`.
#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn three_clients_who_crash_and_give_up_while_time_passes_keep_every_law() {
    let budget = Budget { crashes: 1, cancels: 1, passes: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 1, 2], operations: &[1, 1, 1], ..two(budget) };
    let states = exhaust("three clients, crashed and cancelled, in time", scope);
    assert!(states >= 15_000_000, "only {states}: something does not happen any more");
}

/// With twice as much time as the test before, so that an unconfirmed claim ends, and a renewed
/// lease. No client cancels, and each releases the guard.
#[test]
#[ignore = "most of an hour: scripts/torture runs it"]
fn three_clients_who_crash_while_more_time_passes_keep_every_law() {
    let budget = Budget { crashes: 1, passes: 2, ..NOTHING };
    let scope = Scope { homes: &[0, 1, 2], operations: &[1, 1, 1], drops: false, ..two(budget) };
    let states = exhaust("three clients, crashed, in more time", scope);
    assert!(states >= 150_000_000, "only {states}: something does not happen any more");
}

/// With as much time, and a client that also cancels or drops the guard.
#[test]
#[ignore = "hours: scripts/torture runs it"]
fn three_clients_who_crash_and_give_up_while_more_time_passes_keep_every_law() {
    let budget = Budget { crashes: 1, cancels: 1, passes: 2, ..NOTHING };
    let scope = Scope { homes: &[0, 1, 2], operations: &[1, 1, 1], ..two(budget) };
    let states = exhaust("three clients, crashed and cancelled, in more time", scope);
    assert!(states >= 100_000_000, "only {states}: something does not happen any more");
}

/// A late acquire takes no position away, even if the member is skipped again.
#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn locks_of_one_node_that_are_skipped_twice_keep_every_law() {
    let budget = Budget { cuts: 1, losses: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 1, 1], operations: &[2, 1, 1], ..three(&[], budget) };
    exhaust("three locks of two nodes, cut off, late requests", scope);
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn a_batch_of_two_whose_hold_ends_keeps_every_law() {
    let budget = Budget { passes: 2, ..NOTHING };
    exhaust("a batch of two, in time", in_batches(&[0, 1, 1], &[1, 1, 1], budget));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn a_batch_of_two_that_is_forced_off_keeps_every_law() {
    let budget = Budget { forced: 1, ..NOTHING };
    exhaust("a batch of two, forced off", in_batches(&[0, 1, 1], &[1, 1, 1], budget));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn a_batch_of_two_whose_requests_are_lost_and_whose_members_cancel_keeps_every_law() {
    let budget = Budget { losses: 1, cancels: 1, ..NOTHING };
    exhaust("a batch of two, lost and late, cancelled", in_batches(&[0, 1, 1], &[1, 1, 1], budget));
}

/// All requests of the batch come from a single node: it waits behind a lock of the same node.
#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn a_batch_of_one_node_whose_requests_are_lost_twice_keeps_every_law() {
    let budget = Budget { losses: 2, ..NOTHING };
    exhaust(
        "a batch of two of one node, lost and late twice",
        in_batches(&[0, 0, 0], &[1, 1, 1], budget),
    );
}

/// Three nodes, batches of up to three, a crash and a cancel.
#[test]
#[ignore = "hours: scripts/torture runs it"]
fn batches_of_three_among_three_nodes_that_crash_and_cancel_keep_every_law() {
    let budget = Budget { crashes: 1, cancels: 1, ..NOTHING };
    let scope = in_batches(&[0, 1, 1, 1, 2], &[1, 1, 1, 1, 1], budget);
    exhaust("batches of up to three among three nodes, crashed and cancelled", scope);
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn a_batch_of_three_that_crashes_and_cancels_keeps_every_law() {
    let budget = Budget { crashes: 1, cancels: 1, ..NOTHING };
    exhaust(
        "a batch of three, crashed and cancelled",
        in_batches(&[0, 1, 1, 1], &[1, 1, 1, 1], budget),
    );
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn three_readers_and_a_lock_keep_every_law() {
    exhaust("three readers and a lock", four(&[Read, Read, Read, Lock]));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn two_readers_and_two_locks_keep_every_law() {
    exhaust("two readers and two locks", four(&[Read, Read, Lock, Lock]));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn a_reader_and_three_locks_keep_every_law() {
    exhaust("a reader and three locks", four(&[Read, Lock, Lock, Lock]));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn four_permits_of_different_weights_keep_every_law() {
    let wants = &[Permits(1, 3), Permits(1, 3), Permits(2, 3), Permits(3, 3)];
    exhaust("one, one, two and three of three permits", four(wants));
}
