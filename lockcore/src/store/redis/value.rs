//! The parts of a script's answer.

use redis::Value;

use crate::error::{LockErrorKind, StoreError};
use crate::token::FencingToken;

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(integer) => u64::try_from(*integer).ok(),
        _ => None,
    }
}

pub(super) fn fencing_token(text: &str) -> Option<FencingToken> {
    FencingToken::try_from(text.parse::<u64>().ok()?).ok()
}

/// The error of an answer that has no known form.
pub(super) fn nonsense() -> StoreError {
    let detail = "a script's answer has an unexpected form";
    StoreError { may_have_run: true, ..StoreError::refused(LockErrorKind::Protocol, detail) }
}

/// Whether an answer had no known form, rather than that the server says something against a lock.
pub(super) fn is_nonsense(error: &StoreError) -> bool {
    error.kind == LockErrorKind::Protocol && error.may_have_run
}
