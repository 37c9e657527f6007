//! `Value`: the answer of a script, as any client of Redis has it.

use crate::error::{LockErrorKind, StoreError};
use crate::token::FencingToken;

/// The answer of a script, or a part of it. No script answers with anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// Nothing.
    Nil,
    /// An integer.
    Integer(i64),
    /// A text.
    Text(&'a str),
    /// A list.
    List(Vec<Value<'a>>),
    /// A form that no answer of a script has, such as a text that is not UTF-8.
    Other,
}

impl<'a> Value<'a> {
    pub(super) fn text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn integer(&self) -> Option<u64> {
        match self {
            Self::Integer(integer) => u64::try_from(*integer).ok(),
            _ => None,
        }
    }
}

pub(super) fn fencing_token(text: &str) -> Option<FencingToken> {
    FencingToken::try_from(text.parse::<u64>().ok()?).ok()
}

/// The error of an answer that has no known form.
pub fn nonsense() -> StoreError {
    let detail = "a script's answer has an unexpected form";
    StoreError { may_have_run: true, ..StoreError::refused(LockErrorKind::Protocol, detail) }
}

/// Whether an answer had no known form, rather than that the server says something against a lock.
pub fn is_nonsense(error: &StoreError) -> bool {
    error.kind == LockErrorKind::Protocol && error.may_have_run
}
