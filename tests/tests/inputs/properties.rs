//! Properties that hold for every input, on random ones that shrink: 210 000 a run.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::checks;

const CASES: u32 = 30_000;

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn no_two_names_share_a_key_and_each_stays_in_its_namespace_and_slot(bytes in vec(any::<u8>(), 0..80)) {
        checks::name::check(&bytes);
    }

    #[test]
    fn an_answer_is_read_as_what_it_says_or_refused(bytes in vec(any::<u8>(), 0..120)) {
        checks::reply::check(&bytes);
    }

    #[test]
    fn an_answer_of_a_queue_with_jvms_is_read_as_what_it_says_or_refused(bytes in vec(any::<u8>(), 0..120)) {
        checks::redisson::check(&bytes);
    }

    #[test]
    fn a_message_is_read_as_what_it_says_or_ignored(bytes in vec(any::<u8>(), 0..80)) {
        checks::message::check(&bytes);
    }

    #[test]
    fn a_request_has_one_key_for_all_spellings_of_it_or_is_refused(bytes in vec(any::<u8>(), 0..80)) {
        checks::request::check(&bytes);
    }

    #[test]
    fn bytes_of_a_server_are_the_same_answers_wherever_they_are_cut(bytes in vec(any::<u8>(), 0..120)) {
        checks::answers::check(&bytes);
    }

    #[test]
    fn a_stored_outcome_is_read_as_it_was_written_or_refused(bytes in vec(any::<u8>(), 0..120)) {
        checks::record::check(&bytes);
    }
}

#[test]
fn the_slots_of_the_specification_are_computed_right() {
    checks::name::check_slots();
}

#[test]
fn a_name_of_every_length_is_taken_up_to_the_greatest_and_refused_beyond() {
    for length in 0..=lockcore::LockKey::MAX_BYTES + 2 {
        let found = lockcore::LockKey::new("x".repeat(length));
        assert_eq!(found.is_ok(), (1..=512).contains(&length), "{length}");
    }
}
