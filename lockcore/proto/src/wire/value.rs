//! A script's reply, in a form that any Redis client can build.

use crate::error::{LockErrorKind, StoreError};
use crate::token::FencingToken;

/// A reply of a script, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// No value: Redis' nil.
    Nil,
    /// An integer.
    Integer(i64),
    /// A text in UTF-8.
    Text(&'a str),
    /// A list of values, as an array reply.
    List(Vec<Value<'a>>),
    /// A value that no script returns, such as text that is not UTF-8.
    Other,
}

impl<'a> Value<'a> {
    /// Returns the text; `None` for any other value.
    pub fn text(&self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer; `None` for a negative integer or any other value.
    pub fn integer(&self) -> Option<u64> {
        match self {
            Self::Integer(integer) => u64::try_from(*integer).ok(),
            _ => None,
        }
    }
}

/// The content of the reply to a request, after a check that it belongs to the request. For this
/// check every reply but a number contains the first member of the request. Otherwise, if a reply
/// were lost on the way, later replies would reach the wrong requests, and could grant, renew or
/// end a hold.
#[derive(Debug, Clone, Copy)]
pub enum ReplyBody<'a> {
    /// A number. It never reports a hold.
    Number(i64),
    /// A text, from which the requested member at the end was removed.
    Text(&'a str),
    /// The parts of a full reply, without the first part, the requested member.
    Full(&'a [Value<'a>]),
}

impl<'a> ReplyBody<'a> {
    /// Returns the content of the reply to a request about the member `asked`, or about this key if
    /// the request names no member. `None` if the reply belongs to another request.
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

/// Parses a fencing token; `None` if the text is not a number below 2^53.
pub fn fencing_token(text: &str) -> Option<FencingToken> {
    FencingToken::try_from(text.parse::<u64>().ok()?).ok()
}

/// Returns the error for a reply that has no known form.
pub fn nonsense() -> StoreError {
    let detail = "unexpected reply from a script";
    StoreError { may_have_run: true, ..StoreError::refused(LockErrorKind::Protocol, detail) }
}

/// Returns true if the error is from [`nonsense`]: the reply was not understood. False if the
/// server reported the error.
pub fn is_nonsense(error: &StoreError) -> bool {
    error.kind == LockErrorKind::Protocol && error.may_have_run
}
