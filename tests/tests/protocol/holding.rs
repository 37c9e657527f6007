//! The life of a hold: renewal, downgrade, release, and the lease end.

use std::num::NonZeroU32;

use proto::{Answer, Command, Demand, HoldView, Left, Member, Presence, Released, Renewed, Reply};

use crate::asking::grant;
use crate::bench::Bench;
use crate::facts;
use crate::node::Node;
use crate::parts::permits;
use crate::state::State;

facts! {
    both: [
        a_renewal_gives_the_full_lease_again,
        neither_a_renewal_nor_a_confirmation_revives_or_hands_anything_over,
        a_release_and_a_leave_of_an_ended_lease_find_nothing_and_hand_on,
        an_ended_lease_is_neither_shown_nor_forced_off_nor_found_by_a_touch,
    ],
    queue: [
        neither_a_renewal_nor_a_confirmation_of_a_lapsed_part_hands_anything_over,
        a_release_of_a_part_gives_back_once,
        a_lapsed_part_in_whose_place_nothing_was_granted_counts_as_released,
        a_reduction_never_raises_and_needs_a_hold_that_has_not_lapsed,
        a_reduced_part_gives_back_the_weight_that_is_left,
        a_renewed_hold_keeps_its_reduced_weight,
        a_longer_read_beside_it_keeps_the_reduced_weight_of_a_hold,
        a_downgraded_hold_whose_weight_was_lost_keeps_the_reduced_weights_beside_it,
        a_downgraded_hold_whose_weight_was_lost_takes_nothing_from_the_read_beside_it,
        permits_beside_a_downgraded_hold_whose_weight_was_lost_are_counted_again,
        a_reduction_beside_a_lapsed_hold_whose_weight_was_lost_counts_for_those_that_wait,
        a_lock_that_becomes_a_read_has_a_new_token_and_lets_readers_in,
        a_force_release_of_one_that_does_not_hold_drops_nobody_and_of_all_parts_hands_on,
        a_leave_takes_out_waiters_and_parts_and_tells_which_were_there,
        parts_expire_together_a_minute_after_the_last_lease,
        an_inspection_shows_no_part_whose_lease_has_ended,
    ],
}

async fn a_renewal_gives_the_full_lease_again(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    bench.pass(20_000).await;
    assert!(bench.left().await <= 10_000);
    assert_eq!(a.renew(&holder).await.outcome, [Renewed::Held]);
    assert!((29_000..=30_000).contains(&bench.left().await));
}

async fn neither_a_renewal_nor_a_confirmation_revives_or_hands_anything_over(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    bench.end_lease().await;
    for reply in [a.renew(&holder).await, a.confirm(&holder).await] {
        assert_eq!((reply.outcome, reply.grants), (vec![Renewed::NotHeld], vec![]));
        assert_eq!(bench.holder().await, None);
        assert_eq!(bench.queue().await, std::slice::from_ref(&waiting));
    }
    assert_eq!(b.heard().await, []);
}

async fn neither_a_renewal_nor_a_confirmation_of_a_lapsed_part_hands_anything_over(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let part = a.hold_for(Demand::READ, 30_000).await;
    let waiting = b.queue(30_000).await;
    bench.lapse(&part).await;
    for reply in [a.renew(&part).await, a.confirm(&part).await] {
        assert_eq!((reply.outcome, reply.grants), (vec![Renewed::NotHeld], vec![]));
        assert_eq!(bench.queue().await, std::slice::from_ref(&waiting));
    }
}

async fn a_release_and_a_leave_of_an_ended_lease_find_nothing_and_hand_on(mut bench: Bench) {
    for is_leave in [false, true] {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        let holder = a.hold(30_000).await;
        let waiting = b.queue(30_000).await;
        bench.end_lease().await;
        match is_leave {
            true => assert_eq!(a.leave(&holder).await.outcome, [Left::Absent]),
            false => assert_eq!(a.release(&holder).await.outcome, Released::NotHeld),
        }
        assert_eq!(bench.holder().await, Some(waiting));
    }
}

async fn an_ended_lease_is_neither_shown_nor_forced_off_nor_found_by_a_touch(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    let waiting = b.queue(30_000).await;
    bench.end_lease().await;
    assert_eq!(a.inspect().await.holds, []);
    assert_eq!(a.force_release().await.outcome, Released::NotHeld);
    assert_eq!(bench.holder().await, Some(waiting));
    bench.end_lease().await;
    assert_eq!(a.touch(&[&holder]).await.outcome.members, [Presence::Gone]);
    assert_eq!(a.heard().await, []);
}

async fn a_release_of_a_part_gives_back_once(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let two = a.hold_for(permits(2, 3), 30_000).await;
    b.hold_for(permits(1, 3), 30_000).await;
    assert_eq!(a.release(&two).await.outcome, Released::Released);
    assert_eq!(a.release(&two).await.outcome, Released::NotHeld);
    assert_eq!(bench.shared().await.0, 1);
}

