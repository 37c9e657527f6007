//! `Value`: a script's reply, as any Redis client represents it.

use crate::error::{LockErrorKind, StoreError};
use crate::token::FencingToken;

/// A script's reply, or a part of it. Scripts reply with nothing else.
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
    /// A form that no script reply has, such as text that is not UTF-8.
    Other,
}

impl<'a> Value<'a> {
    /// Returns the text, if it is text.
    pub fn text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer, if it is an integer and not below 0.
    pub fn integer(&self) -> Option<u64> {
        match self {
            Self::Integer(integer) => u64::try_from(*integer).ok(),
            _ => None,
        }
    }
}

/// The content of a single request's reply. A reply names the requested member, unless it is only a
/// number: if a reply is lost on the way, all later replies reach the wrong requests, where they
/// must not grant, renew or end anything.
#[derive(Debug, Clone, Copy)]
pub enum Told<'a> {
    /// A number, never about a hold.
    Number(i64),
    /// A text, without the member behind it.
    Text(&'a str),
    /// A full reply's parts, without the member before them.
    Full(&'a [Value<'a>]),
}

impl<'a> Told<'a> {
    /// Returns the content for the request about this member, or about this key if it concerns no
    /// member. `None` if the reply belongs to another request.
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

/// Parses a token.
pub fn fencing_token(text: &str) -> Option<FencingToken> {
    FencingToken::try_from(text.parse::<u64>().ok()?).ok()
}

/// Returns the error for a reply of unknown form.
pub fn nonsense() -> StoreError {
    let detail = "unexpected reply from a script";
    StoreError { may_have_run: true, ..StoreError::refused(LockErrorKind::Protocol, detail) }
}

/// Whether a reply had no known form, as opposed to a server error about a lock.
pub fn is_nonsense(error: &StoreError) -> bool {
    error.kind == LockErrorKind::Protocol && error.may_have_run
}
