//! Locks, reads and permits of a name, and two small scopes of the Redisson layout.

use crate::model::{Scope, Want};
use crate::state::Budget;
use crate::{NOTHING, exhaust, two};

use Want::{Lock, Newest, Permits, Read};

const CRASHED_OR_CANCELLED: Budget = Budget { crashes: 1, cancels: 1, ..NOTHING };

/// Puts each of three clients on a separate node.
pub(crate) fn three(wants: &'static [Want], budget: Budget) -> Scope {
    Scope { homes: &[0, 1, 2], wants, operations: &[1, 1, 1], drops: false, ..two(budget) }
}

#[test]
fn a_reader_and_a_lock_that_is_downgraded_keep_every_law() {
    let budget = Budget { losses: 1, downgrades: 1, ..NOTHING };
    let scope = Scope { wants: &[Read, Lock], drops: false, ..two(budget) };
    exhaust("a reader and a lock that is downgraded, lost and late requests", scope);
}

#[test]
fn a_reader_and_a_lock_who_are_forced_off_keep_every_law() {
    let budget = Budget { forced: 1, ..NOTHING };
    let scope = Scope { wants: &[Read, Lock], drops: false, ..two(budget) };
    exhaust("a reader and a lock, forced off", scope);
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
fn two_readers_and_a_lock_keep_every_law() {
    let scope = three(&[Read, Read, Lock], CRASHED_OR_CANCELLED);
    exhaust("two readers and a lock, crashed and cancelled", scope);
}

#[test]
fn a_reader_and_two_locks_keep_every_law() {
    let scope = three(&[Read, Lock, Lock], CRASHED_OR_CANCELLED);
    exhaust("a reader and two locks, crashed and cancelled", scope);
}

#[test]
fn permits_of_different_weights_keep_every_law() {
    let scope = three(&[Permits(1, 3), Permits(2, 3), Permits(2, 3)], CRASHED_OR_CANCELLED);
    exhaust("one, two and two of three permits, crashed and cancelled", scope);
}

#[test]
fn a_lock_a_reader_and_a_permit_keep_every_law() {
    let scope = three(&[Lock, Read, Permits(1, 2)], CRASHED_OR_CANCELLED);
    exhaust("a lock, a reader and one of two permits, crashed and cancelled", scope);
}

/// A permit of limit 1 does not fit beside a reader, but a reader fits beside the permit.
#[test]
fn permits_of_different_limits_and_a_reader_keep_every_law() {
    let scope = three(&[Permits(1, 1), Permits(1, 2), Read], CRASHED_OR_CANCELLED);
    exhaust("one of one and one of two permits and a reader, crashed and cancelled", scope);
}

#[test]
fn a_lock_and_permits_whose_requests_are_lost_or_late_keep_every_law() {
    let budget = Budget { losses: 1, cancels: 1, passes: 1, ..NOTHING };
    let scope = Scope { wants: &[Lock, Permits(2, 3)], drops: false, ..two(budget) };
    exhaust("a lock and two of three permits, lost and late requests, cancelled", scope);
}

/// A skipped member is restored to the position among others.
#[test]
fn locks_that_are_skipped_keep_every_law() {
    let scope = three(&[], Budget { cuts: 1, ..NOTHING });
    exhaust("three locks, cut off", scope);
}

#[test]
fn a_lock_a_reader_and_a_permit_that_are_skipped_keep_every_law() {
    let scope = three(&[Lock, Read, Permits(1, 2)], Budget { cuts: 1, ..NOTHING });
    exhaust("a lock, a reader and one of two permits, cut off", scope);
}

#[test]
fn a_lock_that_is_skipped_while_requests_are_lost_keeps_every_law() {
    let budget = Budget { cuts: 1, losses: 1, ..NOTHING };
    exhaust("two locks, cut off, lost and late requests", Scope { drops: false, ..two(budget) });
}

/// A late touch restores no member granted meanwhile.
#[test]
fn a_lock_that_is_skipped_while_two_requests_are_late_keeps_every_law() {
    let budget = Budget { cuts: 1, losses: 2, ..NOTHING };
    exhaust("two locks, cut off, two late requests", Scope { drops: false, ..two(budget) });
}

#[test]
fn tokens_of_a_counter_that_is_lost_keep_every_law() {
    let budget = Budget { forgets: 1, downgrades: 1, ..NOTHING };
    let scope = Scope { wants: &[Lock, Read], operations: &[2, 1], drops: false, ..two(budget) };
    exhaust("a lock, twice, and a reader, the counter lost", scope);
}

#[test]
fn two_clients_beside_jvms_who_crash_or_lose_their_subscription_keep_every_law() {
    let budget = Budget { crashes: 1, cuts: 1, passes: 1, ..NOTHING };
    let scope = Scope { beside_jvms: true, drops: false, ..two(budget) };
    exhaust("two clients beside JVMs, crashed and cut off", scope);
}

#[test]
fn two_clients_beside_jvms_whose_requests_are_lost_or_late_keep_every_law() {
    let budget = Budget { losses: 1, cancels: 1, passes: 1, ..NOTHING };
    let scope = Scope { beside_jvms: true, drops: false, ..two(budget) };
    exhaust("two clients beside JVMs, lost and late requests, cancelled", scope);
}

/// Two readers of a node behind a lock: a single message reports both.
#[test]
fn readers_of_one_node_keep_every_law() {
    let scope = Scope { homes: &[0, 0, 1], ..three(&[Read, Lock], NOTHING) };
    exhaust("two readers of one node and a lock", scope);
}

/// Three locks of a node: two request in the same command while the first is under way.
#[test]
fn locks_of_one_node_that_ask_together_keep_every_law() {
    let budget = Budget { losses: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 0], ..three(&[Lock], budget) };
    exhaust("three locks of one node, lost and late requests", scope);
}

