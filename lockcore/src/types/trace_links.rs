//! [`TraceLinks`], which connects waits to the application's tracing system.

use std::fmt;

use tracing::Span;

use crate::types::trace_parent::TraceParent;

/// Links waiting requests to the requests that hold the lock, in the application's tracing system:
/// for [`LocksBuilder::trace_links`](crate::LocksBuilder::trace_links).
/// [`guide::observability`](crate::guide::observability#the-request-that-holds-the-lock) has an
/// OpenTelemetry implementation.
///
/// Both methods are called often, by tasks with other work, so they should not block. A panic is
/// caught and logged, and the request continues without the link.
pub trait TraceLinks: fmt::Debug + Send + Sync + 'static {
    /// Returns the trace context of the current request, or `None` outside a trace. Called at the
    /// first poll of each acquisition without its own label, in the caller's span.
    fn current(&self) -> Option<TraceParent>;

    /// Links a wait to the request that holds the lock. `wait` is the waiting request's span
    /// `acquire`, and `holder` the holder's trace context. Called when the request is queued, for
    /// each holder whose label is a trace context; with many reads or permits, for the first eight
    /// holders to end. Not called for a holder with the same label as the request.
    fn link(&self, wait: &Span, holder: &TraceParent);
}
