//! A node's own waits and holds.

use std::pin::pin;
use std::time::Duration;

use futures_util::poll;
use lock_tests::{Raw, eventually, queue_key};
use lockcore::operate::{Activity, ActivityState};
use lockcore::{Demand, Locks, MemoryStore};
use redis::cmd;

use crate::backend::{Backend, SOON, granted, ms, soon, until_nothing_is_left, until_waiting};

on_every_store!(
    activity_shows_the_waits_and_holds_of_this_node_in_the_order_in_which_they_began,
    an_acquire_knows_its_position_once_it_is_queued,
    an_attempt_that_is_dropped_at_any_point_is_no_activity;
    not_by_a_quorum:
    activity_shows_a_downgraded_lock_as_a_read,
    activity_shows_a_lost_hold_as_lost_until_its_guard_is_dropped,
    activity_shows_the_lost_hold_of_a_batch_once,
);

/// The state of each wait and hold.
fn states(locks: &Locks) -> Vec<ActivityState> {
    locks.activity().map(|one| one.state).collect()
}

async fn activity_shows_the_waits_and_holds_of_this_node_in_the_order_in_which_they_began(
    backend: &Backend,
) {
    let [a, b] = backend.nodes().await;
    let guard = a.key("key").class("orders").label("100% sure: a\nb").lock().await.expect("free");
    let of_b = tokio::spawn(b.lock("key"));
    until_waiting(1, &a, "key").await;
    let of_a = tokio::spawn(a.key("key").class("wallet").read());
    until_waiting(2, &a, "key").await;
    eventually("it is told so", SOON, async || {
        matches!(states(&a)[1], ActivityState::Waiting { position: Some(1), .. })
    })
    .await;
    let seen: Vec<Activity> = a.activity().collect();
    let [hold, wait] = &seen[..] else { panic!("one of each: {seen:?}") };
    assert_eq!(hold.lock.as_deref(), Some(guard.name()));
    assert_eq!((&*hold.class, &*hold.label), ("orders", "100% sure: a\nb"));
    assert_eq!((hold.demand, hold.state), (Demand::EXCLUSIVE, ActivityState::Holding));
    assert_eq!((&*wait.class, wait.demand), ("wallet", Demand::READ));
    assert_eq!(wait.lock, hold.lock);
    assert!(wait.age <= hold.age);
    let of_b_seen: Vec<_> = b.activity().collect();
    assert_eq!(of_b_seen.len(), 1, "only its own: {of_b_seen:?}");
    assert_eq!(&*of_b_seen[0].class, "default");

    guard.release().await.expect("held until now");
    granted(of_b).await.release().await.expect("held until now");
    granted(of_a).await.release().await.expect("held until now");
    until_nothing_is_left(&a, "key").await;
    assert_eq!((states(&a), states(&b)), (vec![], vec![]));
}

async fn activity_shows_a_downgraded_lock_as_a_read(backend: &Backend) {
    let locks = backend.node().await;
    let guard = locks.lock("key").await.expect("free");
    let guard = guard.downgrade().await.expect("held until now");
    assert_eq!(locks.activity().next().expect("the hold").demand, Demand::READ);
    guard.release().await.expect("held until now");
}

async fn activity_shows_a_lost_hold_as_lost_until_its_guard_is_dropped(backend: &Backend) {
    let locks = backend.node().await;
    let guard = locks.lock("key").await.expect("free");
    assert!(locks.force_release("key").await.expect("an answer"));
    soon(guard.lost()).await;
    assert_eq!(states(&locks), [ActivityState::Lost]);
    let [status] = &locks.status_by_class()[..] else { panic!("one class") };
    assert_eq!((status.waiting, status.holding), (0, 1));
    drop(guard);
    assert_eq!(states(&locks), []);
}

