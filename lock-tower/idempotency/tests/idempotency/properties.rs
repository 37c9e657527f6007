//! Fingerprints, record names and stored outcomes, on random inputs.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderValue, Request, Response, StatusCode};
use lock_idempotency::{Answer, Fingerprint, Outcome, RecordKey, Scope};
use proptest::prelude::*;

/// The parts of a request that its fingerprint covers: method, path, content type and body.
type Head = (String, String, Option<String>, Vec<u8>);

fn head() -> impl Strategy<Value = Head> {
    let method =
        prop_oneof![Just("POST".to_owned()), Just("PATCH".to_owned()), Just("P".to_owned())];
    // Few letters, so that fields are often equal, or equal when concatenated.
    let path = "/[ab]{0,3}(\\?[ab]{0,2})?";
    (method, path, proptest::option::of("[ab]{0,3}"), proptest::collection::vec(97_u8..99, 0..4))
}

fn fingerprint((method, path, content_type, body): &Head) -> Fingerprint {
    let mut request = Request::builder().method(method.as_str()).uri(path);
    if let Some(content_type) = content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    let (parts, ()) = request.header("x-other", body.len()).body(()).unwrap().into_parts();
    Fingerprint::new(&parts, body)
}

fn scope(parts: &[String]) -> Scope {
    let (first, rest) = parts.split_first().expect("one at least");
    rest.iter().fold(Scope::new(first), |scope, part| scope.and(part))
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let headers = proptest::collection::vec("[ -~]{0,12}", 0..4);
    let body = proptest::collection::vec(any::<u8>(), 0..64);
    (any::<bool>(), 100_u16..1_000, headers, body).prop_map(|(is_kept, status, links, body)| {
        let status = StatusCode::from_u16(status).unwrap();
        if !is_kept {
            return Outcome::NotKept(status);
        }
        let (mut parts, ()) = Response::builder().status(status).body(()).unwrap().into_parts();
        for link in links {
            parts.headers.append(LINK, HeaderValue::from_str(&link).unwrap());
        }
        Outcome::Kept(Answer::new(&parts, body.into()))
    })
}

proptest! {
    #[test]
    fn requests_share_a_fingerprint_only_if_they_are_the_same(one in head(), other in head()) {
        prop_assert_eq!(fingerprint(&one) == fingerprint(&other), one == other);
    }

    #[test]
    fn scopes_and_keys_share_a_record_only_if_they_are_the_same(
        one in (proptest::collection::vec("[a:]{0,2}", 1..4), "[a:]{1,3}"),
        other in (proptest::collection::vec("[a:]{0,2}", 1..4), "[a:]{1,3}"),
    ) {
        let record = |(parts, key): &(Vec<String>, String)| RecordKey::new(&scope(parts), key);
        prop_assert_eq!(record(&one) == record(&other), one == other);
    }

    #[test]
    fn an_outcome_is_read_back_and_a_cut_or_longer_form_is_none(outcome in outcome(), more: u8) {
        let form = outcome.encode();
        prop_assert_eq!(Outcome::decode(form.clone()), Ok(outcome));
        for end in 0..form.len() {
            prop_assert!(Outcome::decode(form.slice(..end)).is_err(), "cut at {}", end);
        }
        let longer = [&form[..], &[more]].concat();
        prop_assert!(Outcome::decode(longer.into()).is_err());
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), outcome in outcome(),
        at: proptest::sample::Index, byte: u8) {
        drop(Outcome::decode(Bytes::from(bytes)));
        let mut form = outcome.encode().to_vec();
        let at = at.index(form.len());
        form[at] = byte;
        // A decoded value can be encoded and decoded again.
        if let Ok(read) = Outcome::decode(form.into()) {
            prop_assert_eq!(Outcome::decode(read.encode()), Ok(read));
        }
    }
}
