//! [`TraceLinks`], which connects waits to the application's tracing system.

use std::fmt;

use tracing::Span;

use crate::types::trace_parent::TraceParent;

/// A bridge to the application's tracing system: the application implements it and passes it to
/// [`LocksBuilder::trace_links`](crate::LocksBuilder::trace_links). The bridge provides the trace
/// context (trace id and span id) with which a request is labelled, and links the span of a wait to
/// the requests that hold the lock.
/// [`guide::observability`](crate::guide::observability#the-request-that-holds-the-lock) has an
/// OpenTelemetry implementation.
///
/// Both methods are called often, by tasks with other work, so they should not block. A panic is
/// caught and logged, and the request continues without the link.
pub trait TraceLinks: fmt::Debug + Send + Sync + 'static {
    /// Returns the trace context of the current request, or `None` outside a trace. The context
    /// replaces the label of the `Locks` for an acquisition that sets no label. Called at the first
    /// poll of such an acquisition, in the caller's span.
    fn current(&self) -> Option<TraceParent>;

    /// Links the span of a wait to a request that holds the lock. `wait` is the span `acquire` of
    /// the waiting request, and `holder` the trace context of the holder, read from the holder's
    /// label.
    ///
    /// Called when the request is queued, once for each holder whose label is a trace context. If
    /// many requests hold reads or permits, only the eight whose leases end first are considered.
    /// A holder with the same label as the waiting request is skipped.
    fn link(&self, wait: &Span, holder: &TraceParent);
}