async fn a_lapsed_part_in_whose_place_nothing_was_granted_counts_as_released(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let part = a.hold_for(Demand::READ, 30_000).await;
    bench.lapse(&part).await;
    assert_eq!(a.release(&part).await.outcome, Released::Released);
    a.wait(&part).await;
    bench.lapse(&part).await;
    b.hold(30_000).await;
    assert_eq!(a.release(&part).await.outcome, Released::NotHeld);
}

async fn reduce_to(node: &Node, member: &Member, weight: u32) -> Reply<Vec<Renewed>> {
    let weight = NonZeroU32::new(weight).expect("a weight");
    let command = Command::reduce(member.clone(), weight);
    let answer = node.run(command).await.expect("answered");
    let Answer::Renewed(reply) = answer else { unreachable!() };
    reply
}

async fn a_reduction_never_raises_and_needs_a_hold_that_has_not_lapsed(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let two = a.hold_for(permits(2, 3), 30_000).await;
    let (_, token) = bench.shared().await;
    assert_eq!(reduce_to(&a, &two, 3).await.outcome, [Renewed::Held]);
    assert_eq!(bench.shared().await, (2, token));
    assert_eq!(reduce_to(&a, &two, 1).await.outcome, [Renewed::Held]);
    assert_eq!(bench.shared().await, (1, token));
    let unknown = b.member_for(permits(2, 3), 30_000);
    assert_eq!(reduce_to(&b, &unknown, 1).await.outcome, [Renewed::NotHeld]);
    bench.lapse(&two).await;
    assert_eq!(reduce_to(&a, &two, 1).await.outcome, [Renewed::NotHeld]);
}

async fn a_reduced_part_gives_back_the_weight_that_is_left(mut bench: Bench) {
    let a = bench.node().await;
    let three = a.hold_for(permits(3, 4), 30_000).await;
    a.hold_for(permits(1, 4), 30_000).await;
    reduce_to(&a, &three, 1).await;
    a.release(&three).await;
    assert_eq!(bench.shared().await.0, 1);
    assert!(bench.state().await.0.of_queue().reduced.is_empty());
}

async fn a_renewed_hold_keeps_its_reduced_weight(mut bench: Bench) {
    let a = bench.node().await;
    let lock = a.hold(30_000).await;
    a.reduce(&lock).await;
    bench.pass(20_000).await;
    assert_eq!(a.renew(&lock).await.outcome, [Renewed::Held]);
    assert_eq!((bench.shared().await.0, bench.state().await.0.of_queue().weight(&lock)), (1, 1));
    assert!(bench.left_of(&lock).await > 29_000);
}

async fn a_longer_read_beside_it_keeps_the_reduced_weight_of_a_hold(mut bench: Bench) {
    let a = bench.node().await;
    let lock = a.hold(1_000).await;
    a.reduce(&lock).await;
    a.hold_for(Demand::READ, 600_000).await;
    let (mut state, now_ms) = bench.state().await;
    let ends_ms = state.of_queue().holds_end_ms.expect("it has an end");
    assert!(ends_ms > now_ms + 600_000, "{} ms", ends_ms - now_ms);
}

async fn a_downgraded_hold_whose_weight_was_lost_keeps_the_reduced_weights_beside_it(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let lock = a.hold(30_000).await;
    a.reduce(&lock).await;
    bench.change(|state, _| state.of_queue().reduced.clear()).await;
    let three = a.hold_for(permits(3, 4), 30_000).await;
    reduce_to(&a, &three, 1).await;
    let soon = |state: &mut State, now_ms| {
        let state = state.of_queue();
        state.holds_end_ms = Some(now_ms + 70_000);
        state.lock_key.as_mut().expect("it is held").ends_ms = state.holds_end_ms;
    };
    bench.change(soon).await;
    assert_eq!(a.renew(&lock).await.outcome, [Renewed::Held]);
    let (mut state, now_ms) = bench.state().await;
    let ends_ms = state.of_queue().holds_end_ms.expect("it has an end");
    assert!(ends_ms > now_ms + 89_000, "{} ms", ends_ms - now_ms);
    assert_eq!(state.of_queue().weight(&three), 1);
}

async fn a_downgraded_hold_whose_weight_was_lost_takes_nothing_from_the_read_beside_it(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let lock = a.hold(30_000).await;
    a.reduce(&lock).await;
    let read = a.hold_for(Demand::READ, 30_000).await;
    bench.change(|state, _| state.of_queue().reduced.clear()).await;
    let writer = a.queue(30_000).await;
    a.release(&lock).await;
    assert_eq!(bench.queue().await, [writer]);
    assert_eq!(bench.parts().await.first().map(|(member, _)| member.clone()), Some(read));
}

