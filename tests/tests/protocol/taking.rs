//! Acquiring a lock, a read or permits: which demands fit together, and the reply to each.

use proto::{Acquired, Demand, Member, Mode};

use crate::asking::{grant, left_ms};
use crate::bench::Bench;
use crate::facts;
use crate::parts::permits;
use crate::state::State;

facts! {
    both: [
        whatever_fits_is_granted_its_full_lease_and_the_reply_tells_it,
        a_lock_that_was_taken_and_given_back_leaves_nothing_but_a_token,
        a_try_that_is_refused_writes_nothing,
        a_member_that_asks_again_at_its_turn_is_granted_its_claim_without_a_message,
    ],
    queue: [
        locks_reads_and_permits_of_a_name_exclude_each_other,
        readers_join_each_other_and_a_lock_joins_none,
        permits_are_granted_up_to_the_limit,
        a_newcomer_that_fits_stands_behind_a_waiter_that_does_not,
        each_request_is_judged_by_its_own_limit,
        a_lock_waits_for_every_permit_and_keeps_all_others_out,
        a_part_whose_lease_has_ended_counts_until_another_does_not_fit,
        a_member_whose_own_lease_has_ended_is_granted_anew_and_counts_once,
        a_reply_tells_the_first_end_of_a_lease,
    ],
}

/// A demand for each acquiring script.
fn demands(bench: &Bench) -> &'static [Demand] {
    if bench.side.has_peers() { &[Demand::EXCLUSIVE] } else { &[Demand::EXCLUSIVE, Demand::READ] }
}

async fn whatever_fits_is_granted_its_full_lease_and_the_reply_tells_it(mut bench: Bench) {
    for demand in demands(&bench) {
        bench.restart().await;
        let a = bench.node().await;
        let member = a.member_for(*demand, 30_000);
        let reply = a.wait(&member).await;
        assert_eq!((reply.outcome, left_ms(&reply)), (Acquired::Granted, 30_000));
        assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&member, 30_000));
        bench.assert_held(&[&member]).await;
    }
}

async fn a_lock_that_was_taken_and_given_back_leaves_nothing_but_a_token(mut bench: Bench) {
    for demand in demands(&bench) {
        bench.restart().await;
        let a = bench.node().await;
        let member = a.hold_for(*demand, 30_000).await;
        a.release(&member).await;
        bench
            .change(|state, _| {
                if let State::Redisson(state) = state {
                    assert!(state.token.take().is_some());
                }
            })
            .await;
        assert!(bench.is_empty().await, "{:?}", bench.state().await);
    }
}

async fn a_try_that_is_refused_writes_nothing(mut bench: Bench) {
    let one_of_one = [permits(1, 1)];
    for demand in if bench.side.has_peers() { &[Demand::EXCLUSIVE] } else { &one_of_one } {
        for is_waited_for in [false, true] {
            bench.restart().await;
            let (a, b) = (bench.node().await, bench.node().await);
            a.hold_for(*demand, 30_000).await;
            if is_waited_for {
                b.queue_for(*demand, 30_000).await;
            }
            let before = bench.everything().await;
            let reply = a.try_now(&a.member_for(*demand, 30_000)).await;
            assert_eq!(reply.outcome, Acquired::Busy);
            assert_eq!(bench.everything().await, before);
        }
    }
}

async fn a_member_that_asks_again_at_its_turn_is_granted_its_claim_without_a_message(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    bench.end_lease().await;
    let reply = b.wait(&waiting).await;
    assert_eq!((reply.outcome, left_ms(&reply)), (Acquired::Granted, 10_000));
    assert_eq!(grant(&reply).member, waiting);
    assert_eq!(b.heard().await, []);
    assert_eq!((bench.holder().await, bench.queue().await), (Some(waiting), vec![]));
}

async fn locks_reads_and_permits_of_a_name_exclude_each_other(mut bench: Bench) {
    let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
    let lock = a.hold(30_000).await;
    let read = b.queue_for(Demand::READ, 30_000).await;
    let permit = b.queue_for(permits(1, 3), 30_000).await;
    let last = c.queue(30_000).await;
    a.release(&lock).await;
    bench.assert_held(&[&read, &permit]).await;
    b.release(&read).await;
    b.release(&permit).await;
    bench.assert_held(&[&last]).await;
}

async fn readers_join_each_other_and_a_lock_joins_none(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let one = a.hold_for(Demand::READ, 30_000).await;
    let other = b.hold_for(Demand::READ, 30_000).await;
    let lock = a.queue(30_000).await;
    a.leave(&lock).await;
    a.release(&one).await;
    b.release(&other).await;
    a.hold(30_000).await;
    b.queue_for(Demand::READ, 30_000).await;
}

