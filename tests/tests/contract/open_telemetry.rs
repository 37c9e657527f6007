//! The links between traces with OpenTelemetry, as in the manual.

use std::collections::HashMap;

use lockcore::{TraceLinks, TraceParent};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

#[derive(Debug)]
pub(crate) struct OpenTelemetry;

impl TraceLinks for OpenTelemetry {
    fn current(&self) -> Option<TraceParent> {
        let mut headers = HashMap::new();
        TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
        headers.get("traceparent")?.parse().ok()
    }

    fn link(&self, wait: &Span, holder: &TraceParent) {
        let headers = HashMap::from([("traceparent".to_owned(), holder.to_string())]);
        let holder = TraceContextPropagator::new().extract(&headers);
        wait.add_link(holder.span().span_context().clone());
    }
}