// The hold has its own id, beside the id of the guard.
async fn activity_shows_the_lost_hold_of_a_batch_once(backend: &Backend) {
    let a = backend.node().await;
    let b = backend.build(Locks::builder().batch_limit(8)).await;
    let guard = a.lock("key").await.expect("free");
    let first = tokio::spawn(b.lock("key"));
    until_waiting(1, &b, "key").await;
    let second = tokio::spawn(b.lock("key"));
    until_waiting(2, &b, "key").await;
    guard.release().await.expect("held until now");
    let guard = granted(first).await;
    assert!(a.force_release("key").await.expect("an answer"));
    soon(guard.lost()).await;
    let second = granted(second).await;
    let mut seen = states(&b);
    seen.sort_by_key(|state| *state != ActivityState::Lost);
    assert_eq!(seen, [ActivityState::Lost, ActivityState::Holding]);
    drop((guard, second));
    assert_eq!(states(&b), []);
}

async fn an_acquire_knows_its_position_once_it_is_queued(backend: &Backend) {
    let locks = backend.node().await;
    let mut free = Box::pin(locks.lock("key"));
    let guard = free.as_mut().await.expect("free");
    assert_eq!(free.position(), None, "it was not queued");
    assert!(free.positions().has_changed().is_err(), "it has ended");
    let mut waiting = Vec::new();
    for ahead in 0..3 {
        let mut acquire = Box::pin(locks.lock("key"));
        assert_eq!(acquire.position(), None);
        let mut positions = acquire.positions();
        assert!(poll!(acquire.as_mut()).is_pending());
        while positions.borrow_and_update().is_none() {
            soon(positions.changed()).await.expect("it still waits");
        }
        assert_eq!((acquire.position(), *positions.borrow()), (Some(ahead), Some(ahead)));
        waiting.push((acquire, positions));
    }
    // A channel requested late has the position as well.
    let mut last = Box::pin(locks.lock("key"));
    assert!(poll!(last.as_mut()).is_pending());
    eventually("it is queued", SOON, async || last.position().is_some()).await;
    assert_eq!(*last.positions().borrow(), Some(3));
    drop((last, guard));
    for (acquire, mut positions) in waiting {
        let mut acquire = acquire;
        let guard = soon(acquire.as_mut()).await.expect("in its turn");
        // Although the future and the guard are still there.
        while soon(positions.changed()).await.is_ok() {}
        let ended = acquire.positions();
        assert_eq!((*ended.borrow(), ended.has_changed().is_err()), (acquire.position(), true));
        guard.release().await.expect("held until now");
    }
    let guard = locks.lock("key").await.expect("free");
    let timed_out = locks.lock_timeout("key", Duration::from_millis(100));
    let dropped = locks.lock("key");
    let mut channels = [timed_out.positions(), dropped.positions()];
    timed_out.await.expect_err("held");
    assert!(poll!(pin!(dropped)).is_pending());
    for positions in &mut channels {
        while soon(positions.changed()).await.is_ok() {}
    }
    drop(guard);
}

