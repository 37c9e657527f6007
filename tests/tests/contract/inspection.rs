//! The state of a lock and of a node, for people.

use lock_tests::eventually;
use lockcore::Locks;
use lockcore::operate::Connection;
use tokio::time::Instant;

use crate::backend::{
    Backend, LONG, SOON, granted, ms, soon, until_nothing_is_left, until_waiting, wait_as,
};

on_every_store!(
    an_inspection_shows_holder_and_waiters_in_order_with_their_labels,
    an_inspection_tells_for_how_long_each_one_has_asked,
    a_holder_s_age_goes_on_over_its_renewals_and_as_a_read,
    an_inspection_of_a_free_lock_shows_nobody_and_no_token,
    a_label_is_shown_as_it_was_given_and_cut_at_64_bytes_of_its_own,
    a_status_counts_what_waits_and_what_is_held,
    a_status_does_not_count_a_lost_hold_whose_guard_is_alive,
    a_ping_is_answered,
);

async fn an_inspection_shows_holder_and_waiters_in_order_with_their_labels(backend: &Backend) {
    let one = backend.build(Locks::builder().label("one")).await;
    let two = backend.build(Locks::builder().label("two")).await;
    let guard = one.key("key").lease(LONG).lock().await.expect("free");
    let first = wait_as(1, &two, "key").await;
    let second = tokio::spawn(one.key("key").label("a label: of its own").lock());
    until_waiting(2, &two, "key").await;
    for locks in [&one, &two] {
        let seen = locks.inspect("key").await.expect("an inspection");
        let holder = &seen.holders[0];
        assert_eq!(holder.label.as_deref(), Some("one"));
        assert_eq!(holder.node.as_ref(), Some(one.node()));
        assert_eq!(seen.token, None, "that of a lock stands nowhere");
        assert!(holder.lease_left > LONG - ms(60_000) && holder.lease_left <= LONG);
        let labels: Vec<_> = seen.waiters.iter().map(|waiter| waiter.label.as_deref()).collect();
        assert_eq!(labels, [Some("two"), Some("a label: of its own")]);
        assert_eq!(seen.waiters[0].node.as_ref(), Some(two.node()));
        assert_ne!(seen.waiters[1].member, holder.member);
    }
    guard.release().await.expect("held until now");
    granted(first).await.release().await.expect("held until now");
    granted(second).await.release().await.expect("held until now");
}

async fn an_inspection_tells_for_how_long_each_one_has_asked(backend: &Backend) {
    let begun = Instant::now();
    let one = backend.node().await;
    let two = backend.node().await;
    let guard = one.lock("key").await.expect("free");
    let held = Instant::now();
    let waiting = wait_as(1, &two, "key").await;
    let queued = Instant::now();
    for _ in 0..3 {
        let asked = Instant::now();
        let seen = two.inspect("key").await.expect("an inspection");
        let (age, is_claim) = (seen.holders[0].age.expect("ours"), seen.holders[0].is_claim);
        // The node received the server's time while connecting.
        assert!(age >= asked - held && age <= begun.elapsed(), "{age:?}");
        assert!(!is_claim, "it did not wait");
        let age = seen.waiters[0].age.expect("ours");
        assert!(age >= asked - queued && age <= begun.elapsed(), "{age:?}");
    }
    guard.release().await.expect("held until now");
    let guard = granted(waiting).await;
    let asked = Instant::now();
    let seen = one.inspect("key").await.expect("an inspection");
    assert!(seen.holders[0].age.expect("ours") >= asked - queued, "it has waited for a part");
    guard.release().await.expect("held until now");
}

async fn a_holder_s_age_goes_on_over_its_renewals_and_as_a_read(backend: &Backend) {
    // A node receives the server's time while connecting.
    let begun = Instant::now();
    let (one, two) = (backend.node().await, backend.node().await);
    let first = one.key("key").lease(ms(1_000)).lock().await.expect("free");
    let waiting = tokio::spawn(two.key("key").lease(ms(1_000)).lock());
    until_waiting(1, &two, "key").await;
    let queued = Instant::now();
    first.release().await.expect("held until now");
    let mut guard = granted(waiting).await;
    // Each lease is a second, and each renewal comes after a third of it.
    for is_read in [false, true] {
        if is_read {
            // A quorum cannot downgrade a lock: there it stays as it is.
            guard = guard.downgrade().await.unwrap_or_else(|error| error.into_guard());
        }
        let renewed_twice = guard.deadline() + ms(700);
        eventually("it is renewed", LONG, async || guard.deadline() > renewed_twice).await;
        let least = queued.elapsed();
        let seen = one.inspect("key").await.expect("an inspection");
        let age = seen.holders[0].age.expect("ours");
        assert!(age >= least && age <= begun.elapsed(), "{least:?} {age:?}");
    }
    guard.release().await.expect("held until now");
}

async fn an_inspection_of_a_free_lock_shows_nobody_and_no_token(backend: &Backend) {
    let locks = backend.node().await;
    let never = locks.inspect("key").await.expect("an inspection");
    assert_eq!((never.holders.len(), never.token, never.waiters.len()), (0, None, 0));
    let guard = locks.lock("key").await.expect("free");
    guard.release().await.expect("held until now");
    let seen = locks.inspect("key").await.expect("an inspection");
    assert_eq!((seen.holders.len(), seen.token), (0, None));
}

async fn a_label_is_shown_as_it_was_given_and_cut_at_64_bytes_of_its_own(backend: &Backend) {
    let percent = "%".repeat(100);
    let cases = [
        ("100% sure: a\nb", "100% sure: a\nb"),
        ("%25", "%25"),
        (percent.as_str(), &percent[..64]),
        ("\u{1}é".repeat(30).as_str(), &"\u{1}é".repeat(22)[..64]),
    ]
    .map(|(given, shown)| (given.to_owned(), shown.to_owned()));
    for (given, shown) in cases {
        let locks = backend.build(Locks::builder().label(&given)).await;
        let guard = locks.lock("key").await.expect("free");
        let seen = locks.inspect("key").await.expect("an inspection");
        assert_eq!(seen.holders[0].label, Some(shown));
        guard.release().await.expect("held until now");
    }
}

async fn a_status_counts_what_waits_and_what_is_held(backend: &Backend) {
    let locks = backend.node().await;
    let status = locks.status();
    assert!(status.is_connected());
    assert_eq!((status.commands, status.subscription), (Connection::Up, Connection::Up));
    let one = locks.lock("one").await.expect("free");
    let two = locks.lock("two").await.expect("free");
    let waiting = wait_as(1, &locks, "one").await;
    let status = locks.status();
    assert_eq!((status.holding, status.waiting, status.positions_lost), (2, 1, 0));
    waiting.abort();
    drop(two);
    one.release().await.expect("held until now");
    until_nothing_is_left(&locks, "one").await;
    until_nothing_is_left(&locks, "two").await;
}

async fn a_status_does_not_count_a_lost_hold_whose_guard_is_alive(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let guard = a.lock("key").await.expect("free");
    assert_eq!(a.status().holding, 1);
    assert!(b.force_release("key").await.expect("an answer"));
    soon(guard.lost()).await;
    eventually("it is not counted", SOON, async || a.status().holding == 0).await;
    drop(guard);
    until_nothing_is_left(&a, "key").await;
}

async fn a_ping_is_answered(backend: &Backend) {
    backend.node().await.ping().await.expect("an answer");
}
