//! The members granted when something is released, beyond the head of the queue.

use proto::{Acquired, Demand, Member, Mode};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;
use crate::parts::permits;
use crate::taking::plant_lapsed;

facts! {
    both: [
        behind_a_lock_no_node_is_asked_whether_it_is_connected,
        the_calling_node_counts_as_connected,
    ],
    queue: [
        a_release_grants_the_weight_that_a_lapsed_neighbour_leaves_free_too,
        reads_and_greater_limits_behind_a_permit_that_took_its_last_are_granted_in_the_same_step,
        ten_permits_with_limits_one_to_ten_are_granted_in_one_step,
        a_release_that_hands_over_to_the_head_alone_leaves_the_next_of_its_limit_waiting,
        a_run_of_readers_at_the_head_is_granted_in_one_step_up_to_the_first_lock,
        a_dead_request_for_three_keeps_out_none_for_one,
        a_silent_head_is_dropped_although_every_permit_is_held_but_not_behind_a_lock,
        the_silent_behind_a_permit_that_took_its_last_keep_no_read_out,
        of_more_readers_than_one_command_looks_at_the_rest_is_left_to_the_next,
        parts_that_have_lapsed_are_taken_out_before_anything_is_handed_on,
        at_most_256_lapsed_parts_are_taken_out_in_one_step_and_the_reply_tells_of_more,
        a_try_refused_for_more_than_256_lapsed_parts_is_served_after_the_touches_that_follow_it,
    ],
}

