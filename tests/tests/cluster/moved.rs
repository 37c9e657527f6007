//! Slots that move: locks are where their slot is, and nothing of them is lost on the way.

use std::time::Duration;

use lock_tests::{door_key, eventually, patience_key, queue_key, queued};
use lockcore::{HoldState, LockErrorKind};
use tokio::time::Instant;

use crate::common::{SOON, clustered, connect, held, key_of, release, slot, soon};

#[tokio::test]
async fn a_hold_and_its_waiters_move_with_their_slot() {
    let clustered = clustered().await;
    let [holder, waiter] = [connect(&clustered).await, connect(&clustered).await];
    let key = key_of(&clustered, 0, 0);
    let guard = held(&holder, &key).await;
    let waiting = tokio::spawn({
        let (waiter, key) = (waiter.clone(), key.clone());
        async move { waiter.lock(&key).await.expect("granted") }
    });
    queued(&holder, &key, 1).await;
    clustered.move_slot(slot(&key), 0, 1).await;
    assert!(clustered.raw(1).await.exists(&door_key(&key)).await, "it moved");
    let before = guard.fencing_token();
    release(guard).await;
    let guard = soon("the grant", waiting).await.expect("no panic");
    assert!(guard.fencing_token() > before);
    release(guard).await;
    assert_eq!((holder.status().places_lost, waiter.status().places_lost), (0, 0));
}

#[tokio::test]
async fn a_free_lock_is_acquired_where_its_slot_is() {
    let clustered = clustered().await;
    let locks = connect(&clustered).await;
    let key = key_of(&clustered, 2, 0);
    let mut last = None;
    for (from, to) in [(2, 0), (0, 1), (1, 2)] {
        clustered.move_slot(slot(&key), from, to).await;
        let guard = held(&locks, &key).await;
        assert!(clustered.raw(to).await.exists(&door_key(&key)).await, "on its primary");
        assert!(Some(guard.fencing_token()) > last, "tokens rise over all primaries");
        last = Some(guard.fencing_token());
        release(guard).await;
    }
}

#[tokio::test]
async fn a_lock_in_an_open_slot_is_refused_in_time_and_granted_once_the_slot_has_moved() {
    let clustered = clustered().await;
    let locks = connect(&clustered).await;
    let key = key_of(&clustered, 0, 0);
    let slot = slot(&key);
    release(held(&locks, &key).await).await; // its counter is there
    clustered.open_slot(slot, 0, 1).await;
    let started = Instant::now();
    let refused = locks.lock_timeout(&key, Duration::from_millis(700)).await;
    assert_eq!(refused.expect_err("it moves").kind(), LockErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
    // Locks of other slots go on, also of the same primary.
    for number in 1..4 {
        release(held(&locks, &key_of(&clustered, 0, number)).await).await;
    }
    let waiting = tokio::spawn({
        let (locks, key) = (locks.clone(), key.clone());
        async move { locks.lock(&key).await.expect("granted") }
    });
    eventually("it waits", SOON, async || locks.status().waiting == 1).await;
    clustered.move_keys(slot, 0, 1).await;
    clustered.close_slot(slot, 0, 1).await;
    release(soon("the grant", waiting).await.expect("no panic")).await;
}

// Whatever has moved already: the release runs whole, or not yet.
#[tokio::test]
async fn a_release_in_an_open_slot_is_kept_until_it_runs_whole() {
    let clustered = clustered().await;
    let [holder, waiter] = [connect(&clustered).await, connect(&clustered).await];
    for moved in 0..4 {
        let key = key_of(&clustered, 0, moved);
        let slot = slot(&key);
        let guard = held(&holder, &key).await;
        let waiting = tokio::spawn({
            let (waiter, key) = (waiter.clone(), key.clone());
            async move { waiter.lock(&key).await.expect("granted") }
        });
        queued(&holder, &key, 1).await;
        clustered.open_slot(slot, 0, 1).await;
        let patience = patience_key(&key, waiter.node().as_str());
        for key in [door_key(&key), queue_key(&key), patience].iter().take(moved) {
            clustered.move_key(key, 0, 1).await;
        }
        drop(guard);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        clustered.move_keys(slot, 0, 1).await;
        clustered.close_slot(slot, 0, 1).await;
        let guard = soon("the grant", waiting).await.expect("no panic");
        assert_eq!(guard.state(), HoldState::Held);
        release(guard).await;
        eventually("nothing is left to release", SOON, async || holder.status().releasing == 0)
            .await;
    }
}
