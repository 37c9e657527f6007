//! Faults of one primary at a time, under load.

use lock_tests::chaos::{PrimaryFault, quorum_faults};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_primary_in_any_trouble_one_guard_is_valid_at_a_time_and_tokens_rise() {
    let outcome = quorum_faults(1, 0, &PrimaryFault::ALL).await;
    assert_eq!((outcome.doubled, outcome.fallen), (0, 0), "{outcome:?}");
    assert!(outcome.guards > 500, "{outcome:?}");
}
