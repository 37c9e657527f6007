//! Members with the option that only the newest waits.

use proto::{Acquired, Demand, Event, Label, Left, Member, Mode, Presence, Reply};
use redis::cmd;

use crate::asking::grant;
use crate::bench::{Bench, Side};
use crate::facts;
use crate::node::Node;

/// The maximum number of tombstones left by superseding.
const MOST_TOMBSTONES: usize = 4_096;

facts! {
    queue: [
        a_newer_one_takes_the_older_one_out_of_the_queue_and_tells_its_node,
        the_others_keep_their_positions_and_the_holder_its_hold,
        one_that_was_superseded_stays_out_and_learns_of_it_by_a_touch,
        one_that_asks_again_supersedes_none,
        a_try_supersedes_none_and_a_full_queue_has_room_for_one_in_place_of_another,
        one_that_finds_the_queue_full_supersedes_none,
        a_free_lock_is_granted_and_one_that_waits_is_granted_in_its_turn,
        those_behind_a_head_that_is_superseded_are_granted,
        of_a_long_queue_the_last_two_hundred_are_looked_at,
        one_that_is_granted_by_the_same_command_is_none_of_those_that_are_looked_at,
        a_storm_of_newer_ones_leaves_so_many_tombstones_and_no_more,
        one_that_asks_anew_is_refused_where_a_newer_one_waits_or_holds,
        one_that_asks_anew_supersedes_those_that_began_before_it,
        of_one_node_an_older_one_that_comes_late_supersedes_no_newer_one,
        of_two_nodes_the_one_that_is_queued_later_is_newer_whatever_its_number,
        one_that_is_refused_hands_on_what_has_become_free,
        two_of_one_node_that_both_wait_are_no_batch,
    ],
}

impl Node {
    /// A new member with this option.
    fn newest(&self) -> Member {
        // Like the id of an attempt that has not lost its position. All ids have the same number of
        // digits: tombstones of the same millisecond are in text order.
        let number = (1 << 32 | self.member(30_000).number()) << 12;
        Member::keeping_newest(&self.id, number, 30_000, &Label::new("test"))
    }

    /// The member of an attempt that began this many µs after 2020, in this round.
    fn newest_of(&self, attempt: u64, round: u64) -> Member {
        Member::keeping_newest(&self.id, attempt << 12 | round, 30_000, &Label::new("test"))
    }

    /// Queues a new member with this option.
    async fn queue_newest(&self) -> Member {
        let member = self.newest();
        let outcome = self.wait(&member).await.outcome;
        assert!(matches!(outcome, Acquired::Queued { .. }), "{outcome:?}");
        member
    }
}

fn superseded(members: &[&Member]) -> Event {
    Event::Superseded { numbers: members.iter().map(|member| member.number()).collect() }
}

fn position(reply: &Reply<Acquired>) -> u64 {
    let Acquired::Queued { position } = reply.outcome else { panic!("{reply:?}") };
    position
}

async fn a_newer_one_takes_the_older_one_out_of_the_queue_and_tells_its_node(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let older = b.queue_newest().await;
    let newer = a.newest();
    assert_eq!(position(&a.wait(&newer).await), 0);
    assert_eq!(bench.queue().await, std::slice::from_ref(&newer));
    assert_eq!(b.heard().await, [superseded(&[&older])]);
    // Also a member of its own node.
    let newest = a.queue_newest().await;
    assert_eq!(bench.queue().await, [newest]);
    assert_eq!(a.heard().await, [superseded(&[&newer])]);
    bench.everything_expires().await;
}

async fn the_others_keep_their_positions_and_the_holder_its_hold(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.newest();
    assert_eq!(a.wait(&held).await.outcome, Acquired::Granted);
    let first = a.queue(30_000).await;
    let older = b.queue_newest().await;
    let read = b.queue_for(Demand::READ, 30_000).await;
    let newer = b.newest();
    assert_eq!(position(&b.wait(&newer).await), 2);
    assert_eq!(bench.queue().await, [first, read, newer]);
    assert_eq!(bench.holder().await, Some(held));
    assert_eq!((a.heard().await, b.heard().await), (vec![], vec![superseded(&[&older])]));
}

async fn one_that_was_superseded_stays_out_and_learns_of_it_by_a_touch(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.hold(30_000).await;
    let older = b.queue_newest().await;
    let newer = a.queue_newest().await;
    let touched = b.touch(&[&older]).await;
    assert_eq!(touched.outcome.members, [Presence::Superseded]);
    // A late copy of its acquire.
    assert_eq!(b.wait(&older).await.outcome, Acquired::Refused);
    assert_eq!(bench.queue().await, std::slice::from_ref(&newer));
    assert_eq!(bench.tombstones().await, std::slice::from_ref(&older));
    a.release(&held).await;
    assert_eq!(bench.holder().await, Some(newer.clone()));
    a.release(&newer).await;
    assert_eq!(b.wait(&older).await.outcome, Acquired::Refused);
    assert_eq!(b.leave(&older).await.outcome, [Left::Absent]);
    // A member that left by itself is gone like all others, while its tombstone lasts.
    let other = b.newest();
    b.leave_ambiguous(&older).await;
    assert_eq!(b.touch(&[&other]).await.outcome.members, [Presence::Gone]);
    bench.everything_expires().await;
}

