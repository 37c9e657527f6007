//! A primary that is away and has no replica, while the others serve.

use std::time::Duration;

use lock_tests::{Clustered, eventually, queued};
use lockcore::{HoldState, LockErrorKind};

use crate::common::{SOON, connect, held, soon};

/// Longer than it takes to notice that a killed server is gone.
const WAIT: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_queued_wait_that_ends_while_its_own_primary_is_away_is_an_outage() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let mut all = Vec::new();
    for primary in [1, 0] {
        let key = clustered.key_of(primary, 0);
        let guard = held(&locks, &key).await;
        let waiting = tokio::spawn(locks.key(&key).wait(WAIT).lock().into_future());
        queued(&locks, &key, 1).await;
        all.push((guard, waiting));
    }
    clustered.server(1).kill();
    eventually("the link is down", SOON, async || all[0].0.state() == HoldState::Uncertain).await;
    assert!(!all[0].1.is_finished(), "it waits for its turn");
    assert_eq!(all[1].0.state(), HoldState::Held, "the other primary is up");
    let mut kinds = Vec::new();
    for (_, waiting) in &mut all {
        let error = soon("the end", waiting).await.expect("no panic").expect_err("it is held");
        kinds.push((error.kind(), error.is_outage()));
    }
    assert_eq!(kinds, [(LockErrorKind::Unavailable, true), (LockErrorKind::Timeout, false)]);
}
