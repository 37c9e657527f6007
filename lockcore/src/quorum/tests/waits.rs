//! Waits: for a busy lock, for silent and for unreachable primaries, and their limits.

use proto::LockErrorKind;
use tokio::time::{Instant, sleep, timeout};

use super::network::{MAX_LEASE, Network};
use super::{evict, held_at, leak, locked, ms, soon};
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;

#[tokio::test(start_paused = true)]
async fn a_primary_that_falls_silent_after_its_grant_does_not_make_a_free_lock_busy() {
    let mut network = Network::new(3, 36);
    let process = network.start();
    // Responds after the hop, so the third primary is asked meanwhile.
    network.slow(process, 1, ms(100));
    let trying = tokio::spawn(network.locks(process).try_lock("k"));
    sleep(ms(50)).await;
    assert_eq!(held_at(&network).await, [0]);
    network.cut(process, 0, false);
    let error = soon(trying).await.expect("no panic").expect_err("the first is not confirmed");
    // No outage: a majority responds.
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_steps_aside_has_the_position_that_it_keeps() {
    let mut network = Network::new(3, 37);
    let process = network.start();
    leak(&network, 1).await;
    leak(&network, 2).await;
    let mut waiting = Box::pin(network.locks(process).lock("k"));
    assert!(timeout(ms(10_000), waiting.as_mut()).await.is_err());
    assert!(held_at(&network).await.len() == 2, "it has stepped aside");
    assert_eq!(waiting.position(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn reads_that_wait_together_for_a_stale_hold_leave_a_later_request_its_hop() {
    let mut network = Network::new(3, 27);
    let process = network.start();
    leak(&network, 1).await;
    let locks = network.locks(process);
    let reads: Vec<_> = (0..3).map(|_| tokio::spawn(locks.read("k"))).collect();
    let mut held = Vec::new();
    for read in reads {
        held.push(soon(read).await.expect("no panic").expect("two primaries are free"));
    }
    let later = locks.key("k").wait(ms(500)).read().await;
    drop(later.expect("granted after a hop at the second primary"));
    assert!(locks.try_read("k").await.expect("an answer").is_some());
    drop(held);
    sleep(ms(50)).await;
    assert!(locks.try_lock("k").await.expect("an answer").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_although_a_held_primary_is_silent() {
    for is_freed in [false, true] {
        let mut network = Network::new(3, 28);
        let process = network.start();
        leak(&network, 1).await;
        leak(&network, 2).await;
        let began = Instant::now();
        let waiting = tokio::spawn(network.locks(process).lock_timeout("k", ms(150)));
        sleep(ms(50)).await;
        network.cut(process, 0, false);
        sleep(ms(70)).await;
        if is_freed {
            evict(&network, 2).await;
        }
        let late = soon(waiting).await.expect("no panic").expect_err("the first is not confirmed");
        assert_eq!(late.kind(), LockErrorKind::Timeout);
        assert!(began.elapsed() < ms(160), "freed: {is_freed}, after {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hop_ends_in_time_although_a_held_primary_is_silent() {
    let mut network = Network::new(3, 34);
    let process = network.start();
    leak(&network, 1).await;
    leak(&network, 2).await;
    let began = Instant::now();
    let trying = tokio::spawn(network.locks(process).try_lock("k"));
    sleep(ms(50)).await;
    network.cut(process, 0, false);
    assert!(soon(trying).await.expect("no panic").expect("an answer").is_none());
    assert!(began.elapsed() < ms(250), "after {:?}, and not two hops", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_try_takes_one_request_timeout_although_two_primaries_are_silent() {
    // The first of them is silent, or fails after a part of the request timeout.
    for is_noticed in [false, true] {
        let mut network = Network::new(5, 29);
        let process = network.start();
        network.cut(process, 0, is_noticed);
        network.cut(process, 1, false);
        let began = Instant::now();
        let error = network.locks(process).try_lock("k").await.expect_err("no majority answers");
        // The other three were not asked.
        assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
        assert!(began.elapsed() < ms(2_010), "noticed: {is_noticed}, {:?}", began.elapsed());
    }
}

// Otherwise the handler of a service that goes on in an outage would run beside the holder.
#[tokio::test(start_paused = true)]
async fn a_try_at_a_primary_that_has_just_fallen_silent_is_no_outage_while_a_majority_is_there() {
    let mut network = Network::new(3, 49);
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    sleep(ms(50)).await;
    for process in [one, other] {
        network.cut(process, 0, false);
    }
    let error = network.locks(other).try_lock("k").await.expect_err("the first is silent");
    assert_eq!(error.kind(), LockErrorKind::Timeout, "{error}");
    assert!(!error.is_outage() && !guard.is_lost());
    // Without a majority it is an outage.
    network.cut(other, 1, true);
    network.cut(other, 2, false);
    let error = network.locks(other).try_lock("k").await.expect_err("too few respond");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_try_is_busy_only_if_a_majority_says_so() {
    for (first, is_noticed) in [(0, true), (1, true), (1, false)] {
        let mut network = Network::new(3, 31);
        let process = network.start();
        network.cut(process, first, is_noticed);
        network.cut(process, first + 1, is_noticed);
        let error = network.locks(process).try_lock("k").await.expect_err("no majority responds");
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{first}, {is_noticed}: {error}");
    }
    let mut network = Network::new(3, 32);
    let process = network.start();
    leak(&network, 1).await;
    leak(&network, 2).await;
    assert!(network.locks(process).try_lock("k").await.expect("a majority responds").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_its_owner_could_not_release_is_passed_by() {
    let mut network = Network::new(3, 8);
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    sleep(ms(50)).await;
    network.cut(one, 1, true);
    drop(guard);
    sleep(ms(50)).await;
    let began = Instant::now();
    let next = locked(&network, other).await;
    assert!(began.elapsed() < ms(200), "{:?}", began.elapsed());
    next.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_try_that_holds_the_first_primary_alone_is_none() {
    let mut network = Network::new(3, 17);
    let (one, other) = (network.start(), network.start());
    for primary in [1, 2] {
        leak(&network, primary).await;
    }
    assert!(network.locks(one).try_lock("k").await.expect("an answer").is_none());
    sleep(ms(50)).await;
    assert_eq!(held_at(&network).await, [1, 2], "it is given back");
    let error = network.locks(other).lock_timeout("k", ms(700)).await.expect_err("taken");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_reaches_too_few_primaries_keeps_nobody_waiting() {
    let mut network = Network::new(3, 9);
    let (one, other) = (network.start(), network.start());
    let first = locked(&network, other).await;
    let parked = tokio::spawn(network.locks(one).key("k").wait(ms(30_000)).lock());
    sleep(ms(50)).await;
    network.cut(one, 1, true);
    network.cut(one, 2, true);
    drop(first);
    // The process is granted 0, and releases it on finding that it has no majority.
    sleep(ms(1_500)).await;
    let began = Instant::now();
    drop(locked(&network, other).await);
    assert!(began.elapsed() < ms(200), "{:?}", began.elapsed());
    network.mend(one, 1);
    drop(soon(parked).await.expect("no panic").expect("granted once it reaches a majority"));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_at_a_primary_that_is_lost_is_served_by_the_next_one() {
    let mut network = Network::new(3, 10);
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    let waiting = tokio::spawn(network.locks(other).key("k").lease(MAX_LEASE).lock());
    sleep(ms(100)).await;
    for process in [one, other] {
        network.cut(process, 0, true);
    }
    let began = Instant::now();
    sleep(ms(100)).await;
    guard.release().await.expect("held by the others");
    drop(soon(waiting).await.expect("no panic").expect("granted"));
    assert!(began.elapsed() < ms(1_500), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_had_and_the_error_says_how_many_are_reached() {
    let mut network = Network::new(3, 12);
    let process = network.start();
    network.cut(process, 0, true);
    network.cut(process, 2, true);
    sleep(ms(1_500)).await;
    let locks = network.locks(process);
    let error = locks.try_lock("k").await.expect_err("one of three");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("1 of 3 primaries are usable"), "{error}");
    let began = Instant::now();
    let error = locks.lock("k").await.expect_err("one of three");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(began.elapsed() <= ms(30_000), "bounded by the lease: {:?}", began.elapsed());
    assert!(!locks.status().is_connected());
}

#[tokio::test(start_paused = true)]
async fn max_waiting_counts_an_acquisition_once_at_whichever_primaries_it_waits() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    for store in &stores[1..] {
        let stranger = Locks::builder().on_memory(store).expect("options");
        stranger.lock("k").await.expect("free").leak();
    }
    let locks = Locks::builder().max_waiting(1).on_memory_quorum(&stores).expect("3 stores");
    let waiting = tokio::spawn(locks.lock("k"));
    // It holds the first primary, and waits at the others.
    sleep(ms(250)).await;
    let error = soon(locks.lock("free")).await.expect_err("one waits");
    assert_eq!(error.kind(), LockErrorKind::QueueFull, "{error}");
    assert!(error.to_string().contains("max_waiting: 1 attempts"), "{error}");
    let tried = soon(locks.try_lock("free")).await.expect("a try does not wait");
    drop(tried.expect("free"));
    waiting.abort();
    assert!(waiting.await.expect_err("it still waits").is_cancelled());
    drop(soon(locks.lock("free")).await.expect("nobody waits"));
}

#[tokio::test(start_paused = true)]
async fn beyond_max_waiting_a_long_outage_is_still_told() {
    let mut network = Network::new(3, 34).max_waiting(1);
    let process = network.start();
    network.cut(process, 1, true);
    network.cut(process, 2, true);
    sleep(ms(2_000)).await;
    let waiting = tokio::spawn(network.locks(process).lock("k"));
    sleep(ms(50)).await;
    let request = network.locks(process).key("k").store_wait(ms(5_000));
    let error = request.clone().lock().await.expect_err("one waits");
    assert_eq!(error.kind(), LockErrorKind::QueueFull, "{error}");
    sleep(ms(5_000)).await;
    let error = request.lock().await.expect_err("too few primaries");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    assert!(!waiting.is_finished());
}
