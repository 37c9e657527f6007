//! Stored outcomes of idempotency keys: bytes are an outcome that is written and read back alike,
//! or none.

use bytes::Bytes;
use http::header::LINK;
use http::{HeaderValue, Response, StatusCode};
use lock_idempotency::{Answer, Outcome};

use super::source::Source;

pub(crate) fn check(bytes: &[u8]) {
    read(bytes);
    let mut source = Source::new(bytes);
    let outcome = outcome(&mut source);
    let mut form = outcome.encode().to_vec();
    assert_eq!(Outcome::decode(form.clone().into()), Ok(outcome));
    let at = source.below(form.len());
    assert!(Outcome::decode(form[..at].to_vec().into()).is_err(), "cut at {at}: {form:?}");
    match source.below(3) {
        0 => form[at] = form[at].wrapping_add(1 << source.below(8)),
        1 => form.insert(at, 0),
        _ => drop(form.remove(at)),
    }
    read(&form);
}

/// Reads the bytes, and if they are an outcome, writes it and reads it again.
fn read(bytes: &[u8]) {
    let Ok(outcome) = Outcome::decode(Bytes::copy_from_slice(bytes)) else { return };
    let form = outcome.encode();
    // Headers of one name stand together in what is written.
    assert_eq!(form.len(), bytes.len(), "nothing is left out: {bytes:?}");
    assert_eq!(Outcome::decode(form), Ok(outcome), "{bytes:?}");
}

fn outcome(source: &mut Source<'_>) -> Outcome {
    let number = 100 + source.below(900);
    let status = u16::try_from(number).ok().and_then(|status| StatusCode::from_u16(status).ok());
    let status = status.expect("a status has three digits");
    if source.below(4) == 0 {
        return Outcome::NotKept(status);
    }
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status;
    for _ in 0..source.below(4) {
        if let Ok(value) = HeaderValue::from_bytes(&source.bytes(4)) {
            parts.headers.append(LINK, value);
        }
    }
    Outcome::Kept(Answer::new(&parts, source.bytes(8).into()))
}
