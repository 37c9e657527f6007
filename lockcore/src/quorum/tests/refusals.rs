//! Primaries that refuse requests, and requests that none can serve.

use std::time::Duration;

use proto::LockErrorKind;
use tokio::time::{Instant, sleep, timeout};

use super::network::{MAX_LEASE, Network};
use super::{held_at, leak, ms, soon};
use crate::api::locks::Locks;

/// Returns the error of a wait where the primaries in `full` refuse, and a stranger holds the other
/// primaries but the first.
async fn refused_at(full: &[usize]) -> LockErrorKind {
    let mut network = Network::new(3, 23);
    let process = network.start();
    full.iter().for_each(|primary| network.fill(process, *primary));
    for primary in [1, 2].into_iter().filter(|primary| !full.contains(primary)) {
        leak(&network, primary).await;
    }
    // Shorter than the time after which the request waits at a single primary.
    let refused = network.locks(process).lock_timeout("k", ms(150)).await;
    refused.expect_err("no majority has it free").kind()
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_where_a_majority_has_answered_is_a_timeout() {
    assert_eq!(refused_at(&[2]).await, LockErrorKind::Timeout);
    assert_eq!(refused_at(&[1]).await, LockErrorKind::Timeout);
    // Without responses from a majority, the state of the lock is unknown.
    assert_eq!(refused_at(&[1, 2]).await, LockErrorKind::OutOfMemory);
}

/// Starts a process whose acquires the second and the third of three primaries refuse.
fn refused_by_a_majority(kind: LockErrorKind) -> (Network, usize) {
    let mut network = Network::new(3, 35);
    let process = network.start();
    (1..3).for_each(|primary| network.refuse(process, primary, Some(kind)));
    (network, process)
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_a_majority_ends_a_wait_as_a_refusal_by_one_server_does() {
    for (kind, store_wait) in [(LockErrorKind::OutOfMemory, 0), (LockErrorKind::ReadOnly, 2_000)] {
        let (network, process) = refused_by_a_majority(kind);
        let began = Instant::now();
        let request = network.locks(process).key("k").lease(MAX_LEASE).store_wait(ms(2_000));
        let error = soon(request.lock()).await.expect_err("a majority refuses");
        assert_eq!(error.kind(), kind, "{error}");
        let waited = began.elapsed();
        assert!((ms(store_wait)..ms(store_wait + 500)).contains(&waited), "{kind:?}: {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_a_majority_refuses_stops_nobody_and_is_served_once_they_grant() {
    let (network, process) = refused_by_a_majority(LockErrorKind::ReadOnly);
    let waiting = tokio::spawn(network.locks(process).key("k").lease(MAX_LEASE).lock());
    sleep(ms(50)).await;
    assert_eq!(held_at(&network).await, [0]);
    let stranger = Locks::builder().on_memory(&network.primaries[0]).expect("options");
    drop(stranger.lock_timeout("k", ms(500)).await.expect("the first primary is released"));
    network.refuse(process, 1, None);
    let served = timeout(ms(3_000), waiting).await.expect("in time").expect("no panic");
    served.expect("a majority grants").release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_by_all_primaries_ends_a_wait_once_a_majority_has_refused() {
    let (network, process) = refused_by_a_majority(LockErrorKind::ReadOnly);
    network.refuse(process, 0, Some(LockErrorKind::ReadOnly));
    let began = Instant::now();
    let request = network.locks(process).key("k").lease(MAX_LEASE).store_wait(ms(1_000));
    let error = soon(request.lock()).await.expect_err("all refuse");
    assert_eq!(error.kind(), LockErrorKind::ReadOnly, "{error}");
    // The first two primaries refuse one after the other.
    let waited = began.elapsed();
    assert!((ms(2_000)..ms(2_500)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_a_queue_between_two_refusals_counts_for_neither() {
    is_served_after_a_second_refusal_of(ms(1_000)).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_queued_outwaits_a_refusal_that_is_longer_than_the_store_wait() {
    is_served_after_a_second_refusal_of(ms(4_000)).await;
}

async fn is_served_after_a_second_refusal_of(refusal: Duration) {
    let (network, process) = refused_by_a_majority(LockErrorKind::ReadOnly);
    let request = network.locks(process).key("k").lease(MAX_LEASE).store_wait(ms(2_000));
    let waiting = tokio::spawn(request.lock());
    sleep(ms(300)).await;
    // In the pause after the first round.
    let stranger = Locks::builder().on_memory(&network.primaries[0]).expect("options");
    let busy = soon(stranger.lock("k")).await.expect("the first primary is released");
    (1..3).for_each(|primary| network.refuse(process, primary, None));
    sleep(ms(60_000)).await;
    (1..3).for_each(|primary| network.refuse(process, primary, Some(LockErrorKind::ReadOnly)));
    busy.release().await.expect("held");
    sleep(refusal).await;
    (1..3).for_each(|primary| network.refuse(process, primary, None));
    let served = soon(waiting).await.expect("no panic");
    served.expect("it was queued before").release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_has_refused_is_asked_again_while_another_refuses() {
    let mut network = Network::new(3, 39);
    let process = network.start();
    network.fill(process, 0);
    network.refuse(process, 2, Some(LockErrorKind::ReadOnly));
    let request = network.locks(process).key("k").lease(MAX_LEASE).store_wait(ms(5_000));
    let waiting = tokio::spawn(request.lock());
    sleep(ms(300)).await;
    network.refuse(process, 2, None);
    let served = timeout(ms(3_000), waiting).await.expect("in time").expect("no panic");
    served.expect("two grant").release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn links_that_break_for_less_than_a_second_cost_no_queue_position() {
    let mut network = Network::new(3, 38);
    let process = network.start();
    let waiting = tokio::spawn(network.locks(process).key("k").lease(MAX_LEASE).lock());
    (1..3).for_each(|primary| network.cut(process, primary, true));
    for _ in 0..8 {
        sleep(ms(100)).await;
        assert_eq!(held_at(&network).await, [0]);
    }
    (1..3).for_each(|primary| network.mend(process, primary));
    let served = timeout(ms(1_000), waiting).await.expect("in time").expect("no panic");
    served.expect("all are reachable").release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_lead_that_refuses_is_asked_once_and_others_are_waited_for() {
    let mut network = Network::new(3, 24);
    let process = network.start();
    let locks = network.locks(process);
    locks.backend.primaries().set_lead(&"k".into(), 1);
    network.fill(process, 1);
    let stranger = Locks::builder().on_memory(&network.primaries[0]).expect("options");
    let busy = stranger.lock("k").await.expect("free");
    let waiting = tokio::spawn(locks.key("k").lease(MAX_LEASE).lock());
    sleep(ms(1_000)).await;
    assert_eq!(network.refused(process, 1), 1);
    busy.release().await.expect("held");
    let _guard = waiting.await.expect("no panic").expect("a majority is free");
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_at_the_lead_does_not_end_a_wait_that_has_a_position_elsewhere() {
    let mut network = Network::new(3, 26);
    let process = network.start();
    let locks = network.locks(process);
    let strangers =
        [0, 1].map(|at| Locks::builder().on_memory(&network.primaries[at]).expect("options"));
    let busy = strangers[0].lock("k").await.expect("free");
    let full = strangers[1].lock("k").await.expect("free");
    for _ in 0..2 {
        let waiting = strangers[1].lock("k");
        tokio::spawn(async move { drop(waiting.await) });
    }
    let waiting = tokio::spawn(locks.key("k").lease(MAX_LEASE).queue_limit(2).lock());
    sleep(ms(100)).await;
    locks.backend.primaries().set_lead(&"k".into(), 1);
    sleep(ms(100)).await;
    assert!(!waiting.is_finished(), "its position at the first primary is valid");
    busy.release().await.expect("held");
    full.release().await.expect("held");
    let _guard = soon(waiting).await.expect("no panic").expect("a majority is free");
}

#[tokio::test(start_paused = true)]
async fn a_demand_that_no_majority_can_grant_is_refused_before_anything_is_sent() {
    let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let error = locks.permit("k", 2).await.expect_err("permits");
    assert_eq!(error.kind(), LockErrorKind::Unsupported);
    let mut network = Network::new(3, 15);
    let process = network.start();
    let request = network.locks(process).key("k").lease(MAX_LEASE + ms(1));
    let long = request.lock().await.expect_err("too long");
    assert_eq!(long.kind(), LockErrorKind::InvalidOption);
    assert!(long.to_string().contains("max_lease"), "{long}");
    let guard = locks.lock("k").await.expect("free");
    let error = guard.downgrade().await.expect_err("not in one step");
    assert_eq!(error.error().kind(), LockErrorKind::Unsupported);
}
