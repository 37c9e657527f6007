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
    /// The text, if it is one.
    pub fn text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one and not below 0.
    pub fn integer(&self) -> Option<u64> {
        match self {
            Self::Integer(integer) => u64::try_from(*integer).ok(),
            _ => None,
        }
    }
}

/// The content of an answer to one request. It tells the member for which it was asked, unless it
/// is only a number: if an answer goes missing on the way, all later ones reach other requests than
/// their own, and none may grant, renew or end anything there.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// A number, as it says nothing of a hold.
    Number(i64),
    /// A text, without the member behind it.
    Text(&'a str),
    /// The parts of an answer in full, without the member in front of them.
    Full(&'a [Value<'a>]),
}

impl<'a> Told<'a> {
    /// The content for the request that was made for this member, or for this key where it is about
    /// none. Nothing if the answer is to another request.
    pub fn to(asked: &str, answer: &'a Value<'a>) -> Option<Self> {
        Some(match answer {
            Value::Integer(number) => Self::Number(*number),
            Value::Text(text) => Self::Text(text.strip_suffix(asked)?),
            Value::List(parts) => {
                let (of, parts) = parts.split_first()?;
                if of.text()? != asked {
                    return None;
                }
                Self::Full(parts)
            }
            Value::Nil | Value::Other => return None,
        })
    }
}

/// Reads a token.
pub fn fencing_token(text: &str) -> Option<FencingToken> {
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