async fn one_that_asks_again_supersedes_none(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let first = b.queue(30_000).await;
    let newest = b.queue_newest().await;
    assert_eq!(position(&b.wait(&newest).await), 1);
    assert_eq!(bench.queue().await, [first, newest]);
    assert_eq!(b.heard().await, []);
}

async fn a_try_supersedes_none_and_a_full_queue_has_room_for_one_in_place_of_another(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let older = b.queue_newest().await;
    assert_eq!(a.acquire(&a.newest(), Mode::Try, 1).await.outcome, Acquired::Busy);
    assert_eq!((bench.queue().await, b.heard().await), (vec![older.clone()], vec![]));
    let newer = a.newest();
    assert_eq!(position(&a.acquire(&newer, Mode::Wait, 1).await), 0);
    assert_eq!((bench.queue().await, b.heard().await), (vec![newer], vec![superseded(&[&older])]));
}

async fn one_that_finds_the_queue_full_supersedes_none(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = [b.queue(30_000).await, b.queue_newest().await];
    let full = Acquired::Full { waiting: 1 };
    assert_eq!(a.acquire(&a.newest(), Mode::Wait, 1).await.outcome, full);
    assert_eq!((bench.queue().await, b.heard().await), (waiting.to_vec(), vec![]));
}

async fn a_free_lock_is_granted_and_one_that_waits_is_granted_in_its_turn(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.newest();
    let reply = a.wait(&held).await;
    assert_eq!((reply.outcome, &grant(&reply).member), (Acquired::Granted, &held));
    let waiting = b.queue_newest().await;
    a.release(&held).await;
    assert_eq!(bench.holder().await, Some(waiting.clone()));
    b.release(&waiting).await;
    assert_eq!(bench.holder().await, None);
    bench.everything_expires().await;
}

async fn those_behind_a_head_that_is_superseded_are_granted(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.hold_for(Demand::READ, 30_000).await;
    b.queue_newest().await;
    let behind = b.queue_for(Demand::READ, 30_000).await;
    let newer = a.queue_newest().await;
    bench.assert_held(&[&held, &behind]).await;
    assert_eq!(bench.queue().await, [newer]);
}

async fn of_a_long_queue_the_last_two_hundred_are_looked_at(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let older = b.queue_newest().await;
    for _ in 0..199 {
        a.queue(30_000).await;
    }
    let newer = a.queue_newest().await;
    assert_eq!(b.heard().await, [superseded(&[&older])]);
    for _ in 0..200 {
        a.queue(30_000).await;
    }
    let newest = a.queue_newest().await;
    let queue = bench.queue().await;
    assert!(queue.contains(&newer) && queue.last() == Some(&newest));
}

async fn one_that_is_granted_by_the_same_command_is_none_of_those_that_are_looked_at(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let next = b.queue(30_000).await;
    let older = b.queue_newest().await;
    for _ in 0..200 {
        a.queue(30_000).await;
    }
    bench.end_lease().await;
    let newest = a.queue_newest().await;
    let queue = bench.queue().await;
    assert_eq!(bench.holder().await, Some(next));
    assert!(queue.contains(&older) && queue.last() == Some(&newest));
}

async fn a_storm_of_newer_ones_leaves_so_many_tombstones_and_no_more(mut bench: Bench) {
    let [a, b] = [bench.node().await, bench.node().await];
    a.hold(30_000).await;
    let first = b.queue_newest().await;
    for _ in 0..MOST_TOMBSTONES {
        b.queue_newest().await;
    }
    let last = a.queue_newest().await;
    // The first of them was dropped; the last are refused still.
    assert_eq!(bench.tombstones().await.len(), MOST_TOMBSTONES);
    assert_eq!(b.touch(&[&first]).await.outcome.members, [Presence::Gone]);
    let second_to_last = bench.tombstones().await.into_iter().max_by_key(Member::number);
    let second_to_last = second_to_last.expect("there are some");
    assert_eq!(b.wait(&second_to_last).await.outcome, Acquired::Refused);
    assert_eq!(bench.queue().await, [last]);
}

