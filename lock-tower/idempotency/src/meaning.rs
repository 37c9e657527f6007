//! `Meaning`: what an answer says about the work of its handler.

use http::StatusCode;

/// What an answer says about the work of its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The work was done, or refused for good. The answer is kept, and is every later request's.
    Done,
    /// Nothing was done. The next request with the key runs the handler, as if it were the first.
    NothingDone,
    /// It is unknown whether anything was done, as where a process has died: the next request runs
    /// the handler [again](crate::Attempt::is_again), or
    /// [not](crate::IdempotencyLayer::remember_starts).
    Unknown,
}

impl Meaning {
    /// The meaning of a status code.
    ///
    /// 2xx, 3xx, 400, 402, 404, 410 and 422 say that the work was done. 408 and 5xx say nothing
    /// about it, but for 501, 503, 505 and 511. All others, such as 401, 429 and 503, say that
    /// nothing was done.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=399 | 400 | 402 | 404 | 410 | 422 => Self::Done,
            501 | 503 | 505 | 511 => Self::NothingDone,
            408 | 500.. => Self::Unknown,
            _ => Self::NothingDone,
        }
    }
}
