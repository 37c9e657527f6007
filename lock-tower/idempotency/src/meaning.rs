//! `Meaning`: what a response means for the handler's work.

use http::StatusCode;

/// What a response means for the handler's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The work was done, or refused for good. The response is stored, and sent to every later
    /// request.
    Done,
    /// Nothing was done. The next request with the key runs the handler, like a first request.
    NothingDone,
    /// It is unknown whether anything was done, as after a process death: the next request runs the
    /// handler [again](crate::Attempt::is_again), or
    /// [not](crate::IdempotencyLayer::remember_starts).
    Unknown,
}

impl Meaning {
    /// Classifies a status code.
    ///
    /// 2xx, 3xx, 400, 402, 404, 410 and 422 mean done. 408 and 5xx mean unknown, except 501, 503,
    /// 505 and 511. All others, such as 401, 429 and 503, mean nothing done.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=399 | 400 | 402 | 404 | 410 | 422 => Self::Done,
            501 | 503 | 505 | 511 => Self::NothingDone,
            408 | 500.. => Self::Unknown,
            _ => Self::NothingDone,
        }
    }
}
