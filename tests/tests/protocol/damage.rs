//! A lock with some lost keys.

use proto::{Acquired, Demand, Mode, Presence, Renewed, SortedSet};

use crate::asking::{grant, left_ms};
use crate::bench::Bench;
use crate::facts;
use crate::parts::permits;

facts! {
    queue: [
        parts_whose_lock_key_was_lost_are_counted_again,
        a_sum_that_was_lost_is_computed_again,
        a_lost_sum_of_more_parts_than_a_script_reads_at_once_counts_each_once,
        without_a_lock_key_a_lock_is_free_and_the_parts_beside_it_are_dropped,
        with_the_holds_lost_nothing_is_in_use,
        a_waiter_whose_patience_was_lost_is_dropped_at_the_head_unless_it_is_touched_before,
        an_expiry_brought_forward_ends_the_lease_of_a_lock_with_waiters_a_minute_before_the_key,
    ],
    redisson: [
        a_queue_found_empty_has_its_sorted_set_deleted,
        a_sorted_set_without_a_list_is_deleted_before_use,
        a_lost_token_is_replaced_when_its_holder_asks_and_the_lease_stays,
    ],
}

async fn parts_whose_lock_key_was_lost_are_counted_again(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold_for(permits(1, 2), 30_000).await;
    a.hold_for(permits(1, 2), 30_000).await;
    bench.change(|state, _| state.of_queue().lock_key = None).await;
    b.queue_for(permits(1, 2), 30_000).await;
    assert_eq!(bench.shared().await.0, 2);
}

async fn a_sum_that_was_lost_is_computed_again(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    a.hold_for(permits(2, 3), 30_000).await;
    a.hold_for(permits(1, 3), 30_000).await;
    let (_, token) = bench.shared().await;
    bench
        .change(|state, _| {
            let lock_key = state.of_queue().lock_key.as_mut().expect("it is held");
            let proto::queue::Held::Parts { used, .. } = &mut lock_key.held else { unreachable!() };
            *used = 0;
        })
        .await;
    b.queue_for(permits(1, 3), 30_000).await;
    assert_eq!(bench.shared().await, (3, token));
}

// A script reads the weights of 1 000 parts at once.
async fn a_lost_sum_of_more_parts_than_a_script_reads_at_once_counts_each_once(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    for _ in 0..5 {
        let reads: Vec<_> = (0..200).map(|_| a.member_for(Demand::READ, 60_000)).collect();
        a.wait_all(&reads.iter().collect::<Vec<_>>()).await;
    }
    for held in [1_001, 1_002, 1_003] {
        bench.change(|state, _| state.of_queue().lock_key = None).await;
        b.hold_for(Demand::READ, 60_000).await;
        assert_eq!(bench.shared().await.0, held);
    }
}

async fn without_a_lock_key_a_lock_is_free_and_the_parts_beside_it_are_dropped(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let reads = [a.hold_for(Demand::READ, 30_000).await, a.hold_for(Demand::READ, 30_000).await];
    bench.change(|state, _| state.of_queue().lock_key = None).await;
    let lock = b.member(30_000);
    assert_eq!(b.acquire(&lock, Mode::Try, 1).await.outcome, Acquired::Granted);
    assert_eq!(a.renew(&reads[0]).await.outcome, [Renewed::NotHeld]);
    bench.assert_held(&[&lock]).await;
    assert_eq!(bench.state().await.0.of_queue().holds, SortedSet::default());
}

async fn with_the_holds_lost_nothing_is_in_use(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let read = a.hold_for(Demand::READ, 30_000).await;
    let lock = b.queue(30_000).await;
    bench.change(|state, _| state.of_queue().holds.clear()).await;
    assert_eq!(a.inspect().await.token, None);
    b.touch(&[&lock]).await;
    bench.assert_held(&[&lock]).await;
    assert_eq!(a.renew(&read).await.outcome, [Renewed::NotHeld]);
}

async fn a_waiter_whose_patience_was_lost_is_dropped_at_the_head_unless_it_is_touched_before(
    mut bench: Bench,
) {
    for is_touched in [false, true] {
        bench.restart().await;
        let (a, b, c) = (bench.node().await, bench.node().await, bench.node().await);
        let holder = a.hold(30_000).await;
        let read = b.queue_for(Demand::READ, 30_000).await;
        let lock = c.queue(30_000).await;
        bench.change(|state, _| state.of_queue().patience.clear()).await;
        if is_touched {
            b.touch(&[&read]).await;
        }
        c.touch(&[&lock]).await;
        a.release(&holder).await;
        bench.assert_held(&[if is_touched { &read } else { &lock }]).await;
    }
}

async fn an_expiry_brought_forward_ends_the_lease_of_a_lock_with_waiters_a_minute_before_the_key(
    mut bench: Bench,
) {
    for has_waiter in [false, true] {
        bench.restart().await;
        let (a, b) = (bench.node().await, bench.node().await);
        let holder = a.hold(30_000).await;
        let waiter = b.member(30_000);
        if has_waiter {
            b.wait(&waiter).await;
        }
        bench
            .change(|state, now_ms| {
                let lock_key = state.of_queue().lock_key.as_mut().expect("it is held");
                lock_key.ends_ms = Some(now_ms + 30_000);
            })
            .await;
        if has_waiter {
            b.touch(&[&waiter]).await;
            bench.assert_held(&[&waiter]).await;
        }
        let renewed = if has_waiter { Renewed::NotHeld } else { Renewed::Held };
        assert_eq!(a.renew(&holder).await.outcome, [renewed]);
    }
}

async fn a_queue_found_empty_has_its_sorted_set_deleted(mut bench: Bench) {
    let a = bench.node().await;
    let holder = a.hold(30_000).await;
    let stray = a.member(30_000);
    bench
        .change(|state, now_ms| state.of_redisson().deadlines.set(&stray.into(), now_ms + 9_000))
        .await;
    bench.end_lease().await; // otherwise a Redis script would take a fast path
    a.release(&holder).await;
    assert!(bench.state().await.0.of_redisson().deadlines.is_empty());
}

async fn a_sorted_set_without_a_list_is_deleted_before_use(mut bench: Bench) {
    for is_touch in [false, true] {
        bench.restart().await;
        let a = bench.node().await;
        a.hold(30_000).await;
        let member = a.member(30_000);
        bench
            .change(|state, now_ms| {
                state.of_redisson().deadlines.set(&(&member).into(), now_ms + 9_000);
            })
            .await;
        if is_touch {
            assert_eq!(a.touch(&[&member]).await.outcome.members, [Presence::Gone]);
            assert!(bench.state().await.0.of_redisson().deadlines.is_empty());
        } else {
            let outcome = a.acquire(&member, Mode::Wait, 1).await.outcome;
            assert_eq!(outcome, Acquired::Queued { position: 0 });
            assert!(bench.patience(&member).await > Some(14_000));
            assert_eq!(bench.queue().await, [member]);
        }
    }
}

async fn a_lost_token_is_replaced_when_its_holder_asks_and_the_lease_stays(mut bench: Bench) {
    let (a, b) = (bench.node().await, bench.node().await);
    let holder = a.hold(30_000).await;
    bench.pass(10_000).await;
    bench.change(|state, _| state.of_redisson().token = None).await;
    assert_eq!(b.wait(&b.member(30_000)).await.grants, []);
    assert_eq!(bench.state().await.0.of_redisson().token, None);
    let reply = a.wait(&holder).await;
    assert!((19_000..=20_000).contains(&left_ms(&reply)), "{reply:?}");
    assert_eq!(Some(grant(&reply).token.get()), reply.now_us);
}
