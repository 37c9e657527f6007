//! A hold's lease: renewed, fixed, limited.

use lock_tests::{Monitor, MonitorLine, Source};
use lockcore::LockErrorKind;
use proto::Topology;
use proto::wire::scripts;
use tokio::time::Instant;

use crate::backend::{Backend, granted, ms, soon, until_waiting, wait_as};

on_every_store!(
    the_watchdog_keeps_a_short_lease_alive_for_many_leases,
    a_fixed_lease_ends_although_the_guard_lives_and_the_next_gets_the_lock,
    a_fixed_lease_that_was_handed_over_lasts_its_whole_length_and_no_longer,
    a_hold_that_was_handed_over_is_renewed_to_its_full_lease,
    a_longest_hold_ends_in_spite_of_the_watchdog,
    a_guard_that_is_forgotten_holds_until_its_longest_hold_ends,
    a_guard_is_told_before_the_lease_ends_on_the_store,
);

// L2: nothing is lost while nothing fails.
async fn the_watchdog_keeps_a_short_lease_alive_for_many_leases(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.key("key").lease(ms(1_200)).lock().await.expect("free");
    let token = guard.fencing_token();
    let waiting = wait_as(1, &b, "key").await;
    let until = Instant::now() + ms(6_000);
    while Instant::now() < until {
        assert!(!guard.is_lost());
        assert!(guard.deadline() > Instant::now());
        tokio::time::sleep(ms(50)).await;
    }
    assert!(!waiting.is_finished());
    assert_eq!(guard.fencing_token(), token);
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
}

async fn a_fixed_lease_ends_although_the_guard_lives_and_the_next_gets_the_lock(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.key("key").fixed_lease(ms(500)).lock().await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    let stop = guard.cancellation_token();
    soon(guard.lost()).await;
    assert!(guard.is_lost() && stop.is_cancelled());
    // The timing of the notification is tested in `memory`, with a paused clock.
    let next = granted(waiting).await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
    assert!(!next.is_lost(), "S4: the late release touches no other hold");
    next.release().await.expect("held until now");
}

// Finding 2: its claim is 2 s.
async fn a_fixed_lease_that_was_handed_over_lasts_its_whole_length_and_no_longer(
    backend: &Backend,
) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let waiting = tokio::spawn(b.key("key").fixed_lease(ms(3_000)).lock());
    until_waiting(1, &b, "key").await;
    let released = Instant::now();
    guard.release().await.expect("held until now");
    let guard = granted(waiting).await;
    let won = Instant::now();
    soon(guard.lost()).await;
    assert!(released.elapsed() > ms(2_100), "longer than its claim: {:?}", released.elapsed());
    assert!(won.elapsed() < ms(4_900), "renewed once: {:?}", won.elapsed());
    drop(guard);
    soon(a.lock("key")).await.expect("free").release().await.expect("held until now");
}

#[tokio::test]
async fn a_fixed_lease_is_renewed_once_if_it_was_handed_over_and_else_never() {
    let backend = Backend::redis();
    let Backend::Redis(server) = &backend else { unreachable!() };
    let [a, b] = backend.nodes().await;
    let monitor = Monitor::start(server.address());
    let guard = a.key("key").fixed_lease(ms(2_900)).lock().await.expect("free");
    let waiting = tokio::spawn(b.key("key").fixed_lease(ms(3_100)).lock());
    until_waiting(1, &b, "key").await;
    soon(guard.lost()).await;
    let guard = granted(waiting).await;
    soon(guard.lost()).await;
    let lines = monitor.stop();
    let extend = &scripts::of_queue(Topology::Single).extend;
    // The last arguments are a member and its lease.
    let renewals = |lease: &str| {
        let is_one = |line: &&MonitorLine| {
            let [_, script, .., lasting] = &*line.args else { return false };
            line.source != Source::Lua
                && lasting == lease.as_bytes()
                && [&extend.digest, &extend.source].iter().any(|text| text.as_bytes() == *script)
        };
        lines.iter().filter(is_one).count()
    };
    assert_eq!((renewals("2900"), renewals("3100")), (0, 1));
}

// Finding 2.
async fn a_hold_that_was_handed_over_is_renewed_to_its_full_lease(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    let waiting = tokio::spawn(b.key("key").lease(ms(5_000)).lock());
    until_waiting(1, &b, "key").await;
    guard.release().await.expect("held until now");
    let guard = granted(waiting).await;
    let full = async || {
        let found = b.inspect("key").await.expect("an inspection");
        found.holders[0].lease_left > ms(3_000)
    };
    lock_tests::eventually("its lease is full", ms(2_500), full).await;
    assert!(!guard.is_lost());
    guard.release().await.expect("held until now");
}

async fn a_longest_hold_ends_in_spite_of_the_watchdog(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let started = Instant::now();
    let request = a.key("key").lease(ms(600)).max_hold(ms(1_500));
    let guard = request.lock().await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    soon(guard.lost()).await;
    assert!(started.elapsed() > ms(1_300), "{:?}", started.elapsed());
    assert!(guard.is_lost());
    granted(waiting).await.release().await.expect("held until now");
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
}

async fn a_guard_that_is_forgotten_holds_until_its_longest_hold_ends(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let started = Instant::now();
    let request = a.key("key").lease(ms(600)).max_hold(ms(1_500));
    std::mem::forget(request.lock().await.expect("free"));
    let waiting = wait_as(1, &b, "key").await;
    granted(waiting).await.release().await.expect("held until now");
    assert!(started.elapsed() > ms(1_300), "{:?}", started.elapsed());
}

// S2, L4.
async fn a_guard_is_told_before_the_lease_ends_on_the_store(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    for _ in 0..5 {
        let guard = a.key("key").fixed_lease(ms(400)).lock().await.expect("free");
        let deadline = guard.deadline();
        let waiting = wait_as(1, &b, "key").await;
        let next = granted(waiting).await;
        assert!(guard.is_lost(), "two valid guards");
        assert!(Instant::now() >= deadline);
        next.release().await.expect("held until now");
    }
}
