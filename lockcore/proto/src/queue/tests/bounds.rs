//! The maximum number of grants per command.

use super::*;

#[test]
fn at_most_256_are_granted_in_one_step_and_the_reply_says_that_there_is_more() {
    let mut bench = Bench::new();
    bench.bounds.looked_at = 1_000;
    bench.acquire(&lock('a', 1));
    for number in 0..300 {
        bench.acquire(&read('b', number));
    }
    assert!(bench.release(&lock('a', 1)).more);
    assert_eq!((bench.state.holds.len(), bench.waiting().len()), (256, 44));
    assert!(!bench.touch(&[&read('b', 299)]).more);
    assert_eq!(bench.state.holds.len(), 300);
}

#[test]
fn exactly_as_many_as_one_step_grants_leave_no_more() {
    let mut bench = Bench::new();
    bench.bounds.granted = 2;
    for member in [lock('a', 1), read('b', 1), read('b', 2)] {
        bench.acquire(&member);
    }
    assert!(!bench.release(&lock('a', 1)).more);
    assert_eq!(bench.state.holds.len(), 2);
}
