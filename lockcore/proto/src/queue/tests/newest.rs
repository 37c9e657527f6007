//! Members of the newest-only kind.

use super::*;

fn newest(letter: char, attempt: u64, round: u64) -> Member {
    Member::keeping_newest(&node(letter), attempt << 12 | round, LEASE, &Label::new("test"))
}

#[test]
fn an_attempt_that_has_lost_its_position_supersedes_none_that_began_after_it() {
    let mut bench = Bench::new();
    bench.acquire(&lock('a', 1));
    let (older, newer) = (newest('a', 10, 0), newest('b', 20, 0));
    assert_eq!(bench.acquire(&older).outcome, queued(0));
    // Its queue entry is lost, and the newer member is queued before it re-enqueues.
    bench.state.queue.clear();
    assert_eq!(bench.acquire(&newer).outcome, queued(0));
    assert_eq!(bench.acquire(&newest('a', 10, 1)).outcome, Acquired::Refused);
    assert_eq!((bench.waiting(), bench.said()), (vec![newer.clone()], vec![]));
    assert_eq!(bench.acquire(&newest('a', 30, 1)).outcome, queued(0));
    assert!(matches!(&bench.said()[..], [Message::Superseded { numbers, .. }]
        if *numbers == [newer.number()]));
}

#[test]
fn superseding_leaves_so_many_tombstones_and_drops_the_oldest() {
    let mut bench = Bench::new();
    (bench.bounds.tombstones, bench.bounds.reclaimed) = (3, 2);
    bench.acquire(&lock('a', 1));
    for attempt in 0..9 {
        bench.pass(1);
        bench.acquire(&newest('a', attempt, 0));
        assert_eq!(bench.state.tombstones.len() as u64, attempt.min(3));
    }
    let left: Vec<_> = bench.state.tombstones.iter().map(|(_, one)| one.clone()).collect();
    assert_eq!(left, [5, 6, 7].map(|attempt| newest('a', attempt, 0)));
    // Tombstones of members that leave by themselves do not count, and only so many are dropped at
    // once.
    for attempt in 20..26 {
        let leaving = vec![Leaving::new(newest('b', attempt, 0), true)];
        bench.run('b', &Command::Leave { leaving });
    }
    assert_eq!(bench.state.tombstones.len(), 9);
    bench.acquire(&newest('a', 9, 0));
    assert_eq!(bench.state.tombstones.len(), 8);
}
