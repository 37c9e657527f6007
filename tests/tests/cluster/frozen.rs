//! A frozen primary, with more requests in flight to it than the limit per primary.

use lock_tests::Clustered;
use lock_tests::chaos::{FrozenPrimary, frozen_primary};

// H3: the limit was common to all primaries, so nothing reached the other primaries for 2 to 4 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_stands_still_costs_the_others_neither_a_turn_nor_a_hold() {
    let mut clustered = Clustered::steady().await;
    let FrozenPrimary { holds, lost, turns, longest } =
        frozen_primary(&mut clustered, 0, 300).await;
    assert_eq!(lost, 0, "of {holds} holds on other primaries");
    assert!(longest < FrozenPrimary::BOUND, "the longest of {turns} turns took {longest:?}");
}
