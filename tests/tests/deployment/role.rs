//! The role of `docs/recipes/jobs.md`, which a single process has at a time.

include!("lead.rs");

use std::sync::atomic::{AtomicUsize, Ordering};

static TERMS: AtomicUsize = AtomicUsize::new(0);

/// A role that ends at once.
async fn act(_token: i64) {
    assert!(TERMS.fetch_add(1, Ordering::SeqCst) < 10, "it begins without a pause");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_ends_at_once_begins_again_each_second_until_it_is_stopped() {
    let stop = CancellationToken::new();
    let leading = tokio::spawn(lead(Locks::in_memory(), stop.clone()));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(TERMS.load(Ordering::SeqCst), 3);
    stop.cancel();
    leading.await.expect("it ends");
}
