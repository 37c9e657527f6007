//! Log events, span fields and metrics. None of them contains a scope or a key; events and spans
//! contain the record name, a hash of both.

use tracing::field::Empty;
use tracing::{Span, debug_span, error, warn};

use crate::record::key::RecordKey;
use crate::refusal::{Cause, Refusal};
use crate::store::error::StoreError;

#[cfg(feature = "metrics")]
const SERVED: &str = "lock_idempotency_served_total";
#[cfg(feature = "metrics")]
const REFUSED: &str = "lock_idempotency_refused_total";

/// How a request with a key ended, if it was not refused. Reported as `outcome`, a field in spans
/// and a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The handler ran, and the response is stored.
    Stored,
    /// The handler ran, and the response is not stored, because it is too large, a stream or
    /// compressed.
    NotKept,
    /// The handler ran, and the response could not be stored, because the store failed or had lost
    /// the record.
    NotStored,
    /// Nothing was done: the response of the handler means this, or the handler did not run because
    /// the inner service failed before.
    NothingDone,
    /// The handler ran, and the response leaves open whether anything was done.
    Unknown,
    /// The handler returned an error instead of a response, or panicked.
    NoAnswer,
    /// An earlier request's response was sent.
    Replayed,
}

impl End {
    #[cfg(feature = "metrics")]
    const ALL: [Self; 7] = [
        Self::Stored,
        Self::NotKept,
        Self::NotStored,
        Self::NothingDone,
        Self::Unknown,
        Self::NoAnswer,
        Self::Replayed,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::NotKept => "not_kept",
            Self::NotStored => "not_stored",
            Self::NothingDone => "nothing_done",
            Self::Unknown => "unknown",
            Self::NoAnswer => "no_answer",
            Self::Replayed => "replayed",
        }
    }
}

/// Creates the span for a request with a key, which lasts from reading the body to the response.
pub(crate) fn span(record: &RecordKey) -> Span {
    debug_span!("idempotency", %record, outcome = Empty, again = Empty)
}

/// Registers all counters at 0. Otherwise `increase()` in a query would not see the first event of
/// each.
pub(crate) fn register() {
    #[cfg(feature = "metrics")]
    {
        for end in End::ALL {
            metrics::counter!(SERVED, "outcome" => end.name()).increment(0);
        }
        for cause in Cause::ALL {
            metrics::counter!(REFUSED, "cause" => cause.code()).increment(0);
        }
    }
}

/// Records a handler panic: dropped while the thread panics, it records
/// [`End::NoAnswer`].
#[derive(Debug)]
pub(crate) struct HandlerPanics;

impl Drop for HandlerPanics {
    fn drop(&mut self) {
        if std::thread::panicking() {
            ended(End::NoAnswer);
        }
    }
}

/// Records how a request ended, in the current span and in the metrics.
pub(crate) fn ended(end: End) {
    Span::current().record("outcome", end.name());
    #[cfg(feature = "metrics")]
    metrics::counter!(SERVED, "outcome" => end.name()).increment(1);
}

/// Records a refusal in the current span and in the metrics. Logs an error if the cause is the
/// server's fault.
pub(crate) fn refused(refusal: &Refusal) {
    let code = refusal.cause().code();
    Span::current().record("outcome", code);
    match refusal.cause() {
        Cause::Misconfigured => error!("a scope has an empty part: its requests are refused"),
        Cause::RunTooLong => {
            error!("a handler was stopped after `max_run`: its effects are unknown")
        }
        Cause::Overtaken => {
            error!("a lock was lost, and a later request has begun: the response is not sent");
        }
        _ => {}
    }
    #[cfg(feature = "metrics")]
    metrics::counter!(REFUSED, "cause" => code).increment(1);
}

/// Records in the current span, and logs, that the handler runs again because an earlier attempt
/// left no response.
pub(crate) fn again(record: &RecordKey) {
    Span::current().record("again", true);
    warn!(%record, "an earlier attempt left no response: the handler runs again");
}

/// Logs a store error that caused the refusal of a request before the handler began.
pub(crate) fn store_failed(record: &RecordKey, error: &StoreError) {
    error!(%record, %error, "a request is refused, because its record is unknown");
}

/// Logs that a response was not stored although the work was done. `error` is `None` if the store
/// has lost the record.
pub(crate) fn not_stored(record: &RecordKey, error: Option<&StoreError>) {
    match error {
        Some(error) => error!(%record, %error, "the work was done, but the response is not stored"),
        None => error!(
            %record,
            "the work was done, but the response is not stored: the store has lost the record"
        ),
    }
}

/// Logs that a request did nothing, and that its record could not be removed.
pub(crate) fn not_ended(record: &RecordKey, error: &StoreError) {
    warn!(%record, %error, "no work was done, and the record could not be removed");
}
