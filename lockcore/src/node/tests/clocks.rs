//! Tests with clocks that jump: the machine's own, and the store's.

use std::time::Duration;

use futures_util::poll;
use proto::LockErrorKind;
use tokio::time::{Instant, sleep};

use super::{granted, soon, wait_as};
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;

/// The default lease.
const LEASE: Duration = Duration::from_secs(30);

/// The whole machine is suspended, so no timer clock advances meanwhile.
#[tokio::test(start_paused = true)]
async fn a_guard_knows_that_its_lease_ended_while_the_machine_was_suspended() {
    let locks = Locks::in_memory();
    let guard = locks.lock("k").await.expect("free");
    locks.backend.node().clock.suspend(LEASE / 2);
    assert!(!guard.is_lost(), "most of it is left");
    assert!(guard.deadline() < Instant::now() + LEASE / 2);
    locks.backend.node().clock.suspend(LEASE / 2);
    assert!(guard.is_lost());
    soon(guard.lost()).await;
    let error = soon(guard.release()).await.expect_err("it is lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_over_after_a_suspension_that_nothing_has_noticed_yet() {
    let locks = Locks::in_memory();
    let guard = locks.lock("k").await.expect("free");
    locks.backend.node().clock.suspend(LEASE);
    assert!(guard.deadline() <= Instant::now());
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_ended_while_the_machine_was_suspended_is_not_handed_out() {
    let store = MemoryStore::new();
    let [a, b] = [(); 2].map(|()| Locks::builder().on_memory(&store).expect("options"));
    let guard = a.lock("k").await.expect("free");
    let mut waiting = Box::pin(b.lock("k"));
    assert!(poll!(waiting.as_mut()).is_pending());
    guard.release().await.expect("held until now");
    b.backend.node().clock.suspend(LEASE);
    assert!(poll!(waiting.as_mut()).is_pending(), "it is asked for again");
    let guard = soon(waiting).await.expect("granted");
    assert!(!guard.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_ended_while_the_machine_was_suspended_is_not_passed_on() {
    let store = MemoryStore::new();
    let [a, b] = [(); 2].map(|()| Locks::builder().on_memory(&store).expect("options"));
    let guard = a.lock("k").await.expect("free");
    let [first, mut next] = [wait_as(1, &b, "k").await, wait_as(2, &b, "k").await];
    guard.release().await.expect("held until now");
    let first = granted(first).await;
    b.backend.node().clock.suspend(LEASE);
    drop(first);
    assert!(poll!(&mut next).is_pending(), "it is asked for again");
    assert!(!granted(next).await.is_lost());
}

// A guard cannot detect that the server's clock was set forward, nor that the machine's clock stood
// still; the next reply that states the server's time shows it.
#[tokio::test(start_paused = true)]
async fn holds_outlast_a_server_s_clock_that_is_set_forward_again_and_again_by_less_than_a_lease() {
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).expect("options");
    let mut guards = Vec::new();
    for key in 0..400 {
        guards.push(locks.lock(format!("{key}")).await.expect("free"));
    }
    for _ in 0..5 {
        sleep(Duration::from_millis(10)).await;
        // Each hold is renewed after a third of the lease.
        store.set_clock_forward(2 * LEASE / 3);
        locks.lock("another").await.expect("free").release().await.expect("held until now");
    }
    sleep(Duration::from_millis(10)).await;
    for guard in guards {
        assert!(!guard.is_lost());
        guard.release().await.expect("the server knows it");
    }
}