/// Two locks of one node and a lock of another, acquired by the fast path: what it does not serve
/// is sent by script, and behind it the attempts that waited at the fence.
#[test]
fn locks_that_go_the_fast_path_keep_every_law() {
    let budget = Budget { cancels: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 1], is_fast: true, ..three(&[], budget) };
    exhaust("three locks of two nodes, the fast path, cancelled", scope);
}

#[test]
fn locks_that_go_the_fast_path_and_whose_requests_are_lost_or_late_keep_every_law() {
    let budget = Budget { losses: 1, cancels: 1, passes: 1, ..NOTHING };
    let scope = Scope { is_fast: true, drops: false, ..two(budget) };
    exhaust("two locks, the fast path, lost and late requests, cancelled", scope);
}

#[test]
fn locks_of_one_node_that_go_the_fast_path_and_whose_requests_are_lost_keep_every_law() {
    let budget = Budget { losses: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 0], is_fast: true, ..three(&[Lock], budget) };
    exhaust("three locks of one node, the fast path, lost and late requests", scope);
}

/// Three readers of a node, each requested separately.
#[test]
fn three_readers_of_one_node_who_give_up_keep_every_law() {
    let budget = Budget { cancels: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 0], ..three(&[Read], budget) };
    exhaust("three readers of one node, cancelled", scope);
}

/// The same readers, granted one by one.
#[test]
fn readers_who_are_granted_in_several_steps_keep_every_law() {
    let budget = Budget { cancels: 1, ..NOTHING };
    let scope = Scope { homes: &[0, 0, 1], one_by_one: true, ..three(&[Read, Lock], budget) };
    exhaust("two readers of one node and a lock, one by one", scope);
}

/// Serves each node's clients in batches of up to three.
pub(crate) fn in_batches(homes: &'static [u8], operations: &'static [u8], budget: Budget) -> Scope {
    Scope { homes, operations, batch_limit: 3, ..three(&[], budget) }
}

/// Lets time pass after a guard was downgraded or leaked, in steps long enough that each renewal is
/// due and informs the server which batch members were served. Two steps are longer than a lease.
pub(crate) fn kept(scope: Scope) -> Scope {
    Scope { step_ms: 3_100, is_kept: true, acquires: 1, drops: false, ..scope }
}

#[test]
fn a_batch_of_two_that_is_leaked_and_kept_for_longer_than_a_lease_keeps_every_law() {
    let budget = Budget { leaks: 1, passes: 2, ..NOTHING };
    let scope = kept(in_batches(&[0, 0, 0], &[1, 1, 1], budget));
    exhaust("a batch of two of one node, leaked and kept", scope);
}

#[test]
fn a_batch_of_two_keeps_every_law() {
    exhaust("a batch of two", in_batches(&[0, 1, 1], &[1, 1, 1], NOTHING));
}

#[test]
fn a_batch_of_two_that_crashes_and_cancels_keeps_every_law() {
    let budget = Budget { cancels: 1, crashes: 1, ..NOTHING };
    exhaust("a batch of two, crashed and cancelled", in_batches(&[0, 1, 1], &[1, 1, 1], budget));
}

#[test]
fn a_batch_of_two_whose_node_is_cut_off_keeps_every_law() {
    let budget = Budget { cuts: 1, ..NOTHING };
    exhaust("a batch of two, cut off", in_batches(&[0, 1, 1], &[1, 1, 1], budget));
}

#[test]
fn batches_whose_members_come_back_keep_every_law() {
    exhaust("a batch of two, one of them twice", in_batches(&[0, 1, 1], &[1, 2, 1], NOTHING));
}

#[test]
fn three_locks_of_which_only_the_newest_waits_keep_every_law() {
    let budget = Budget { losses: 1, ..NOTHING };
    exhaust("three locks, the newest waits, lost and late requests", three(&[Newest; 3], budget));
}

#[test]
fn locks_of_which_only_the_newest_waits_that_crash_and_cancel_keep_every_law() {
    let scope = three(&[Newest; 3], CRASHED_OR_CANCELLED);
    exhaust("three locks, the newest waits, crashed and cancelled", scope);
}

#[test]
fn locks_of_which_only_the_newest_waits_that_are_skipped_keep_every_law() {
    let scope = three(&[Newest; 3], Budget { cuts: 1, ..NOTHING });
    exhaust("three locks, the newest waits, cut off", scope);
}

/// An ordinary waiter between two locks in keep-the-newest mode.
#[test]
fn a_lock_among_those_of_which_only_the_newest_waits_keeps_every_law() {
    let scope = Scope { operations: &[2, 1, 1], ..three(&[Newest, Lock, Newest], NOTHING) };
    exhaust("a lock among two of which the newest waits", scope);
}
