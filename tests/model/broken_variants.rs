//! Broken variants: each breaks the expected law.

use stateright::{Checker, HasDiscoveries, Model};

use crate::NOTHING;
use crate::model::{Locking, SHORT_MS, Scope, Want};
use crate::properties;
use crate::state::Budget;
use crate::variant::Variant;

/// Finds the shortest path to a broken law; returns the law.
fn broken(
    variant: Variant,
    budget: Budget,
    homes: &'static [u8],
    wants: &'static [Want],
) -> Vec<&'static str> {
    let operations = &[1; 4][..homes.len()];
    let scope = Scope {
        homes,
        wants,
        beside_jvms: false,
        operations,
        tries: true,
        drops: true,
        one_by_one: variant == Variant::ForgetsMore,
        acquires: usize::MAX,
        is_fast: false,
        batch_limit: 1,
        step_ms: SHORT_MS,
        is_kept: false,
        budget,
        served_one_in: 1,
    };
    let checker = Locking::new(scope, variant)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let always = checker.model().properties().into_iter();
    let names = always.filter(|property| property.expectation.discovery_is_failure());
    names.map(|property| property.name).filter(|name| checker.discovery(name).is_some()).collect()
}

/// Asserts that the shortest path to a broken law breaks one of these laws.
#[track_caller]
fn breaks(variant: Variant, budget: Budget, laws: &[&str]) {
    let broken = broken(variant, budget, &[0, 1], &[]);
    assert!(laws.iter().any(|law| broken.contains(law)), "{variant:?} breaks {broken:?}");
}

const CALM: Budget = NOTHING;
const SLOW: Budget = Budget { passes: 2, ..NOTHING };

#[test]
fn a_client_that_counts_from_the_reply_believes_too_long() {
    breaks(Variant::CountsFromTheReply, SLOW, &[properties::GUARDED]);
}

#[test]
fn a_client_that_counts_from_the_arrival_of_a_message_believes_too_long() {
    let slow = Budget { passes: 3, ..NOTHING };
    breaks(Variant::CountsFromTheMessage, slow, &[properties::GUARDED]);
}

#[test]
fn a_member_that_is_enqueued_again_takes_an_old_message_for_a_new_one() {
    let slow = Budget { passes: 3, ..NOTHING };
    breaks(Variant::KeepsItsMember, slow, &[properties::GUARDED]);
}

#[test]
fn without_tombstones_a_late_acquire_is_granted_to_nobody() {
    let budget = Budget { losses: 1, cancels: 1, ..NOTHING };
    breaks(Variant::NoTombstone, budget, &[properties::AGAIN, properties::CLEAN]);
}

#[test]
fn who_forgets_to_leave_stays_behind() {
    let budget = Budget { cancels: 1, ..NOTHING };
    breaks(Variant::ForgetsToLeave, budget, &[properties::CLEAN, properties::UNSTUCK]);
}

#[test]
fn who_never_asks_again_waits_for_ever_after_a_lost_message() {
    breaks(Variant::NeverAsksAgain, Budget { losses: 1, ..NOTHING }, &[properties::SERVED]);
}

#[test]
fn a_server_that_does_not_compare_releases_anybody() {
    let late = Budget { passes: 1, ..NOTHING };
    breaks(Variant::ReleasesAnybody, late, &[properties::STALE, properties::FIT]);
}

#[test]
fn a_server_that_revives_holds_is_seen() {
    breaks(Variant::RevivesHolds, SLOW, &[properties::STALE]);
}

#[test]
fn a_server_that_does_not_count_tokens_repeats_them() {
    breaks(Variant::ForgetsTokens, CALM, &[properties::RISING]);
}

#[test]
fn a_server_that_lets_newcomers_barge_is_unfair() {
    let budget = Budget { passes: 1, ..NOTHING };
    let broken = broken(Variant::LetsBarge, budget, &[0, 1, 2], &[]);
    assert_eq!(broken, [properties::ORDER]);
}

#[test]
fn a_server_that_passes_over_the_living_is_seen() {
    breaks(
        Variant::PassesOverTheLiving,
        CALM,
        &[properties::ORDER, properties::ON, properties::POSITION],
    );
}

#[test]
fn a_server_that_ignores_touches_loses_positions() {
    breaks(Variant::IgnoresTouches, Budget { passes: 4, ..NOTHING }, &[properties::POSITION]);
}

#[test]
fn a_server_that_keeps_a_released_lock_free_makes_others_wait() {
    breaks(Variant::KeepsItFree, CALM, &[properties::ON]);
}

