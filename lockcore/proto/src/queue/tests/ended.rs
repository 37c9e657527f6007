//! A lease of a lock that has ended.

use super::*;

#[test]
fn a_lease_that_has_ended_behind_a_mark_is_never_revived() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
    bench.end_lease();
    assert_eq!(bench.renew_one(&lock('a', 1)), Renewed::NotHeld);
    let command = Command::Inspect;
    let Answer::Inspected(found) = bench.run('z', &command) else { unreachable!() };
    assert_eq!(found.holds, []);
    assert_eq!(bench.force_release(None), Released::NotHeld);
    assert_eq!(bench.holders(), [lock('b', 1)]);
}

#[test]
fn a_release_and_a_leave_of_an_ended_lease_find_nothing_and_hand_on() {
    for is_leave in [false, true] {
        let mut bench = Bench::new();
        bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
        bench.end_lease();
        if is_leave {
            assert_eq!(bench.leave(&lock('a', 1), false), Left::Absent);
        } else {
            assert_eq!(bench.release(&lock('a', 1)).outcome, Released::NotHeld);
        }
        assert_eq!(bench.holders(), [lock('b', 1)]);
    }
}

#[test]
fn an_ended_door_is_free_for_one_that_does_not_wait_if_no_connected_one_waits() {
    let mut bench = Bench::new();
    bench.acquire_all(&[&lock('a', 1), &lock('b', 1)]);
    bench.end_lease();
    let mut with_live = Bench { state: bench.state.clone(), ..Bench::new() };
    let reply = with_live.acquire_as(&lock('c', 1), Mode::Try, 1);
    assert_eq!((reply.outcome, with_live.holders()), (Acquired::Busy, vec![lock('b', 1)]));
    bench.away = "b".to_owned();
    let reply = bench.acquire_as(&lock('c', 1), Mode::Try, 1);
    assert_eq!((reply.outcome, bench.holders()), (Acquired::Granted, vec![lock('c', 1)]));
}
