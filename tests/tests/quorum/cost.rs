//! The cost of an acquire and release: commands, and round trips.

use std::time::Duration;

use lock_tests::{Monitor, Source};
use lockcore::{Locks, Quorum};
use tokio::time::Instant;

use crate::primaries::{MAX_LEASE, Three};
use crate::relay::Relay;

const PAIRS: usize = 10;

#[tokio::test]
async fn primaries_of_a_quorum_form_no_batches_and_acquire_by_scripts_alone() {
    let three = Three::begun().await;
    let locks = three.locks().await;
    let monitors = [0, 1, 2].map(|at| Monitor::start(three.0[at].address()));
    for _ in 0..PAIRS {
        let guard = locks.lock("k").await.expect("free");
        let waiting = [(); 3].map(|()| tokio::spawn(locks.lock("k")));
        guard.release().await.expect("held");
        for waiting in waiting {
            let guard = waiting.await.expect("no panic").expect("granted");
            guard.release().await.expect("held");
        }
    }
    for monitor in monitors {
        let lines = monitor.stop();
        let sent = lines.iter().filter(|line| matches!(line.source, Source::Client(_)));
        assert!(sent.clone().any(|line| line.is("EVALSHA")));
        assert!(!sent.clone().any(|line| line.is("MULTI")), "a transaction");
        let in_a_batch = |text: &str| text.starts_with("~2") && text.contains(":w/");
        let texts = lines.iter().flat_map(|line| (0..line.args.len()).map(|at| line.text(at)));
        assert_eq!(texts.filter(|text| in_a_batch(text)).count(), 0, "a batch");
    }
}

// Each reply is delayed so much that everything else hardly counts, but less than the timeout per
// primary (100 ms).
#[tokio::test]
async fn a_pair_of_acquire_and_release_takes_three_round_trips() {
    const TRIP: Duration = Duration::from_millis(60);
    let three = Three::begun().await;
    let relays = [0, 1, 2].map(|at| Relay::start(three.0[at].address(), TRIP));
    // With their own addresses they are another list.
    let quorum = Quorum::new(relays.iter().map(Relay::url)).max_lease(MAX_LEASE);
    let builder = Locks::builder().namespace("relayed").lease(MAX_LEASE);
    builder.clone().init_quorum(quorum.clone()).await.expect("they are new");
    let locks = builder.connect(quorum).await.expect("connected");
    let mut shortest = Duration::MAX;
    for _ in 0..10 {
        let began = Instant::now();
        locks.lock("k").await.expect("free").release().await.expect("held");
        shortest = shortest.min(began.elapsed());
    }
    assert!((3 * TRIP..4 * TRIP).contains(&shortest), "{shortest:?}");
}
