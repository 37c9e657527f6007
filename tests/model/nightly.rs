//! Scopes of a minute each, run by `scripts/test --all`. For most, a smaller scope with the
//! same name is in every test run.

use crate::model::{Scope, Want};
use crate::scopes::{in_batches, kept, three};
use crate::state::Budget;
use crate::{NOTHING, exhaust, two};

use Want::{Lock, Permits, Read};

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn two_clients_who_crash_or_lose_their_subscription_keep_every_law() {
    let budget = Budget { crashes: 1, cuts: 1, passes: 2, ..NOTHING };
    let states = exhaust("two clients, crashed and cut off", two(budget));
    assert!(states >= 900_000, "only {states}: something does not happen any more");
}

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn two_clients_whose_answers_are_lost_and_whose_messages_outlive_a_claim_keep_every_law() {
    let budget = Budget { losses: 1, passes: 1, ..NOTHING };
    exhaust(
        "two clients, one and two operations, lost answers and old messages",
        Scope { operations: &[1, 2], drops: false, ..two(budget) },
    );
}

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn a_reader_and_a_lock_that_is_downgraded_keep_every_law() {
    let budget = Budget { losses: 1, downgrades: 1, passes: 1, ..NOTHING };
    let scope = Scope { wants: &[Read, Lock], drops: false, ..two(budget) };
    exhaust("a reader and a lock that is downgraded, lost and late requests", scope);
}

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn a_reader_and_a_lock_who_are_forced_off_keep_every_law() {
    let budget = Budget { forced: 1, passes: 1, ..NOTHING };
    let scope = Scope { wants: &[Read, Lock], drops: false, ..two(budget) };
    exhaust("a reader and a lock, forced off", scope);
}

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn a_lock_a_reader_and_a_permit_that_are_skipped_keep_every_law() {
    let scope = three(&[Lock, Read, Permits(1, 2)], Budget { cuts: 2, ..NOTHING });
    exhaust("a lock, a reader and one of two permits, cut off twice", scope);
}

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn a_lock_that_is_skipped_while_requests_are_lost_keeps_every_law() {
    let budget = Budget { cuts: 1, losses: 1, passes: 1, ..NOTHING };
    exhaust("two locks, cut off, lost and late requests", Scope { drops: false, ..two(budget) });
}

/// Two readers of a node behind a lock: a single message reports both.
#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn readers_of_one_node_keep_every_law() {
    let budget = Budget { losses: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 1], ..three(&[Read, Lock], budget) };
    exhaust("two readers of one node and a lock, lost and late requests", scope);
}

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn a_batch_of_two_whose_requests_are_lost_or_late_keeps_every_law() {
    let budget = Budget { losses: 1, ..NOTHING };
    exhaust("a batch of two, lost and late requests", in_batches(&[0, 1, 1], &[1, 1, 1], budget));
}

#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn a_batch_of_two_that_is_downgraded_keeps_every_law() {
    let budget = Budget { downgrades: 1, ..NOTHING };
    exhaust("a batch of two, downgraded", in_batches(&[0, 1, 1], &[1, 1, 1], budget));
}

/// A renewal in between reports which members were served. Two renewals have more than 60 million
/// states: the simulation covers holds that outlast several renewals.
#[test]
#[ignore = "a minute: scripts/test --all runs it"]
fn a_batch_of_two_that_is_downgraded_and_renewed_keeps_every_law() {
    let budget = Budget { downgrades: 1, passes: 1, ..NOTHING };
    let scope = kept(in_batches(&[0, 0, 0], &[1, 1, 1], budget));
    exhaust("a batch of two of one node, downgraded and renewed", scope);
}
