//! A primary that stands still, with more requests on their way to it than there are places.

use lock_tests::Clustered;
use lock_tests::chaos::{FrozenPrimary, frozen_primary};

// H3: the places of all primaries were common, so nothing of the others got through for 2 to 4 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_costs_the_others_neither_a_turn_nor_a_hold() {
    let mut clustered = Clustered::steady().await;
    let FrozenPrimary { holds, lost, turns, longest } =
        frozen_primary(&mut clustered, 0, 300).await;
    assert_eq!(lost, 0, "of {holds} holds on other primaries");
    assert!(longest < FrozenPrimary::BOUND, "the longest of {turns} turns took {longest:?}");
}