async fn permits_are_granted_up_to_the_limit(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold_for(permits(2, 3), 30_000).await;
    let waiting = b.queue_for(permits(2, 3), 30_000).await;
    b.leave(&waiting).await;
    b.hold_for(permits(1, 3), 30_000).await;
    a.queue_for(permits(1, 3), 30_000).await;
    assert_eq!(bench.shared().await.0, 3);
}

async fn a_newcomer_that_fits_stands_behind_a_waiter_that_does_not(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold_for(permits(1, 3), 30_000).await;
    a.queue_for(permits(3, 3), 30_000).await;
    let small = b.member_for(permits(1, 3), 30_000);
    assert_eq!(b.try_now(&small).await.outcome, Acquired::Busy);
    assert_eq!(b.wait(&small).await.outcome, Acquired::Queued { position: 1 });
}

async fn each_request_is_judged_by_its_own_limit(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(a.hold_for(permits(1, 20), 30_000).await);
    }
    let of_ten = b.queue_for(permits(1, 10), 30_000).await;
    let of_twenty = a.queue_for(permits(1, 20), 30_000).await;
    // With nine in use there is room for one of ten, and then for one of twenty.
    let first = held.remove(0);
    a.release(&first).await;
    held.extend([of_ten, of_twenty]);
    bench.assert_held(&held.iter().collect::<Vec<_>>()).await;
}

async fn a_lock_waits_for_every_permit_and_keeps_all_others_out(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let one = a.hold_for(permits(1, 10), 30_000).await;
    let other = b.hold_for(permits(1, 10), 30_000).await;
    let lock = b.queue(30_000).await;
    a.release(&one).await;
    bench.assert_held(&[&other]).await;
    b.release(&other).await;
    bench.assert_held(&[&lock]).await;
    a.queue_for(permits(1, 10), 30_000).await;
}

async fn a_part_whose_lease_has_ended_counts_until_another_does_not_fit(mut bench: Bench) {
    let a = bench.node().await;
    let lapsed = a.hold_for(Demand::READ, 30_000).await;
    bench.lapse(&lapsed).await;
    let one = a.hold_for(Demand::READ, 30_000).await;
    assert_eq!(bench.shared().await.0, 2);
    let other = a.hold_for(Demand::READ, 30_000).await;
    a.queue(30_000).await;
    assert_eq!(bench.shared().await.0, 2);
    bench.assert_held(&[&one, &other]).await;
}

// A command removes at most 256 holds, not including its own.
async fn a_member_whose_own_lease_has_ended_is_granted_anew_and_counts_once(mut bench: Bench) {
    let a = bench.node().await;
    let member = a.hold_for(Demand::READ, 30_000).await;
    let others: Vec<Member> = (0..256).map(|_| a.member_for(Demand::READ, 30_000)).collect();
    plant_lapsed(&mut bench, &others, 2).await;
    bench.change(|state, now_ms| state.of_queue().holds.set(&member, now_ms - 1)).await;
    let reply = a.wait(&member).await;
    assert_eq!((&grant(&reply).member, grant(&reply).left_ms), (&member, 30_000));
    assert_eq!(bench.shared().await.0, 1);
    bench.assert_held(&[&member]).await;
}

/// Plants parts that expired `ago_ms` ago, beside a held part.
pub(crate) async fn plant_lapsed(bench: &mut Bench, members: &[Member], ago_ms: u64) {
    let members = members.to_vec();
    let (used, _) = bench.shared().await;
    bench
        .change(move |state, now_ms| {
            let state = state.of_queue();
            let weight: u64 = members.iter().map(|member| state.weight(member)).sum();
            for member in &members {
                state.holds.set(member, now_ms - ago_ms);
            }
            let lock_key = state.lock_key.as_mut().expect("it is held");
            if let proto::queue::Held::Parts { used: in_use, .. } = &mut lock_key.held {
                *in_use = used + weight;
            }
        })
        .await;
}

async fn a_reply_tells_the_first_end_of_a_lease(mut bench: Bench) {
    let a = bench.node().await;
    a.hold_for(Demand::READ, 30_000).await;
    a.hold_for(Demand::READ, 10_000).await;
    a.hold_for(Demand::READ, 20_000).await;
    let reply = a.acquire(&a.member(30_000), Mode::Try, 10).await;
    assert!((9_000..=10_000).contains(&left_ms(&reply)), "{reply:?}");
}