#[test]
fn a_server_that_exaggerates_is_seen() {
    breaks(Variant::Exaggerates, CALM, &[properties::WORDS]);
}

#[test]
fn a_server_that_keeps_a_hold_for_ever_is_seen() {
    breaks(Variant::KeepsForEver, CALM, &[properties::ENDS]);
}

/// Asserts, for clients with these demands, that the first broken law is one of these laws.
#[track_caller]
fn breaks_among(
    variant: Variant,
    budget: Budget,
    homes: &'static [u8],
    wants: &'static [Want],
    laws: &[&str],
) {
    let broken = broken(variant, budget, homes, wants);
    assert!(laws.iter().any(|law| broken.contains(law)), "{variant:?} breaks {broken:?}");
}

#[test]
fn a_server_that_does_not_bring_back_those_that_were_skipped_is_seen() {
    let budget = Budget { cuts: 1, ..NOTHING };
    breaks_among(Variant::LeavesThemAside, budget, &[0, 1], &[], &[properties::POSITION]);
}

#[test]
fn a_server_that_brings_them_back_at_the_end_of_the_queue_is_seen() {
    let budget = Budget { cuts: 1, ..NOTHING };
    breaks_among(Variant::BringsThemBackLast, budget, &[0, 1, 2, 3], &[], &[properties::POSITION]);
}

#[test]
fn a_server_that_does_not_look_at_weights_is_seen() {
    let wants = &[Want::Permits(2, 3), Want::Permits(2, 3)];
    breaks_among(Variant::OverlooksWeights, CALM, &[0, 1], wants, &[properties::FIT]);
}

#[test]
fn a_reader_that_overtakes_a_waiting_lock_is_seen() {
    breaks_among(
        Variant::LetsBarge,
        CALM,
        &[0, 1, 2],
        &[Want::Read, Want::Lock, Want::Read],
        &[properties::ORDER],
    );
}

#[test]
fn permits_of_an_ended_lease_that_stay_in_the_sum_are_seen() {
    let homes = &[0, 1];
    let wants = &[Want::Permits(2, 3), Want::Permits(2, 3)];
    breaks_among(Variant::LeavesTheLapsedInTheSum, SLOW, homes, wants, &[properties::SUM]);
}

#[test]
fn a_server_that_grants_one_reader_of_two_is_seen() {
    let wants = &[Want::Read, Want::Lock];
    breaks_among(Variant::GrantsOneOnly, CALM, &[0, 0, 1], wants, &[properties::ON]);
}

#[test]
fn who_is_told_that_there_is_more_and_does_not_ask_is_seen() {
    let wants = &[Want::Read, Want::Lock];
    breaks_among(Variant::ForgetsMore, CALM, &[0, 0, 1], wants, &[properties::REST]);
}

#[test]
fn a_lock_with_the_token_of_the_readers_before_it_is_seen() {
    let wants = &[Want::Read, Want::Lock];
    breaks_among(Variant::ForgetsTokens, CALM, &[0, 1], wants, &[properties::RISING]);
}

#[test]
fn a_read_that_was_a_lock_and_keeps_its_token_is_seen() {
    let wants = &[Want::Read, Want::Lock];
    let budget = Budget { downgrades: 1, ..NOTHING };
    let variant = Variant::DowngradesUnderTheOldToken;
    breaks_among(variant, budget, &[0, 1], wants, &[properties::RISING]);
}

const ALL_NEWEST: &[Want] = &[Want::Newest, Want::Newest, Want::Newest];

#[test]
fn an_older_one_that_waits_beside_a_newer_one_is_seen() {
    let homes = &[0, 1, 2];
    breaks_among(Variant::KeepsTheOlder, CALM, homes, ALL_NEWEST, &[properties::POSITION]);
}

#[test]
fn one_that_left_for_a_newer_one_and_is_back_is_seen() {
    let (homes, budget) = (&[0, 1, 2], Budget { losses: 1, ..NOTHING });
    let laws = &[properties::AGAIN, properties::POSITION, properties::WORDS];
    breaks_among(Variant::BringsBackTheSuperseded, budget, homes, ALL_NEWEST, laws);
}

#[test]
fn a_read_that_is_renewed_after_its_end_is_seen() {
    let wants = &[Want::Read, Want::Lock];
    breaks_among(Variant::RevivesHolds, SLOW, &[0, 1], wants, &[properties::STALE]);
}
