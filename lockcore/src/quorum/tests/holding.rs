//! A hold at the primaries: while it lasts, and how it ends.

use proto::LockErrorKind;
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, sleep, timeout};

use super::network::{MAX_LEASE, Network};
use super::{evict, held_at, leak, locked, ms, soon};
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;
use crate::types::hold_state::HoldState;

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
    sleep(ms(50)).await;
    assert!(held_at(&network).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_ping_waits_for_a_majority_and_not_for_a_slow_primary() {
    let mut network = Network::new(3, 31);
    let process = network.start();
    drop(locked(&network, process).await);
    network.slow(process, 2, ms(300));
    let asked = Instant::now();
    network.locks(process).ping().await.expect("two reply");
    assert!(asked.elapsed() < ms(300), "{:?}", asked.elapsed());
    network.slow(process, 1, ms(300));
    network.locks(process).ping().await.expect("all reply");
    assert!(asked.elapsed() >= ms(300), "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_for_a_majority_and_not_for_a_slow_primary() {
    let mut network = Network::new(3, 26);
    let process = network.start();
    network.slow(process, 2, ms(300));
    let guard = locked(&network, process).await;
    sleep(ms(2_000)).await;
    assert_eq!(held_at(&network).await, [0, 1, 2]);
    let asked = Instant::now();
    guard.release().await.expect("held");
    assert!(asked.elapsed() < ms(300), "{:?}", asked.elapsed());
    sleep(ms(1_000)).await;
    assert!(held_at(&network).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_a_majority_reports_to_the_release_is_not_hidden_by_a_slow_primary() {
    let mut network = Network::new(3, 27);
    let process = network.start();
    let guard = locked(&network, process).await;
    sleep(ms(50)).await;
    assert_eq!(held_at(&network).await, [0, 1, 2]);
    network.slow(process, 2, ms(1_000));
    let asked = Instant::now();
    let release = {
        evict(&network, 0).await;
        evict(&network, 1).await;
        guard.release()
    };
    assert_eq!(release.await.expect_err("lost").kind(), LockErrorKind::Lost);
    assert!(asked.elapsed() < ms(1_000), "{:?}", asked.elapsed());
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
async fn primaries_that_restart_with_their_data_one_after_another_cost_a_guard_nothing() {
    let mut network = Network::new(3, 45);
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    let waiting = tokio::spawn(network.locks(other).key("k").lease(MAX_LEASE).lock());
    sleep(ms(50)).await;
    for primary in 0..3 {
        network.restart(primary, true);
        // It is connected within a second, stable after another, and counts after the quarantine.
        sleep(MAX_LEASE + ms(3_300)).await;
        assert!(!guard.is_lost(), "primary {primary}");
        assert!(held_at(&network).await.contains(&primary), "primary {primary}");
    }
    guard.release().await.expect("held");
    drop(soon(waiting).await.expect("no panic").expect("granted"));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_in_time_although_two_primaries_were_gained_later() {
    let mut network = Network::new(3, 46);
    let process = network.start();
    leak(&network, 2).await;
    let began = Instant::now();
    let request = network.locks(process).key("k").fixed_lease(MAX_LEASE);
    let guard = request.lock().await.expect("two primaries are free");
    sleep(ms(1_000)).await;
    evict(&network, 2).await;
    sleep(ms(100)).await;
    // A stranger takes the first primary, and holds it for a while.
    evict(&network, 0).await;
    leak(&network, 0).await;
    sleep(ms(2_900)).await;
    assert!(!guard.is_lost());
    evict(&network, 0).await;
    sleep(ms(100)).await;
    assert_eq!(held_at(&network).await, [0, 1, 2], "both are gained");
    assert!(guard.deadline() <= began + MAX_LEASE + ms(100));
    soon(guard.lost()).await;
    assert!(began.elapsed() <= MAX_LEASE + ms(100), "{:?}", began.elapsed());
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
            sleep(ms(50)).await;
            assert!(held_at(&network).await.is_empty());
        } else {
            drop(guard);
            sleep(ms(50)).await;
            assert_eq!(waiting(&network).await, 0);
            busy.release().await.expect("held");
        }
    }
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
