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

/// The content of a reply to a single request. Unless a reply is only a number, it contains the
/// requested member. So if a reply is lost on the way and all later replies reach the wrong
/// requests, they are refused there, instead of granting, renewing or ending a hold.
#[derive(Debug, Clone, Copy)]
pub enum ReplyBody<'a> {
    /// A number. It never reports a hold.
    Number(i64),
    /// A text, from which the requested member at the end was removed.
    Text(&'a str),
    /// The parts of a full reply, without the requested member, which comes first.
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

/// Returns true if the error is from [`nonsense`], so that it is not the server's error about a
/// lock.
pub fn is_nonsense(error: &StoreError) -> bool {
    error.kind == LockErrorKind::Protocol && error.may_have_run
}