async fn an_attempt_that_is_dropped_at_any_point_is_no_activity(backend: &Backend) {
    let locks = backend.node().await;
    let guard = locks.lock("key").await.expect("free");
    for polls in 0..4 {
        let mut acquire = Box::pin(locks.lock("key"));
        for _ in 0..polls {
            assert!(poll!(acquire.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(locks.activity().count(), 1 + usize::from(polls > 0));
        drop(acquire);
        assert_eq!(states(&locks), [ActivityState::Holding], "after {polls} polls");
    }
    drop(guard);
    assert_eq!(states(&locks), []);
    until_nothing_is_left(&locks, "key").await;
}

#[tokio::test]
async fn a_position_is_told_anew_after_it_was_lost() {
    let backend = Backend::redis();
    let [a, b] = backend.nodes().await;
    let Backend::Redis(server) = &backend else { unreachable!() };
    let guard = a.lock("key").await.expect("free");
    let mut acquire = Box::pin(a.lock("key"));
    let mut positions = acquire.positions();
    assert!(poll!(acquire.as_mut()).is_pending());
    until_waiting(1, &a, "key").await;
    let behind = tokio::spawn(b.lock("key"));
    until_waiting(2, &a, "key").await;
    let member = a.inspect("key").await.expect("an inspection").waiters[0].member.clone();
    let mut redis = Raw::connect(&server.url()).await;
    assert_eq!(redis.ask::<usize>(cmd("ZREM").arg(queue_key("key")).arg(member)).await, 1);
    while *positions.borrow_and_update() != Some(1) {
        soon(positions.changed()).await.expect("it still waits");
    }
    assert_eq!(acquire.position(), Some(1));
    drop(guard);
    granted(behind).await.release().await.expect("held until now");
    soon(acquire).await.expect("its turn").release().await.expect("held until now");
}

#[tokio::test]
async fn activity_has_no_name_where_names_are_redacted() {
    let locks = Locks::builder().redact_names(true).in_memory().expect("in range");
    let guard = locks.lock("key").await.expect("free");
    assert_eq!(locks.activity().next().expect("the hold").lock, None);
    drop(guard);
}

// The parts are read one after the other.
#[tokio::test]
async fn activity_shows_each_of_many_once() {
    let locks = Locks::in_memory();
    let mut guards = Vec::new();
    for number in 0..1_500 {
        guards.push(locks.lock(number.to_string()).await.expect("free"));
    }
    let shown: Vec<_> = locks.activity().map(|one| one.lock).collect();
    let held: Vec<_> = guards.iter().map(|guard| Some(guard.name().to_owned())).collect();
    assert_eq!(shown, held);
    // Hidden entries are read in parts as well.
    drop(guards.drain(..1_400));
    assert_eq!(locks.activity().count(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_status_by_class_has_the_oldest_wait_and_the_oldest_hold_of_each() {
    let locks = Locks::builder().on_memory(&MemoryStore::new()).expect("options");
    assert_eq!(locks.status_by_class(), []);
    let first = locks.key("a").class("orders").lock().await.expect("free");
    tokio::time::sleep(ms(1_000)).await;
    let second = locks.key("b").class("orders").lock().await.expect("free");
    let mut waits = Vec::new();
    for _ in 0..3 {
        let mut wait = Box::pin(locks.key("b").class("wallet").lock());
        assert!(poll!(wait.as_mut()).is_pending());
        waits.push(wait);
        tokio::time::sleep(ms(1_000)).await;
    }
    let seen = |locks: &Locks| -> Vec<_> {
        let classes = locks.status_by_class();
        let s = |age: Option<Duration>| age.map(|age| age.as_secs());
        let row = |class: &lockcore::operate::ClassStatus| {
            (
                class.class.to_string(),
                class.waiting,
                class.holding,
                s(class.oldest_wait),
                s(class.oldest_hold),
            )
        };
        classes.iter().map(row).collect()
    };
    let [orders, wallet] = ["orders", "wallet"].map(str::to_owned);
    assert_eq!(
        seen(&locks),
        [(orders.clone(), 0, 2, None, Some(4)), (wallet.clone(), 3, 0, Some(3), None)]
    );
    drop(first);
    drop(waits.remove(0));
    assert_eq!(seen(&locks), [(orders, 0, 1, None, Some(3)), (wallet, 2, 0, Some(2), None)]);
    drop((waits, second));
    assert_eq!(locks.status_by_class(), []);
}

#[tokio::test(start_paused = true)]
async fn the_class_of_a_locks_is_that_of_its_requests_and_sets_unless_they_name_another() {
    let locks = Locks::builder().class("orders").in_memory().expect("in range");
    let classes = || locks.activity().map(|one| one.class.to_string()).collect::<Vec<_>>();
    let guard = locks.lock("a").await.expect("free");
    let other = locks.key("b").class("wallet").lock().await.expect("free");
    assert_eq!(classes(), ["orders", "wallet"]);
    drop((guard, other));
    until_nothing_is_left(&locks, "a").await;
    let set = locks.lock_all(["a", "b"]).await.expect("free");
    assert_eq!(classes(), ["orders", "orders"]);
    set.release().await.expect("held until now");
    let set = locks.lock_all(["a", "b"]).class("transfers").await.expect("free");
    assert_eq!(classes(), ["transfers", "transfers"]);
    set.release().await.expect("held until now");
}
