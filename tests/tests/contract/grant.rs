//! Grants: confirmed, or missed.

use lockcore::{LockOptions, Locks, MemoryStore};

use crate::backend::{Backend, LONG, granted, soon, until_nothing_is_left, wait_as};

on_every_store!(a_node_that_confirms_its_grants_is_served_in_order_and_to_the_full_lease);

async fn a_node_that_confirms_its_grants_is_served_in_order_and_to_the_full_lease(
    backend: &Backend,
) {
    let options = LockOptions::new().lease(LONG);
    let plain = backend.node().await;
    let builder = Locks::builder().defaults(options).confirm_grants(true);
    let confirming = backend.build(builder).await;
    for _ in 0..5 {
        let guard = plain.lock("key").await.expect("free");
        let first = wait_as(1, &confirming, "key").await;
        let second = wait_as(2, &confirming, "key").await;
        let third = wait_as(3, &plain, "key").await;
        guard.release().await.expect("held until now");
        let first = granted(first).await;
        let lease = plain.inspect("key").await.expect("an inspection").holders[0].lease_left;
        assert!(lease > LONG / 2, "renewed before it was handed out: {lease:?}");
        assert!(!second.is_finished());
        first.release().await.expect("held until now");
        granted(second).await.release().await.expect("held until now");
        granted(third).await.release().await.expect("held until now");
        until_nothing_is_left(&confirming, "key").await;
    }
}

// An Acquire may be kept without polling: it then costs the others a claim, and its own turn.
#[tokio::test(start_paused = true)]
async fn a_grant_whose_future_is_not_polled_is_passed_on_after_a_claim_and_had_later() {
    let store = MemoryStore::new();
    let options = LockOptions::new().lease(LONG);
    let node = || Locks::builder().defaults(options).on_memory(&store).expect("options");
    let a = node();
    let b = node();
    let guard = a.lock("key").await.expect("free");
    let mut unread = Box::pin(b.lock("key"));
    assert!(futures_util::poll!(unread.as_mut()).is_pending());
    let next = wait_as(2, &a, "key").await;
    guard.release().await.expect("held until now");
    let granted_at = tokio::time::Instant::now();
    let next = tokio::time::timeout(2 * LONG, next).await.expect("it is not renewed for ever");
    let next = next.expect("no panic").expect("granted");
    assert!(granted_at.elapsed() < LONG, "it cost {:?}", granted_at.elapsed());
    assert_eq!(b.status().positions_lost, 1);
    next.release().await.expect("held until now");
    let guard = soon(unread).await.expect("in its second turn");
    guard.release().await.expect("held until now");
    until_nothing_is_left(&b, "key").await;
}
