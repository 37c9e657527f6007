//! `Meaning`: what a response says about the handler's work.

use http::StatusCode;

/// What a response says about the handler's work. It determines whether the response is stored, and
/// what the next request with the key receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The work was done, or refused for good. The response is stored, and sent to every later
    /// request with the key.
    Done,
    /// Nothing was done by this attempt. The response is not stored, and the next request with the
    /// key runs the handler like a first request.
    ///
    /// If an earlier attempt left no response ([`Attempt::is_again`](crate::Attempt::is_again)),
    /// that attempt may have done the work. Then the next request is handled as after
    /// [`Unknown`](Self::Unknown).
    NothingDone,
    /// It is unknown whether anything was done. The response is not stored. The next request with
    /// the key runs the handler [again](crate::Attempt::is_again), or [is
    /// refused](crate::IdempotencyLayer::remember_starts).
    Unknown,
}

impl Meaning {
    /// Returns the default meaning of a response with this status code.
    ///
    /// 2xx, 3xx, 400, 402, 404, 410 and 422 are [`Done`](Self::Done). 408 and 5xx, except 501, 503,
    /// 505 and 511, are [`Unknown`](Self::Unknown). All others, such as 401, 429 and 503, are
    /// [`NothingDone`](Self::NothingDone).
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            200..=399 | 400 | 402 | 404 | 410 | 422 => Self::Done,
            501 | 503 | 505 | 511 => Self::NothingDone,
            408 | 500.. => Self::Unknown,
            _ => Self::NothingDone,
        }
    }
}
