//! `Outcome`: how a request ended, and the encoding in which it is stored.

use std::fmt;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::record::answer::Answer;

/// The first byte of an encoded [`Outcome::Kept`].
const KEPT: u8 = 1;
/// The first byte of an encoded [`Outcome::NotKept`].
const NOT_KEPT: u8 = 2;

/// The maximum size of an encoded [`Outcome`], in bytes. A larger outcome is neither written nor
/// read.
pub const MAX_OUTCOME_BYTES: usize = 8 << 20;

/// The outcome of a request whose work was done, as stored in its record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The response is stored, and sent to later requests.
    Kept(Answer),
    /// The response is not stored, only its status, because it was too large, a stream or
    /// compressed. Later requests are refused, and never run the handler again.
    NotKept(StatusCode),
}

impl Outcome {
    /// Creates [`Outcome::Kept`] with this response, or [`Outcome::NotKept`] with the status if the
    /// encoded response would be larger than [`MAX_OUTCOME_BYTES`].
    pub(crate) fn kept(answer: Answer) -> Self {
        let status = answer.status;
        let outcome = Self::Kept(answer);
        match outcome.encoded_bytes() <= MAX_OUTCOME_BYTES {
            true => outcome,
            false => Self::NotKept(status),
        }
    }

    /// Encodes the outcome as bytes to be stored. [`decode`](Self::decode) is the inverse.
    ///
    /// | bytes | content |
    /// |---|---|
    /// | 1 | 1 if the response is stored, 2 if not |
    /// | 2 | status |
    /// | 2 | number of headers; this field and the following only if the response is stored |
    /// | 2 + n, 4 + n | name and value of each header |
    /// | 4 + n | body |
    ///
    /// Numbers are big-endian. Each name, value and body is preceded by the length n.
    pub fn encode(&self) -> Bytes {
        let (kind, status) = match self {
            Self::Kept(answer) => (KEPT, answer.status),
            Self::NotKept(status) => (NOT_KEPT, *status),
        };
        let mut form = BytesMut::new();
        form.put_u8(kind);
        form.put_u16(status.as_u16());
        if let Self::Kept(Answer { headers, body, .. }) = self {
            // A `HeaderMap` has at most 2^15 values, and names of less than 2^16 bytes.
            form.put_u16(headers.len() as u16);
            for (name, value) in headers {
                form.put_u16(name.as_str().len() as u16);
                form.put_slice(name.as_str().as_bytes());
                put(&mut form, value.as_bytes());
            }
            put(&mut form, body);
        }
        form.freeze()
    }

    /// Returns how many bytes the outcome has when encoded, without encoding it.
    fn encoded_bytes(&self) -> usize {
        let Self::Kept(Answer { headers, body, .. }) = self else { return 3 };
        let each =
            |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + 6;
        5 + headers.iter().map(each).sum::<usize>() + 4 + body.len()
    }

    /// Decodes an outcome from stored bytes, which [`encode`](Self::encode) has returned.
    ///
    /// # Errors
    /// [`MalformedOutcome`] if the bytes are not exactly what [`encode`](Self::encode) returns:
    /// truncated, with trailing bytes, or from a newer version.
    pub fn decode(form: Bytes) -> Result<Self, MalformedOutcome> {
        read(form).ok_or(MalformedOutcome { _private: () })
    }
}

/// Writes bytes, preceded by their length in 4 bytes.
fn put(form: &mut BytesMut, bytes: &[u8]) {
    // The length only overflows in an outcome over `MAX_OUTCOME_BYTES`, which is not written.
    form.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    form.put_slice(bytes);
}

fn read(mut form: Bytes) -> Option<Outcome> {
    let kind = form.try_get_u8().ok()?;
    let status = StatusCode::from_u16(form.try_get_u16().ok()?).ok()?;
    let outcome = match kind {
        KEPT => {
            let count = form.try_get_u16().ok()?;
            let mut headers = HeaderMap::new();
            for _ in 0..count {
                let length = form.try_get_u16().ok()?;
                let name = HeaderName::from_lowercase(&take(&mut form, length.into())?).ok()?;
                let value = take_field(&mut form)?;
                headers.try_append(name, HeaderValue::from_maybe_shared(value).ok()?).ok()?;
            }
            let body = take_field(&mut form)?;
            Outcome::Kept(Answer { status, headers, body })
        }
        NOT_KEPT => Outcome::NotKept(status),
        _ => return None,
    };
    form.is_empty().then_some(outcome)
}

fn take_field(form: &mut Bytes) -> Option<Bytes> {
    let length = form.try_get_u32().ok()?;
    take(form, usize::try_from(length).ok()?)
}

fn take(form: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= form.len()).then(|| form.split_to(length))
}

/// The error for bytes that do not decode to an [`Outcome`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedOutcome {
    _private: (),
}

impl fmt::Display for MalformedOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored outcome is truncated, or from another version")
    }
}

impl std::error::Error for MalformedOutcome {}
