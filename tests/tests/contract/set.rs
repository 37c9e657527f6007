//! Several locks at once.

use lock_tests::eventually;
use lockcore::{LockErrorKind, LockKey, Locks, WhenBusy};
use tokio::time::Instant;

use crate::backend::{
    Backend, SOON, is_free, ms, soon, until_nothing_is_left, until_waiting, wait_as, waiters,
};

on_every_store!(
    all_locks_of_a_set_are_held_together_and_stand_in_the_order_of_the_call,
    sets_of_the_same_locks_in_opposite_order_never_wait_for_each_other,
    the_wait_of_a_set_is_for_all_of_its_locks_together,
    a_set_has_the_options_of_a_request,
    a_dropped_set_leaves_the_queue_and_releases_what_it_has,
    a_lock_lost_while_the_next_is_waited_for_ends_the_whole_set,
    a_set_says_that_one_of_its_locks_was_lost,
    a_set_without_keys_of_too_many_or_of_one_lock_twice_is_refused_before_anything_is_sent,
    a_set_with_a_key_that_its_locks_refuses_waits_for_none_of_the_others,
);

async fn all_locks_of_a_set_are_held_together_and_stand_in_the_order_of_the_call(
    backend: &Backend,
) {
    let [a, b] = backend.nodes().await;
    let set = a.lock_all(["two", "three", "one"]).await.expect("free");
    let keys: Vec<_> = set.guards().iter().map(|guard| guard.key()).collect();
    assert_eq!(keys, ["two", "three", "one"]);
    for key in ["two", "three", "one"] {
        assert!(b.try_lock(key).await.expect("an answer").is_none(), "{key} is held");
    }
    set.release().await.expect("held until now");
    for key in ["one", "two", "three"] {
        until_nothing_is_left(&b, key).await;
    }
}

async fn sets_of_the_same_locks_in_opposite_order_never_wait_for_each_other(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let turns = async |locks: Locks, keys: [&'static str; 2]| {
        for _ in 0..100 {
            let set = locks.lock_all(keys).await.expect("acquired");
            tokio::task::yield_now().await;
            set.release().await.expect("held until now");
        }
    };
    let one = turns(a, ["one", "two"]);
    let other = turns(b, ["two", "one"]);
    soon(async { tokio::join!(one, other) }).await;
}

#[tokio::test]
async fn sets_with_different_namespaces_acquire_the_same_locks_in_the_same_order() {
    let foreign = |name| LockKey::foreign(name).expect("a name");
    let key = |name| LockKey::new(name).expect("a name");
    let builder = || Locks::builder().redisson_peers(true);
    // In the store, the locks are "order" and "shop:a" in each case.
    for (builder, keys) in [
        (builder(), [key("shop:a"), key("order")]),
        (builder(), [foreign("shop:a"), key("order")]),
        (builder().namespace("shop"), [key("a"), foreign("order")]),
    ] {
        let locks = builder.in_memory().expect("in range");
        let [later, first] = &keys;
        let held = locks.lock(first).await.expect("free");
        let mut set = Box::pin(locks.lock_all(&keys));
        assert!(futures_util::poll!(set.as_mut()).is_pending());
        let free = locks.try_lock(later).await.expect("an answer");
        drop(free.expect("the set waits for the first, and holds nothing"));
        held.release().await.expect("held until now");
        set.await.expect("both are free").release().await.expect("held until now");
    }
}

async fn the_wait_of_a_set_is_for_all_of_its_locks_together(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let first = a.lock("one").await.expect("free");
    let second = a.lock("two").await.expect("free");
    let started = Instant::now();
    let set = b.lock_all(["one", "two"]).wait(ms(2_000));
    let set = tokio::spawn(set);
    until_waiting(1, &a, "one").await;
    tokio::time::sleep(ms(1_500)).await; // part of the wait passes at the first lock
    first.release().await.expect("held until now");
    let error = soon(set).await.expect("no panic").expect_err("the second is held");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    let waited = started.elapsed();
    assert!(waited >= ms(2_000) && waited < ms(3_500), "{waited:?}: each would be 3.5 s");
    eventually("the first is released", SOON, async || is_free(&a, "one").await).await;
    second.release().await.expect("held until now");
    until_nothing_is_left(&b, "two").await;
}

