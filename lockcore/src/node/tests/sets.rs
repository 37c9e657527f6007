//! Sets of locks.

use std::time::Duration;

use futures_util::poll;
use proto::LockErrorKind;
use tokio::time::sleep;

use super::soon;
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;

#[tokio::test(start_paused = true)]
async fn a_set_is_not_returned_with_a_lock_that_was_lost_before_the_last_grant() {
    let store = MemoryStore::new();
    let [a, b] = [(); 2].map(|()| Locks::builder().on_memory(&store).expect("options"));
    let second = a.lock("two").await.expect("free");
    let mut set = Box::pin(b.lock_all(["one", "two"]).into_future());
    while a.inspect("two").await.expect("an inspection").waiters.is_empty() {
        assert!(poll!(set.as_mut()).is_pending());
        sleep(Duration::from_millis(1)).await;
    }
    assert!(a.force_release("one").await.expect("an answer"));
    second.release().await.expect("held until now");
    // Both the loss and the grant arrive before the set is polled again.
    sleep(Duration::from_millis(10)).await;
    let error = soon(set).await.expect_err("one is lost");
    assert_eq!(error.kind(), LockErrorKind::Lost);
    drop(soon(a.lock("two")).await.expect("the set has released it"));
}