/// Releases a lock that these demands wait for, in this order, and returns their members.
async fn released(bench: &mut Bench, demands: &[Demand]) -> Vec<Member> {
    let (a, b) = (bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    let mut waiting = Vec::new();
    for demand in demands {
        waiting.push(b.queue_for(*demand, 30_000).await);
    }
    a.release(&lock).await;
    waiting
}

async fn a_release_grants_the_weight_that_a_lapsed_neighbour_leaves_free_too(mut bench: Bench) {
    let a = bench.node().await;
    // Two of three and one of three hold; the head wants exactly as much as the former releases.
    let two = a.hold_for(permits(2, 3), 30_000).await;
    let lapsed = a.hold_for(permits(1, 3), 30_000).await;
    let head = a.queue_for(permits(2, 3), 30_000).await;
    let next = a.queue_for(permits(1, 3), 30_000).await;
    bench.lapse(&lapsed).await;
    a.release(&two).await;
    assert_eq!(bench.shared().await.0, 3);
    bench.assert_held(&[&head, &next]).await;
}

async fn reads_and_greater_limits_behind_a_permit_that_took_its_last_are_granted_in_the_same_step(
    mut bench: Bench,
) {
    for demands in [&[permits(1, 1), Demand::READ][..], &[permits(1, 1), permits(1, 2)]] {
        bench.restart().await;
        let waiting = released(&mut bench, demands).await;
        bench.assert_held(&waiting.iter().collect::<Vec<_>>()).await;
    }
}

async fn ten_permits_with_limits_one_to_ten_are_granted_in_one_step(mut bench: Bench) {
    let demands: Vec<_> = (1..=10).map(|limit| permits(1, limit)).collect();
    let waiting = released(&mut bench, &demands).await;
    bench.assert_held(&waiting.iter().collect::<Vec<_>>()).await;
}

async fn a_release_that_hands_over_to_the_head_alone_leaves_the_next_of_its_limit_waiting(
    mut bench: Bench,
) {
    let waiting = released(&mut bench, &[permits(1, 1), permits(1, 1)]).await;
    bench.assert_held(&[&waiting[0]]).await;
    assert_eq!(bench.queue().await, waiting[1..]);
}

async fn a_run_of_readers_at_the_head_is_granted_in_one_step_up_to_the_first_lock(
    mut bench: Bench,
) {
    let demands = [Demand::READ, Demand::READ, Demand::EXCLUSIVE, Demand::READ];
    let waiting = released(&mut bench, &demands).await;
    bench.assert_held(&[&waiting[0], &waiting[1]]).await;
    assert_eq!(bench.queue().await, waiting[2..]);
}

async fn a_dead_request_for_three_keeps_out_none_for_one(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let two = a.hold_for(permits(2, 3), 30_000).await;
    let one = a.hold_for(permits(1, 3), 30_000).await;
    bench.plant_dead_for(permits(3, 3), 1).await;
    let next = b.queue_for(permits(1, 3), 30_000).await;
    a.release(&one).await;
    bench.assert_held(&[&two, &next]).await;
}

async fn behind_a_lock_no_node_is_asked_whether_it_is_connected(mut bench: Bench) {
    let a = bench.node().await;
    a.hold(30_000).await;
    let dead = bench.plant_dead_for(Demand::EXCLUSIVE, 1).await;
    let waiting = a.queue(30_000).await;
    assert_eq!(a.touch(&[&waiting]).await.skipped, 0);
    assert_eq!(bench.queue().await, [dead[0].clone(), waiting]);
}

async fn the_calling_node_counts_as_connected(mut bench: Bench) {
    let deaf = bench.deaf_node().await;
    let holder = deaf.hold(30_000).await;
    let next = deaf.queue(30_000).await;
    let reply = deaf.release(&holder).await;
    assert_eq!((reply.skipped, &grant(&reply).member), (0, &next));
    assert_eq!(bench.holder().await, Some(next));
}

async fn a_silent_head_is_dropped_although_every_permit_is_held_but_not_behind_a_lock(
    mut bench: Bench,
) {
    for (demand, left) in [(permits(1, 1), 0), (Demand::EXCLUSIVE, 1)] {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        a.hold_for(demand, 30_000).await;
        let silent = b.queue_for(demand, 30_000).await;
        bench.end_patience(&silent).await;
        a.acquire(&a.member_for(demand, 30_000), Mode::Try, 9).await;
        assert_eq!(bench.queue().await.len(), left, "{demand}");
    }
}

async fn the_silent_behind_a_permit_that_took_its_last_keep_no_read_out(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    let permit = b.queue_for(permits(1, 1), 30_000).await;
    let silent = c.queue_for(permits(1, 1), 30_000).await;
    let read = b.queue_for(Demand::READ, 30_000).await;
    bench.end_patience(&silent).await;
    a.release(&lock).await;
    bench.assert_held(&[&permit, &read]).await;
    assert_eq!(bench.queue().await, []);
}

async fn of_more_readers_than_one_command_looks_at_the_rest_is_left_to_the_next(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    for _ in 0..250 {
        b.queue_for(Demand::READ, 30_000).await;
    }
    assert!(a.release(&lock).await.more);
    assert_eq!((bench.parts().await.len(), bench.queue().await.len()), (200, 50));
    assert!(!a.touch(&[]).await.more);
    assert_eq!((bench.parts().await.len(), bench.queue().await.len()), (250, 0));
}

async fn parts_that_have_lapsed_are_taken_out_before_anything_is_handed_on(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut reads = Vec::new();
    for _ in 0..3 {
        reads.push(a.hold_for(Demand::READ, 30_000).await);
    }
    let lock = b.queue(30_000).await;
    for read in &reads {
        bench.lapse(read).await;
    }
    assert_eq!(grant(&b.touch(&[&lock]).await).member, lock);
    bench.assert_held(&[&lock]).await;
}

async fn at_most_256_lapsed_parts_are_taken_out_in_one_step_and_the_reply_tells_of_more(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold_for(Demand::READ, 30_000).await;
    let lock = b.queue(30_000).await;
    let others: Vec<Member> = (0..299).map(|_| a.member_for(Demand::READ, 30_000)).collect();
    plant_lapsed(&mut bench, &others, 1).await;
    bench.lapse(&first).await;
    let reply = b.touch(&[&lock]).await;
    assert!(reply.more && reply.grants.is_empty(), "{reply:?}");
    assert_eq!(bench.shared().await.0, 44);
    assert_eq!(grant(&b.touch(&[&lock]).await).member, lock);
    let outcome = a.try_now(&a.member_for(Demand::READ, 30_000)).await.outcome;
    assert_eq!(outcome, Acquired::Busy);
}

async fn a_try_refused_for_more_than_256_lapsed_parts_is_served_after_the_touches_that_follow_it(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let first = a.hold_for(Demand::READ, 30_000).await;
    let others: Vec<Member> = (0..599).map(|_| a.member_for(Demand::READ, 30_000)).collect();
    plant_lapsed(&mut bench, &others, 1).await;
    bench.lapse(&first).await;
    let lock = b.member(30_000);
    let reply = b.try_now(&lock).await;
    assert_eq!((reply.outcome, reply.more), (Acquired::Busy, true));
    assert_eq!(bench.shared().await.0, 344);
    assert!(b.touch(&[]).await.more);
    assert_eq!(bench.shared().await.0, 88);
    assert!(!b.touch(&[]).await.more);
    assert!(bench.is_empty().await);
    assert_eq!(b.try_now(&lock).await.outcome, Acquired::Granted);
    bench.everything_expires().await;
}