async fn a_set_has_the_options_of_a_request(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let set = a.lock_all(["one", "two"]).label("transfer").lease(ms(20_000)).await.expect("free");
    for key in ["one", "two"] {
        let seen = b.inspect(key).await.expect("an inspection");
        assert_eq!(seen.holders[0].label.as_deref(), Some("transfer"));
        assert!(seen.holders[0].lease_left <= ms(20_000), "{:?}", seen.holders[0].lease_left);
    }
    let refused = b.lock_all(["zero", "two"]).when_busy(WhenBusy::Refuse).await;
    assert_eq!(refused.expect_err("the second is held").kind(), LockErrorKind::Timeout);
    until_nothing_is_left(&b, "zero").await;
    let waiting = wait_as(1, &b, "two").await;
    let full = b.lock_all(["zero", "two"]).queue_limit(1).await.expect_err("one waits");
    assert_eq!(full.kind(), LockErrorKind::QueueFull);
    waiting.abort();
    set.release().await.expect("held until now");
}

async fn a_dropped_set_leaves_the_queue_and_releases_what_it_has(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let second = a.lock("two").await.expect("free");
    let set = tokio::spawn(b.lock_all(["two", "one"]));
    until_waiting(1, &a, "two").await;
    set.abort();
    eventually("the first is released", SOON, async || is_free(&a, "one").await).await;
    second.release().await.expect("held until now");
    until_nothing_is_left(&a, "two").await;
}

async fn a_lock_lost_while_the_next_is_waited_for_ends_the_whole_set(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let second = a.lock("two").await.expect("free");
    let set = tokio::spawn(b.lock_all(["one", "two"]));
    until_waiting(1, &a, "two").await;
    assert!(a.force_release("one").await.expect("an answer"));
    let error = soon(set).await.expect("no panic").expect_err("one is lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    second.release().await.expect("held until now");
    until_nothing_is_left(&a, "two").await;
}

async fn a_set_says_that_one_of_its_locks_was_lost(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let set = a.lock_all(["one", "two", "three"]).await.expect("free");
    assert!(!set.is_lost());
    assert!(b.force_release("two").await.expect("an answer"));
    soon(set.lost()).await;
    assert!(set.is_lost());
    let error = set.release().await.expect_err("one was lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    for key in ["one", "two", "three"] {
        until_nothing_is_left(&b, key).await;
    }
}

async fn a_set_without_keys_of_too_many_or_of_one_lock_twice_is_refused_before_anything_is_sent(
    backend: &Backend,
) {
    let locks = backend.node().await;
    let many: Vec<String> = (0..33).map(|number| format!("key {number}")).collect();
    let bad = [vec![], vec!["one".to_owned(), "two".to_owned(), "one".to_owned()], many];
    let twice = format!("3 keys with {:?} twice", backend.named("one"));
    let said = ["0 keys", &twice, "33 keys"];
    for (keys, said) in bad.into_iter().zip(said) {
        let error = locks.lock_all(keys).await.expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        assert!(error.to_string().contains(said), "{error}");
    }
    let bad_name = locks.lock_all(["one", ""]).await.expect_err("refused");
    assert_eq!(bad_name.kind(), LockErrorKind::InvalidKey);
    assert!(is_free(&locks, "one").await);
}

async fn a_set_with_a_key_that_its_locks_refuses_waits_for_none_of_the_others(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let held = a.lock("one").await.expect("free");
    let keys = [LockKey::new("one"), LockKey::foreign("two")].map(|key| key.expect("a name"));
    let error = soon(b.lock_all(keys)).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::Unsupported, "{error}");
    assert_eq!(waiters(&a, "one").await, 0);
    held.release().await.expect("held until now");
}
