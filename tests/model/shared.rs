//! The same of what is read, written or held in permits.

use crate::model::{Scope, Want};
use crate::state::Budget;
use crate::{NOTHING, exhaust, two};

use Want::{Permits, Read, Write};

const CRASHED_OR_CANCELLED: Budget = Budget { crashes: 1, cancels: 1, ..NOTHING };

/// Each on a node of its own.
fn three(wants: &'static [Want], budget: Budget) -> Scope {
    Scope { homes: &[0, 1, 2], wants, operations: &[1, 1, 1], drops: false, ..two(budget) }
}

#[test]
fn a_reader_and_a_writer_who_downgrades_keep_every_law() {
    let budget = Budget { losses: 1, downgrades: 1, passes: 1, ..NOTHING };
    let scope = Scope { wants: &[Read, Write], drops: false, ..two(budget) };
    exhaust("a reader and a writer, who downgrades, lost and late requests", scope);
}

#[test]
fn readers_and_writers_who_are_forced_off_keep_every_law() {
    let budget = Budget { forced: 1, passes: 1, ..NOTHING };
    let scope = Scope { wants: &[Read, Write], drops: false, ..two(budget) };
    exhaust("a reader and a writer, forced off", scope);
}

#[test]
fn permits_whose_leases_end_keep_every_law() {
    let budget = Budget { cancels: 1, passes: 2, ..NOTHING };
    let scope = Scope { wants: &[Permits(2, 3), Permits(2, 3)], drops: false, ..two(budget) };
    exhaust("two permits of three, twice, in time", scope);
}

#[test]
fn three_readers_keep_every_law() {
    let scope = three(&[Read, Read, Read], CRASHED_OR_CANCELLED);
    exhaust("three readers, crashed and cancelled", scope);
}

#[test]
fn two_readers_and_a_writer_keep_every_law() {
    let scope = three(&[Read, Read, Write], CRASHED_OR_CANCELLED);
    exhaust("two readers and a writer, crashed and cancelled", scope);
}

#[test]
fn a_reader_and_two_writers_keep_every_law() {
    let scope = three(&[Read, Write, Write], CRASHED_OR_CANCELLED);
    exhaust("a reader and two writers, crashed and cancelled", scope);
}

#[test]
fn permits_of_different_weights_keep_every_law() {
    let scope = three(&[Permits(1, 3), Permits(2, 3), Permits(2, 3)], CRASHED_OR_CANCELLED);
    exhaust("one, two and two of three permits, crashed and cancelled", scope);
}

/// Two readers of one node behind a writer: one message tells of both.
#[test]
fn readers_of_one_node_keep_every_law() {
    let budget = Budget { losses: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 1], ..three(&[Read, Write], budget) };
    exhaust("two readers of one node and a writer, lost and late requests", scope);
}

/// The same, granted one by one.
#[test]
fn readers_who_are_granted_in_several_steps_keep_every_law() {
    let budget = Budget { cancels: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 1], one_by_one: true, ..three(&[Read, Write], budget) };
    exhaust("two readers of one node and a writer, one by one", scope);
}

/// Each on a node of its own.
fn four(wants: &'static [Want]) -> Scope {
    let scope = three(wants, NOTHING);
    Scope { homes: &[0, 1, 2, 3], operations: &[1, 1, 1, 1], ..scope }
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn three_readers_and_a_writer_keep_every_law() {
    exhaust("three readers and a writer", four(&[Read, Read, Read, Write]));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn two_readers_and_two_writers_keep_every_law() {
    exhaust("two readers and two writers", four(&[Read, Read, Write, Write]));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn a_reader_and_three_writers_keep_every_law() {
    exhaust("a reader and three writers", four(&[Read, Write, Write, Write]));
}

#[test]
#[ignore = "minutes: scripts/torture runs it"]
fn four_permits_of_different_weights_keep_every_law() {
    let wants = &[Permits(1, 3), Permits(1, 3), Permits(2, 3), Permits(3, 3)];
    exhaust("one, one, two and three of three permits", four(wants));
}
