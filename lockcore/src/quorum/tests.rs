//! Tests of locks on a quorum of in-memory stores.

mod dice;
mod network;
mod walk;
mod zones;

use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Context;
use std::time::Duration;

use futures_util::FutureExt as _;
use proto::LockErrorKind;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use self::network::{MAX_LEASE, Network};
use super::{Connect, Primaries};
use crate::api::guard::LockGuard;
use crate::api::locks::Locks;
use crate::foreign::testing::{on_event, panics};
use crate::node::Observer;
use crate::store::memory::MemoryStore;
use crate::types::error::LockError;
use crate::types::hold_state::HoldState;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Awaits a future that must complete by itself, within two minutes of virtual time.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(ms(120_000), future).await.expect("it ends")
}

/// Returns the indices of the primaries at which the name is held.
async fn held_at(network: &Network) -> Vec<usize> {
    let mut held = Vec::new();
    for (at, store) in network.primaries.iter().enumerate() {
        let operator = Locks::builder().on_memory(store).expect("options");
        if !operator.inspect("k").await.expect("an inspection").holders.is_empty() {
            held.push(at);
        }
    }
    held
}

async fn locked(network: &Network, process: usize) -> LockGuard {
    let request = network.locks(process).key("k").lease(MAX_LEASE).wait(ms(20_000));
    request.lock().await.expect("granted")
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_had_by_one_process_at_a_time_with_rising_tokens() {
    let mut network = Network::new(3, 1);
    let processes = [network.start(), network.start()];
    let mut last = 0;
    for round in 0..10 {
        let guard = locked(&network, processes[round % 2]).await;
        assert!(guard.fencing_token().get() > last);
        last = guard.fencing_token().get();
        let other = network.locks(processes[(round + 1) % 2]);
        assert!(other.try_lock("k").await.expect("an answer").is_none());
        assert_eq!(guard.state(), HoldState::Held);
        guard.release().await.expect("held");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_healed_to_all_primaries_and_released_at_all() {
    let mut network = Network::new(3, 2);
    let process = network.start();
    let guard = locked(&network, process).await;
    sleep(ms(50)).await;
    assert_eq!(held_at(&network).await, [0, 1, 2]);
    guard.release().await.expect("held");
    assert!(held_at(&network).await.is_empty());
}

/// Locks the name at one primary for a stranger who never releases it, like a dead process.
async fn leak(network: &Network, primary: usize) {
    let stranger = Locks::builder().on_memory(&network.primaries[primary]).expect("options");
    stranger.lock("k").await.expect("free").leak();
}

/// Releases the lock by force at one primary, as if the server had evicted the key.
async fn evict(network: &Network, primary: usize) {
    let operator = Locks::builder().on_memory(&network.primaries[primary]).expect("options");
    operator.force_release("k").await.expect("an answer");
}

#[tokio::test(start_paused = true)]
async fn a_force_release_that_reaches_one_primary_after_another_is_not_undone() {
    // The pauses are shorter than a renewal period: the longest the primaries may be apart.
    for (age, pauses) in [(50, [300, 1_250]), (1_000, [500, 500]), (20_000, [500, 500])] {
        let mut network = Network::new(3, 24);
        let process = network.start();
        let guard = locked(&network, process).await;
        sleep(ms(age)).await;
        evict(&network, 0).await;
        for (primary, pause) in [1, 2].into_iter().zip(pauses) {
            sleep(ms(pause)).await;
            evict(&network, primary).await;
        }
        sleep(ms(1)).await;
        assert!(guard.is_lost(), "after {age} ms");
        sleep(MAX_LEASE).await;
        assert!(held_at(&network).await.is_empty(), "after {age} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_lost_the_hold_is_acquired_again_within_two_renewal_periods() {
    let mut network = Network::new(3, 25);
    let process = network.start();
    let guard = locked(&network, process).await;
    sleep(ms(20_000)).await;
    evict(&network, 0).await;
    assert_eq!(held_at(&network).await, [1, 2]);
    sleep(MAX_LEASE * 2 / 3 + ms(100)).await;
    assert_eq!(held_at(&network).await, [0, 1, 2]);
    guard.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_had_at_all_primaries_and_ends_when_it_did_before() {
    let mut network = Network::new(3, 21);
    let (one, other) = (network.start(), network.start());
    let request = network.locks(one).key("k").fixed_lease(MAX_LEASE);
    let guard = request.lock().await.expect("free");
    let deadline = guard.deadline();
    sleep(ms(50)).await;
    assert_eq!(held_at(&network).await, [0, 1, 2]);
    assert!(guard.deadline() <= deadline, "nothing is renewed");
    evict(&network, 0).await;
    let busy = network.locks(other).lock_timeout("k", ms(2_000)).await.expect_err("held");
    assert_eq!(busy.kind(), LockErrorKind::Timeout);
    assert!(!guard.is_lost());
    soon(guard.lost()).await;
    assert!(Instant::now() <= deadline + ms(1));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_waits_for_a_busy_primary_and_leaves_its_queue_with_the_guard() {
    let mut network = Network::new(3, 22);
    let one = network.start();
    let stranger = Locks::builder().on_memory(&network.primaries[2]).expect("options");
    let waiting = async |network: &Network| {
        let seen = Locks::builder().on_memory(&network.primaries[2]).expect("options");
        seen.inspect("k").await.expect("an inspection").waiters.len()
    };
    for is_given_back in [true, false] {
        let busy = stranger.lock("k").await.expect("free");
        let request = network.locks(one).key("k").fixed_lease(MAX_LEASE);
        let guard = request.lock().await.expect("a majority is free");
        sleep(ms(50)).await;
        assert_eq!(waiting(&network).await, 1);
        if is_given_back {
            busy.release().await.expect("held");
            sleep(ms(50)).await;
            assert_eq!(held_at(&network).await, [0, 1, 2]);
            guard.release().await.expect("held");
            assert!(held_at(&network).await.is_empty());
        } else {
            drop(guard);
            sleep(ms(50)).await;
            assert_eq!(waiting(&network).await, 0);
            busy.release().await.expect("held");
        }
    }
}

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
    sleep(ms(1_000)).await;
    (1..3).for_each(|primary| network.refuse(process, primary, None));
    let served = soon(waiting).await.expect("no panic");
    served.expect("the second refusal was short").release().await.expect("held");
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
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(began.elapsed() < ms(2_010), "noticed: {is_noticed}, {:?}", began.elapsed());
    }
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
async fn two_grants_within_one_wait_confirm_the_hold_with_the_greatest_token() {
    let mut network = Network::new(5, 30);
    // So the first primary issues the greatest token.
    network.primaries[0].set_clock_forward(ms(4_000));
    let process = network.start();
    for primary in 1..5 {
        leak(&network, primary).await;
    }
    let waiting = tokio::spawn(network.locks(process).key("k").lease(MAX_LEASE).lock());
    // It holds the first primary, and is queued at all others.
    sleep(ms(350)).await;
    network.primaries[0].set_clock_forward(2 * MAX_LEASE);
    assert!(!held_at(&network).await.contains(&0), "the jump has ended the hold");
    evict(&network, 1).await;
    evict(&network, 2).await;
    let _guard = soon(waiting).await.expect("no panic").expect("a majority is free");
    assert!(held_at(&network).await.contains(&0), "the guard counts a hold that has ended");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_confirmed_more_than_a_hop_ago_is_confirmed_again() {
    let mut network = Network::new(3, 40);
    // So the first primary issues the greatest token.
    network.primaries[0].set_clock_forward(ms(4_000));
    let process = network.start();
    for primary in 1..3 {
        leak(&network, primary).await;
    }
    let waiting = tokio::spawn(network.locks(process).key("k").lease(MAX_LEASE).lock());
    // It holds the first primary, and waits for two hops at the second.
    sleep(ms(350)).await;
    network.primaries[0].set_clock_forward(2 * MAX_LEASE);
    evict(&network, 1).await;
    let _guard = soon(waiting).await.expect("no panic").expect("two primaries are free");
    assert!(held_at(&network).await.contains(&0), "the guard counts a hold that has ended");
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_is_lost_costs_a_holder_nothing() {
    for primary in 0..3 {
        let mut network = Network::new(3, 3);
        let process = network.start();
        let guard = locked(&network, process).await;
        sleep(ms(50)).await;
        network.cut(process, primary, false);
        sleep(ms(3_500)).await;
        // The other two have been renewed since.
        assert!(guard.deadline() > Instant::now() + ms(2_000), "primary {primary}");
        sleep(4 * MAX_LEASE).await;
        assert!(!guard.is_lost(), "primary {primary}");
        network.mend(process, primary);
        sleep(MAX_LEASE).await;
        assert_eq!(held_at(&network).await, [0, 1, 2], "it is acquired again");
        guard.release().await.expect("held");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_of_too_few_primaries_is_lost_before_another_one_begins() {
    let mut network = Network::new(3, 4);
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    sleep(ms(50)).await;
    network.cut(one, 0, false);
    network.cut(one, 2, false);
    let waiting = tokio::spawn(network.locks(other).key("k").lease(MAX_LEASE).lock());
    let mut deadline = guard.deadline();
    while !guard.is_lost() {
        assert!(!waiting.is_finished(), "granted while the first guard is valid");
        deadline = guard.deadline();
        sleep(ms(10)).await;
    }
    // The loss is reported a hundredth of the lease before the deadline, and not much sooner.
    let left = deadline.saturating_duration_since(Instant::now());
    assert!(deadline > Instant::now() && left < ms(200), "{left:?}");
    let next = soon(waiting).await.expect("no panic").expect("granted");
    assert!(guard.is_lost() && !next.is_lost());
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    next.release().await.expect("held");
}

/// Starts two processes. One holds primaries 0 and 1, and the other reaches only 1 and 2.
async fn two_majorities() -> (Network, usize, LockGuard, usize) {
    let mut network = Network::new(3, 5);
    let (one, other) = (network.start(), network.start());
    network.cut(one, 2, true);
    network.cut(other, 0, true);
    sleep(ms(2_000)).await;
    let guard = locked(&network, one).await;
    (network, one, guard, other)
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_was_emptied_grants_nothing_while_it_may_have_forgotten_a_hold() {
    for fault in 0..3 {
        let (mut network, one, guard, other) = two_majorities().await;
        let next = tokio::spawn(network.locks(other).key("k").lease(MAX_LEASE).lock());
        match fault {
            0 => network.restart(1, false),
            1 => network.restart(1, true),
            _ => network.primaries[1].flush(),
        }
        let emptied = Instant::now();
        // The hold at 1 does not count any more, or is lost: 0 alone is no majority.
        soon(guard.lost()).await;
        drop(guard);
        network.cut(one, 1, true);
        let next = soon(next).await.expect("no panic").expect("granted");
        assert!(emptied.elapsed() >= MAX_LEASE, "fault {fault}: after {:?}", emptied.elapsed());
        next.release().await.expect("held");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_above_those_of_primaries_whose_clocks_are_ahead() {
    let mut network = Network::new(3, 6);
    network.primaries[0].set_clock_forward(ms(4_000));
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    let before = guard.fencing_token();
    guard.release().await.expect("held");
    // The other process has seen none of these tokens.
    network.cut(other, 0, true);
    sleep(ms(2_000)).await;
    let guard = locked(&network, other).await;
    assert!(guard.fencing_token() > before);
}

/// Starts a process that reaches two primaries. The first was emptied while its clock was an hour
/// ahead, and was corrected later: by its own clock it does not count for an hour.
async fn with_a_clock_set_back(seed: u64) -> (Network, usize) {
    let mut network = Network::new(3, seed);
    network.primaries[0].set_clock_forward(ms(3_600_000));
    let process = network.start();
    network.restart(0, false);
    sleep(ms(500)).await;
    network.primaries[0].set_clock_back(ms(3_600_000));
    network.cut(process, 1, true);
    (network, process)
}

#[tokio::test(start_paused = true)]
async fn a_primary_whose_clock_is_set_back_counts_once_it_was_watched_for_the_longest_lease() {
    let (network, process) = with_a_clock_set_back(20).await;
    let began = Instant::now();
    let request = network.locks(process).key("k").lease(MAX_LEASE);
    let guard = soon(request.lock()).await.expect("granted");
    assert!(began.elapsed() >= MAX_LEASE, "{:?}", began.elapsed());
    assert!(began.elapsed() < 2 * MAX_LEASE, "{:?}", began.elapsed());
    guard.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_does_not_restart_the_observation_of_a_primary() {
    let (network, process) = with_a_clock_set_back(37).await;
    let began = Instant::now();
    let request = network.locks(process).key("k").lease(MAX_LEASE);
    let waiting = tokio::spawn(request.lock());
    for _ in 0..3 {
        sleep(ms(1_800)).await;
        network.cut(process, 0, true);
        network.mend(process, 0);
    }
    drop(soon(waiting).await.expect("no panic").expect("granted"));
    assert!(began.elapsed() >= MAX_LEASE, "{:?}", began.elapsed());
    assert!(began.elapsed() < 2 * MAX_LEASE, "{:?}", began.elapsed());
}

/// Locks another name at one primary, from a process that uses no other primary.
async fn stranger(network: &Network, primary: usize) {
    let stranger = Locks::builder().on_memory(&network.primaries[primary]).expect("options");
    drop(stranger.lock("another").await.expect("free"));
}

#[tokio::test(start_paused = true)]
async fn a_token_is_above_those_that_a_primary_has_forgotten() {
    let mut network = Network::new(3, 7);
    // 2 continues from the clock of 0, which is ahead, and forgets it.
    network.primaries[0].set_clock_forward(ms(4_000));
    let (one, other) = (network.start(), network.start());
    network.cut(one, 1, true);
    network.cut(other, 0, true);
    sleep(ms(2_000)).await;
    let guard = locked(&network, one).await;
    let before = guard.fencing_token();
    drop(guard);
    // Both counters continue from the current clocks. The clock of 1 is behind: a token of 1 above
    // the counter of 2 would lead to the clock of 2.
    stranger(&network, 1).await;
    network.restart(2, false);
    // Until this is known, the other process would acquire both.
    sleep(ms(1_000)).await;
    stranger(&network, 2).await;
    let guard = locked(&network, other).await;
    assert!(guard.fencing_token() > before, "{} after {before}", guard.fencing_token());
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
async fn a_guard_with_a_spare_has_one_primary_more_than_a_majority() {
    let mut network = Network::new(3, 11).spare(1);
    let process = network.start();
    let guard = locked(&network, process).await;
    assert_eq!(held_at(&network).await, [0, 1, 2]);
    guard.release().await.expect("held");
    network.cut(process, 2, true);
    sleep(ms(1_500)).await;
    let error =
        network.locks(process).lock_timeout("k", ms(3_000)).await.expect_err("two of three");
    assert!(error.is_retryable(), "{error}");
}

/// Whether a second guard is valid beside the first after the clocks of a minority have jumped, two
/// of five. The first process does not reach one of the others.
async fn is_doubled_by_clocks(spare: usize) -> bool {
    let mut network = Network::new(5, 42).spare(spare);
    let (one, other) = (network.start(), network.start());
    network.cut(one, 2, true);
    sleep(ms(1_500)).await;
    let guard = locked(&network, one).await;
    sleep(ms(50)).await;
    assert_eq!(held_at(&network).await, [0, 1, 3, 4]);
    for primary in [0, 1] {
        network.primaries[primary].set_clock_forward(2 * MAX_LEASE);
    }
    // Within a renewal period of the first guard.
    let second = network.locks(other).lock_timeout("k", ms(1_000)).await;
    assert!(!guard.is_lost());
    second.is_ok_and(|second| !second.is_lost())
}

#[tokio::test(start_paused = true)]
async fn clocks_of_a_minority_that_jump_make_a_second_guard_valid_only_without_a_spare() {
    assert!(is_doubled_by_clocks(0).await);
    assert!(!is_doubled_by_clocks(1).await);
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

#[tokio::test]
async fn the_debug_text_of_a_quorum_shows_no_name() {
    let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let guard = locks.lock("secret").await.expect("free");
    assert!(locks.try_lock("secret").await.expect("an answer").is_none());
    locks.backend.primaries().set_lead(&locks.name("secret").expect("a name"), 1);
    let text = format!("{locks:?} {guard:?}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn reads_are_held_together_without_a_token_and_exclude_a_lock() {
    let locks = Locks::builder().in_memory_quorum(5).expect("5 stores");
    let (one, other) = (locks.read("k").await.expect("free"), locks.read("k").await.expect("free"));
    assert_eq!((one.fencing_token().get(), other.fencing_token().get()), (0, 0));
    assert!(locks.try_lock("k").await.expect("an answer").is_none());
    drop((one, other));
    let guard = locks.lock_timeout("k", ms(1_000)).await.expect("free");
    assert!(guard.fencing_token().get() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_longest_hold_ends_although_primaries_are_healed() {
    let mut network = Network::new(5, 13);
    let process = network.start();
    let request = network.locks(process).key("k").lease(MAX_LEASE).max_hold(ms(7_000));
    let began = Instant::now();
    let guard = request.lock().await.expect("free");
    soon(guard.lost()).await;
    assert!(began.elapsed() <= ms(7_100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_guard_is_never_after_the_end_of_its_longest_hold() {
    let mut network = Network::new(3, 41);
    let process = network.start();
    let request = network.locks(process).key("k").lease(MAX_LEASE).max_hold(ms(6_000));
    let guard = request.lock().await.expect("free");
    let end = Instant::now() + ms(6_000);
    // The primaries have been renewed for longer.
    sleep(ms(4_000)).await;
    assert!(!guard.is_lost() && guard.deadline() <= end);
    soon(guard.lost()).await;
    assert!(guard.deadline() <= end);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_lost_for_a_moment_is_not_healed() {
    let mut network = Network::new(5, 16);
    let process = network.start();
    let guard = locked(&network, process).await;
    // The other two acquires are in flight.
    sleep(ms(1)).await;
    let quorum = network.locks(process).backend.primaries();
    quorum.members[0].node().expect("connected").clock.suspend(2 * MAX_LEASE);
    sleep(ms(100)).await;
    assert!(guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_acquisitions_and_holds_and_leaves_nothing() {
    let mut network = Network::new(3, 14);
    let process = network.start();
    let guard = locked(&network, process).await;
    let waiting = tokio::spawn(network.locks(process).lock("k"));
    sleep(ms(50)).await;
    let shutdown = network.locks(process).shutdown(Duration::ZERO).await;
    assert_eq!((shutdown.waiters, shutdown.holds, shutdown.unreleased), (1, 1, 0));
    let error = soon(waiting).await.expect("no panic").expect_err("it was shut down");
    assert_eq!(error.kind(), LockErrorKind::Closed);
    assert!(guard.is_lost());
    assert!(held_at(&network).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_connects_to_primaries_that_were_away() {
    let mut network = Network::new(3, 38);
    let process = network.start();
    let present = Arc::clone(network.locks(process).backend.node());
    let (asked, reached) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    // The first primary is away, the second connects slowly.
    let away: Connect = Box::new({
        let asked = Arc::clone(&asked);
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            ready(Err(LockError::new(LockErrorKind::Unavailable))).boxed()
        }
    });
    let slow: Connect = Box::new({
        let (reached, node) = (Arc::clone(&reached), Arc::clone(&present));
        move || {
            let (reached, node) = (Arc::clone(&reached), Arc::clone(&node));
            async move { reached.acquire().await.map(|_| (node, None)).map_err(|_| unreachable!()) }
                .boxed()
        }
    });
    let terms = network.locks(process).backend.primaries().terms;
    let observer = Observer::of_quorum(present.id.clone(), &present.settings, &Handle::current());
    let list = vec![(None, away), (None, slow)];
    let primaries = Primaries::new(list, terms, observer, &Handle::current());
    sleep(ms(5_000)).await;
    assert!(asked.load(Ordering::Relaxed) > 2);
    primaries.shut_down(Duration::ZERO).await;
    asked.store(0, Ordering::Relaxed);
    reached.add_permits(1);
    sleep(ms(5_000)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 0, "the first is not asked any more");
    assert!(primaries.nodes().next().is_none(), "the second is not kept");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_counts_each_acquisition_once_and_no_hold_as_a_waiter() {
    // An acquisition in a round waits at two primaries.
    let mut network = Network::new(3, 31);
    let process = network.start();
    leak(&network, 1).await;
    leak(&network, 2).await;
    let waiting = tokio::spawn(network.locks(process).lock("k"));
    sleep(ms(150)).await;
    assert_eq!(network.locks(process).shutdown(Duration::ZERO).await.waiters, 1, "in a round");
    soon(waiting).await.expect("no panic").expect_err("it was shut down");
    // A fixed lease waits for its third primary.
    let mut network = Network::new(3, 32);
    let process = network.start();
    leak(&network, 2).await;
    let request = network.locks(process).key("k").fixed_lease(MAX_LEASE);
    let _guard = request.lock().await.expect("a majority is free");
    sleep(ms(50)).await;
    assert_eq!(network.locks(process).shutdown(Duration::ZERO).await.waiters, 0, "a hold");
    // An acquisition without a majority waits at no primary.
    let mut network = Network::new(3, 33);
    let process = network.start();
    network.cut(process, 1, true);
    network.cut(process, 2, true);
    sleep(ms(2_000)).await;
    let waiting = tokio::spawn(network.locks(process).lock("k"));
    sleep(ms(50)).await;
    assert_eq!(network.locks(process).shutdown(Duration::ZERO).await.waiters, 1, "no majority");
    let error = soon(waiting).await.expect("no panic").expect_err("it was shut down");
    assert_eq!(error.kind(), LockErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn an_inspection_tells_at_how_many_primaries_the_process_of_a_holder_holds() {
    let mut network = Network::new(3, 19);
    let (one, other) = (network.start(), network.start());
    let held = async |network: &Network| {
        let found = network.locks(other).inspect("k").await.expect("an inspection");
        assert_eq!((found.holding, found.token), (1, None));
        let [holder] = &found.holders[..] else { panic!("one process holds: {found:?}") };
        assert_eq!(holder.node.as_ref(), Some(network.locks(one).node()));
        let primaries = holder.primaries.expect("a quorum");
        (primaries.held, primaries.all)
    };
    let guard = locked(&network, one).await;
    sleep(ms(50)).await;
    assert_eq!(held(&network).await, (3, 3));
    // The process does not acquire it again.
    network.cut(one, 0, false);
    network.primaries[0].flush();
    assert_eq!(held(&network).await, (2, 3), "the lowest one does not know it");
    network.cut(other, 1, true);
    sleep(ms(1_500)).await;
    assert_eq!(held(&network).await, (1, 3), "one of them is not reached");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn waits_that_end_without_the_lock_are_among_the_hottest() {
    let mut network = Network::new(3, 26);
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    let longest =
        |network: &Network| Some(network.locks(other).hottest().first()?.waited[0].longest);
    network.locks(other).lock_timeout("k", ms(2_000)).await.expect_err("held");
    assert_eq!(longest(&network), Some(ms(2_000)), "timed out");
    let cancelled = timeout(ms(3_000), network.locks(other).lock("k")).await;
    assert!(cancelled.is_err());
    assert_eq!(longest(&network), Some(ms(3_000)), "cancelled");
    guard.release().await.expect("held");
}

// The primaries are on other threads: the hold may end at the second and the third while the loss
// at the first is handled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_at_all_primaries_at_the_same_moment_is_reported() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    let [holder, operator] =
        [(); 2].map(|()| Locks::builder().on_memory_quorum(&stores).expect("3 stores"));
    for round in 0..2_000 {
        let guard = holder.lock("k").await.expect("free soon");
        let lost = guard.cancellation_token();
        let (operator, runtime) = (operator.clone(), Handle::current());
        let force = async move { operator.force_release("k").await };
        let forced = std::thread::spawn(move || runtime.block_on(force));
        let reported = timeout(ms(10_000), lost.cancelled()).await;
        assert!(reported.is_ok(), "the loss in round {round} is not reported");
        assert!(forced.join().expect("no panic").expect("each primary responds"));
    }
}

#[test]
fn a_hold_is_lost_once_its_runtime_has_ended() {
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let theirs = runtime().expect("threads");
    let guard = theirs.block_on(async {
        let stores = [(); 3].map(|()| MemoryStore::new());
        let locks = Locks::builder().on_memory_quorum(&stores).expect("3 stores");
        locks.lock("k").await.expect("free")
    });
    let token = guard.cancellation_token();
    assert!(!guard.is_lost());
    drop(theirs);
    assert!(guard.is_lost() && token.is_cancelled());
    runtime().expect("threads").block_on(async {
        soon(guard.lost()).await;
        let error = soon(guard.release()).await.expect_err("nothing can be sent");
        assert_eq!(error.kind(), LockErrorKind::Closed, "{error}");
    });
}

// A caller may ask while a mutex is locked that code of others, such as a logger, locks too.
#[tokio::test]
async fn a_guard_that_is_asked_for_the_loss_runs_no_code_of_others() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    let locks = Locks::builder().on_memory_quorum(&stores).expect("3 stores");
    let guard = locks.key("k").max_hold(ms(100)).lock().await.expect("free");
    let token = guard.cancellation_token();
    // Blocks the runtime, so that the hold's task finds nothing meanwhile.
    std::thread::sleep(ms(150));
    assert!(guard.is_lost());
    assert!(!token.is_cancelled());
    soon(token.cancelled()).await;
}

// All later acquisitions of the process failed with `Closed`.
#[tokio::test(start_paused = true)]
async fn an_acquisition_whose_waker_panics_costs_no_other_its_lock() {
    let mut network = Network::new(3, 31);
    let process = network.start();
    for primary in [0, 1] {
        network.cut(process, primary, true);
    }
    sleep(ms(2_000)).await;
    let mut foreign = Box::pin(network.locks(process).lock("k"));
    assert!(foreign.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    let other = tokio::spawn(network.locks(process).lock("other"));
    sleep(ms(100)).await;
    for primary in [0, 1] {
        network.mend(process, primary);
    }
    let guard = soon(other).await.expect("no panic").expect("granted");
    guard.release().await.expect("held");
    let later = soon(network.locks(process).lock("later")).await.expect("granted");
    later.release().await.expect("held");
    soon(foreign).await.expect("granted").release().await.expect("held");
}

// On another thread: a thread that waits for itself would hang the test.
#[test]
fn a_subscriber_may_ask_for_the_state_when_a_primary_is_refused() {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut network = Network::new(3, 32);
            let process = network.start();
            let (locks, asked) = (network.locks(process).clone(), Arc::new(AtomicUsize::new(0)));
            let ask = (locks.clone(), Arc::clone(&asked));
            let subscriber = on_event("a quorum primary does not count", move || {
                assert!(!ask.0.status().is_connected());
                ask.1.fetch_add(1, Ordering::Relaxed);
            });
            let _here = tracing::dispatcher::set_default(&subscriber);
            for primary in [0, 1] {
                network.restart(primary, true);
            }
            sleep(ms(500)).await;
            // The connections seem open when the primaries are asked.
            for primary in [0, 1] {
                network.cut(process, primary, false);
            }
            sleep(ms(4_000)).await;
            let refused = locks.try_lock("k").await.expect_err("too few primaries");
            assert_eq!(refused.kind(), LockErrorKind::Unavailable);
            assert_eq!(asked.load(Ordering::Relaxed), 2);
        });
        ended.send(())
    });
    end.recv_timeout(ms(20_000)).expect("the subscriber hangs, or a panic");
}