async fn permits_beside_a_downgraded_hold_whose_weight_was_lost_are_counted_again(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let lock = a.hold(30_000).await;
    a.reduce(&lock).await;
    let first = a.hold_for(permits(2, 8), 30_000).await;
    let second = a.hold_for(permits(2, 8), 30_000).await;
    bench.change(|state, _| state.of_queue().reduced.clear()).await;
    a.release(&lock).await;
    assert_eq!(bench.shared().await.0, 4);
    a.release(&first).await;
    assert_eq!(bench.shared().await.0, 2);
    let writer = a.queue(30_000).await;
    assert_eq!(bench.queue().await, [writer]);
    a.release(&second).await;
}

async fn a_reduction_beside_a_lapsed_hold_whose_weight_was_lost_counts_for_those_that_wait(
    mut bench: Bench,
) {
    let a = bench.node().await;
    let lock = a.hold(30_000).await;
    a.reduce(&lock).await;
    let three = a.hold_for(permits(3, 4), 30_000).await;
    a.queue_for(permits(3, 4), 30_000).await;
    bench.change(|state, _| state.of_queue().reduced.clear()).await;
    bench.lapse(&lock).await;
    reduce_to(&a, &three, 1).await;
    assert_eq!((bench.shared().await.0, bench.queue().await), (1 + 3, vec![]));
}

async fn a_lock_that_becomes_a_read_has_a_new_token_and_lets_readers_in(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let alone = a.member(30_000);
    let first = grant(&a.wait(&alone).await).token;
    assert!(grant(&a.reduce(&alone).await).token > first);
    a.release(&alone).await;
    let lock = a.member(30_000);
    let first = grant(&a.wait(&lock).await).token;
    let read = b.queue_for(Demand::READ, 30_000).await;
    let next = b.queue(30_000).await;
    let reduced = a.reduce(&lock).await;
    assert_eq!(reduced.outcome, [Renewed::Held]);
    assert!(grant(&reduced).token > first);
    bench.assert_held(&[&read, &lock]).await;
    assert_eq!(bench.queue().await, [next]);
    assert_eq!(grant(&a.reduce(&lock).await).token, grant(&reduced).token);
    assert_eq!(a.renew(&lock).await.outcome, [Renewed::Held]);
}

async fn a_force_release_of_one_that_does_not_hold_drops_nobody_and_of_all_parts_hands_on(
    mut bench: Bench,
) {
    let (a, b) = (bench.node().await, bench.node().await);
    let read = a.hold_for(Demand::READ, 30_000).await;
    let lock = b.queue(30_000).await;
    let one = Command::ForceRelease { member: Some(a.member_for(Demand::READ, 30_000)) };
    let answer = a.run(one).await.expect("answered");
    let Answer::Released(reply) = answer else { unreachable!() };
    assert_eq!(reply.outcome, Released::NotHeld);
    bench.assert_held(&[&read]).await;
    assert_eq!(a.force_release().await.outcome, Released::Released);
    bench.assert_held(&[&lock]).await;
}

async fn a_leave_takes_out_waiters_and_parts_and_tells_which_were_there(mut bench: Bench) {
    let a = bench.node().await;
    let read = a.hold_for(Demand::READ, 30_000).await;
    let lock = a.queue(30_000).await;
    let unknown = a.member_for(Demand::READ, 30_000);
    let left = a.leave_all(&[(&read, false), (&lock, false), (&unknown, false)]).await;
    assert_eq!(left.outcome, [Left::Left, Left::Left, Left::Absent]);
    bench.assert_held(&[]).await;
    assert_eq!(bench.queue().await, []);
}

async fn parts_expire_together_a_minute_after_the_last_lease(mut bench: Bench) {
    let a = bench.node().await;
    let ends = async |bench: &mut Bench| {
        let (mut state, now_ms) = bench.state().await;
        let state = state.of_queue();
        let ends_ms = state.lock_key.as_ref().and_then(|lock_key| lock_key.ends_ms);
        assert_eq!(ends_ms, state.holds_end_ms);
        (ends_ms.expect("it has an end"), now_ms)
    };
    a.hold_for(Demand::READ, 30_000).await;
    let (ends_ms, now_ms) = ends(&mut bench).await;
    assert!((89_000..=120_000).contains(&(ends_ms - now_ms)), "{} ms", ends_ms - now_ms);
    assert_eq!(ends_ms % 30_000, 0);
    a.hold_for(Demand::READ, 20_000).await;
    assert_eq!(ends(&mut bench).await.0, ends_ms, "not written with every command");
    let (mut state, _) = bench.state().await;
    state.expire(ends_ms);
    assert!(state.is_empty(), "{state:?}");
}

async fn an_inspection_shows_no_part_whose_lease_has_ended(mut bench: Bench) {
    let a = bench.node().await;
    let lapsed = a.hold_for(Demand::READ, 30_000).await;
    let read = a.hold_for(Demand::READ, 30_000).await;
    bench.lapse(&lapsed).await;
    let seen = a.inspect().await;
    let [HoldView { party, weight: 1, .. }] = &seen.holds[..] else { panic!("{:?}", seen.holds) };
    assert_eq!(party.ours(), Some(&read));
}