async fn one_that_asks_anew_is_refused_where_a_newer_one_waits_or_holds(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let held = a.hold(30_000).await;
    let (newer, older) = (a.newest_of(900, 0), b.newest_of(50, 1));
    a.wait(&newer).await;
    assert_eq!(b.wait(&older).await.outcome, Acquired::Refused);
    assert_eq!((bench.queue().await, a.heard().await), (vec![newer.clone()], vec![]));
    a.release(&held).await;
    assert_eq!(bench.holder().await, Some(newer.clone()));
    assert_eq!(b.wait(&older).await.outcome, Acquired::Refused);
    assert_eq!((bench.queue().await, bench.tombstones().await), (vec![], vec![]));
    a.release(&newer).await;
    assert_eq!(b.wait(&older).await.outcome, Acquired::Granted);
    // A holder that repeats the request receives its hold, even if a newer member waits.
    a.wait(&a.newest_of(1_000, 0)).await;
    assert_eq!(b.wait(&older).await.outcome, Acquired::Granted);
}

async fn one_that_asks_anew_supersedes_those_that_began_before_it(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let (older, newer) = (a.newest_of(50, 4_095), b.newest_of(900, 1));
    a.wait(&older).await;
    assert_eq!(position(&b.wait(&newer).await), 0);
    assert_eq!(a.heard().await, [superseded(&[&older])]);
    // A later round of an attempt is the newer member.
    let later = b.newest_of(900, 2);
    assert_eq!(position(&b.wait(&later).await), 0);
    assert_eq!(b.wait(&b.newest_of(900, 1)).await.outcome, Acquired::Refused);
    assert_eq!(bench.queue().await, [later]);
}

async fn of_one_node_an_older_one_that_comes_late_supersedes_no_newer_one(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let (older, newer) = (a.newest_of(50, 0), a.newest_of(51, 0));
    a.wait(&newer).await;
    assert_eq!(a.wait(&older).await.outcome, Acquired::Refused);
    assert_eq!((bench.queue().await, a.heard().await), (vec![newer], vec![]));
}

async fn of_two_nodes_the_one_that_is_queued_later_is_newer_whatever_its_number(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let (first, second) = (a.newest_of(900, 3), b.newest_of(50, 0));
    a.wait(&first).await;
    assert_eq!(position(&b.wait(&second).await), 0);
    assert_eq!((bench.queue().await, a.heard().await), (vec![second], vec![superseded(&[&first])]));
}

async fn one_that_is_refused_hands_on_what_has_become_free(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let newer = a.newest_of(900, 0);
    a.wait(&newer).await;
    bench.end_lease().await;
    assert_eq!(b.wait(&b.newest_of(50, 1)).await.outcome, Acquired::Refused);
    assert_eq!(bench.holder().await, Some(newer));
    assert_eq!(bench.queue().await, []);
}

// The function removes them by itself.
#[tokio::test]
async fn tombstones_that_have_ended_are_swept_a_few_in_each_command() {
    const ENDED: usize = 3_000;
    const STEP: usize = 256;
    let mut bench = Bench::start(Side::QueueScripts).await;
    let a = bench.node().await;
    a.hold(30_000).await;
    let key = lock_tests::tombstones_key(bench.lock.as_str());
    let mut ended = cmd("ZADD");
    ended.arg(&key);
    for _ in 0..ENDED {
        ended.arg(1).arg(a.newest().as_str());
    }
    let () = bench.redis().ask(&ended).await;
    a.queue_newest().await;
    let mut left = ENDED;
    for round in 0..14 {
        match round % 2 {
            0 => drop(a.queue_newest().await),
            _ => drop(a.leave_ambiguous(&a.member(30_000)).await),
        }
        let now: usize = bench.redis().ask(cmd("ZCOUNT").arg(&key).arg("-inf").arg(1)).await;
        assert_eq!(left - now, left.min(STEP), "in command {round}");
        left = now;
    }
    assert_eq!((left, bench.tombstones().await.len()), (0, 14));
}

async fn two_of_one_node_that_both_wait_are_no_batch(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.deaf_node().await);
    let held = a.hold(30_000).await;
    let (older, newer) = (b.newest_of(50, 0), b.newest_of(900, 0));
    b.wait(&older).await;
    a.queue(30_000).await;
    assert_eq!(a.release(&held).await.skipped, 1);
    bench.end_lease().await;
    let held = b.hold(30_000).await;
    b.wait(&newer).await;
    assert_eq!(b.touch(&[&older]).await.outcome.members, [Presence::Waiting]);
    assert_eq!(bench.queue().await, [older.clone(), newer.clone()]);
    // Above all times known to the node: the release must take the fast path.
    let ahead = bench.counter().await + 1_000_000_000;
    bench.set_counter(Some(ahead)).await;
    b.release(&held).await;
    assert_eq!(bench.holder().await, Some(older));
    assert_eq!((bench.batch().await, bench.queue().await), (vec![], vec![newer]));
}
