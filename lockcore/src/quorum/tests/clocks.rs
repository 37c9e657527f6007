//! Clocks that jump and differ, primaries that lose data, and the tokens.

use tokio::time::{Instant, sleep};

use super::network::{MAX_LEASE, Network};
use super::{evict, held_at, leak, locked, ms, soon};
use crate::api::guard::LockGuard;
use crate::api::locks::Locks;

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
async fn a_replacement_with_a_copy_of_the_record_grants_nothing_while_a_guard_counts_its_predecessor()
 {
    let (mut network, one, guard, other) = two_majorities().await;
    sleep(2 * MAX_LEASE).await;
    // The holder does not notice the replacement, and may count the primary until its deadline.
    network.cut(one, 1, true);
    network.replace(1);
    let replaced = Instant::now();
    let next = tokio::spawn(network.locks(other).key("k").lease(MAX_LEASE).lock());
    while !guard.is_lost() {
        assert!(!next.is_finished(), "granted while the first guard is valid");
        sleep(ms(10)).await;
    }
    let next = soon(next).await.expect("no panic").expect("granted");
    assert!(replaced.elapsed() >= MAX_LEASE, "after {:?}", replaced.elapsed());
    next.release().await.expect("held");
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

#[tokio::test(start_paused = true)]
async fn a_primary_in_use_since_the_start_was_observed_for_as_long() {
    let mut network = Network::new(3, 43);
    network.primaries[0].flush();
    sleep(2 * MAX_LEASE).await;
    let process = network.start();
    sleep(2 * MAX_LEASE).await;
    // By its own clock, the primary has yet to be emptied.
    network.primaries[0].set_clock_back(ms(3_600_000));
    network.cut(process, 1, true);
    network.cut(process, 0, true);
    sleep(ms(1_500)).await;
    network.mend(process, 0);
    let began = Instant::now();
    drop(locked(&network, process).await);
    assert!(began.elapsed() < ms(2_000), "{:?}", began.elapsed());
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
