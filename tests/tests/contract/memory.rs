//! The in-memory store as a tool for tests: paused time, refusals.

use std::time::Duration;

use lockcore::{LockErrorKind, LockOptions, Locks, MemoryStore};
use tokio::time::{Instant, sleep};

use crate::backend::{granted, ms, wait_as};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_thousand_leases_pass_in_no_time() {
    let started = std::time::Instant::now();
    let store = MemoryStore::new();
    let options = LockOptions::new().lease(ms(300));
    let a = Locks::builder().defaults(options).on_memory(&store).expect("options");
    let b = Locks::builder().defaults(options).on_memory(&store).expect("options");
    let guard = a.lock("key").await.expect("free");
    let waiting = wait_as(1, &b, "key").await;
    sleep(ms(300) * 1_000).await;
    assert!(!guard.is_lost() && !waiting.is_finished());
    assert_eq!((a.status().positions_lost, b.status().positions_lost), (0, 0));
    guard.release().await.expect("held all the time");
    granted(waiting).await.release().await.expect("held until now");
    assert!(started.elapsed() < Duration::from_secs(60), "none waited in earnest");
}

// The clock is frozen while anything can run, so no notification waits for the others.
#[tokio::test(start_paused = true)]
async fn forty_thousand_holds_that_end_at_once_are_each_told_before_their_deadline() {
    const HOLDS: usize = 40_000;
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).expect("options");
    let mut waiting = tokio::task::JoinSet::new();
    for key in 0..HOLDS {
        let guard = locks.key(format!("{key}")).fixed_lease(HOUR).lock().await.expect("free");
        let deadline = guard.deadline();
        waiting.spawn(async move {
            guard.cancellation_token().cancelled().await;
            Instant::now() < deadline
        });
    }
    let results = waiting.join_all().await;
    assert_eq!((results.len(), results.iter().filter(|in_time| **in_time).count()), (HOLDS, HOLDS));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_and_a_wait_end_by_the_paused_clock() {
    let store = MemoryStore::new();
    let [locks, other] = [(); 2].map(|()| Locks::builder().on_memory(&store).expect("options"));
    let started = Instant::now();
    let guard = locks.key("key").fixed_lease(HOUR).lock().await.expect("free");
    let error = other.lock_timeout("key", HOUR / 2).await.expect_err("held");
    assert_eq!(error.kind(), LockErrorKind::Timeout);
    assert_eq!(started.elapsed().as_secs(), HOUR.as_secs() / 2);
    guard.lost().await;
    let elapsed = started.elapsed();
    assert!(elapsed < HOUR && elapsed > HOUR - HOUR / 50, "{elapsed:?}");
    let next = other.lock("key").await.expect("its lease ends");
    let took = started.elapsed();
    assert!(took >= HOUR && took < HOUR + ms(1_000), "{took:?}");
    next.release().await.expect("held until now");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_short_lease_is_told_before_it_by_the_paused_clock() {
    for locks in [Locks::in_memory(), Locks::builder().in_memory_quorum(3).expect("3 stores")] {
        let started = Instant::now();
        let guard = locks.key("key").fixed_lease(ms(500)).lock().await.expect("free");
        assert!(guard.deadline() < started + ms(500), "it counts from the request");
        guard.lost().await;
        assert!(started.elapsed() < ms(500), "told before the end: {:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusing_store_refuses_acquisitions_and_nothing_else() {
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).expect("options");
    let guard = locks.lock("key").await.expect("free");
    let waiting = wait_as(1, &locks, "key").await;
    for kind in [
        LockErrorKind::OutOfMemory,
        LockErrorKind::Denied,
        LockErrorKind::WrongType,
        LockErrorKind::QueueFull,
    ] {
        store.refuse(Some(kind));
        assert_eq!(locks.lock("other").await.expect_err("refused").kind(), kind);
        assert_eq!(locks.lock_timeout("other", HOUR).await.expect_err("refused").kind(), kind);
    }
    sleep(HOUR).await;
    assert!(!guard.is_lost(), "renewals go on");
    guard.release().await.expect("releases go on");
    granted(waiting).await.release().await.expect("who waited already is served");
    store.refuse(None);
    locks.lock("other").await.expect("free").release().await.expect("held until now");
}

// L5.
#[tokio::test(start_paused = true)]
async fn a_store_that_stays_away_ends_a_wait_with_unavailable() {
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).expect("options");
    store.refuse(Some(LockErrorKind::Unavailable));
    let cases = [
        ("the request timeout", locks.lock("key"), 2),
        ("the same, for all that its wait says", locks.lock_timeout("key", HOUR), 2),
        ("its own", locks.key("key").store_wait(ms(7_000)).lock(), 7),
        ("no longer than its wait", locks.key("key").store_wait(HOUR).wait(ms(5_000)).lock(), 5),
        ("silence", locks.key("key").store_wait(HOUR).lock(), 30),
        ("a try", locks.key("key").store_wait(HOUR).wait(Duration::ZERO).lock(), 2),
        ("a shorter try", locks.key("key").store_wait(ms(1_000)).wait(Duration::ZERO).lock(), 1),
    ];
    for (what, acquire, seconds) in cases {
        let started = Instant::now();
        let error = acquire.await.expect_err("away");
        let took = started.elapsed().as_secs();
        assert_eq!((error.kind(), took), (LockErrorKind::Unavailable, seconds), "{what}");
    }

    // The wait outlasts a store that returns in time.
    let waiting = tokio::spawn(locks.key("key").store_wait(ms(7_000)).lock());
    sleep(Duration::from_secs(5)).await;
    store.refuse(None);
    granted(waiting).await.release().await.expect("held until now");
}

// Each node has its own handle; a shared store means shared locks.
#[tokio::test(start_paused = true)]
async fn two_stores_have_nothing_in_common() {
    let one = Locks::in_memory();
    let other = Locks::in_memory();
    let guard = one.lock("key").await.expect("free");
    let guard_too = other.try_lock("key").await.expect("an answer").expect("another lock");
    guard.release().await.expect("held until now");
    guard_too.release().await.expect("held until now");
}
