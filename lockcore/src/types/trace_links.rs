//! The way to the tracing system of an application.

use std::fmt;

use tracing::Span;

use crate::types::trace_parent::TraceParent;

/// Links the wait of a request to the request that holds the lock, in the tracing system of an
/// application: for [`LocksBuilder::trace_links`](crate::LocksBuilder::trace_links).
/// [`guide::observability`](crate::guide::observability#the-request-that-holds-the-lock) has an
/// implementation with OpenTelemetry.
///
/// Both methods are called often, and by tasks that serve others: they should not block. A panic of
/// theirs is caught and logged, and the request continues without the link.
pub trait TraceLinks: fmt::Debug + Send + Sync + 'static {
    /// The trace context of the current request; `None` outside of a trace. Called at the first
    /// poll of each acquisition that has no label of its own, in the span of its caller.
    fn current(&self) -> Option<TraceParent>;

    /// Links the span of a wait to the request that holds the lock. `wait` is the span `acquire` of
    /// the request that waits, and `holder` the trace context of the holder. Called when the
    /// request is queued, for each holder whose label is a trace context: reads and permits have
    /// several, of which the first eight to end are linked. Not called for a holder with the label
    /// of the request itself.
    fn link(&self, wait: &Span, holder: &TraceParent);
}
