//! The links from waits to the holding requests, with OpenTelemetry.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use lock_tests::eventually;
use lockcore::{LockOptions, Locks, LocksBuilder, TraceLinks, TraceParent};
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::subscriber::DefaultGuard;
use tracing::{Instrument as _, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::backend::{Backend, LONG, SOON, granted, until_waiting};
use crate::open_telemetry::OpenTelemetry;
use crate::spans::ANOTHER;

on_every_store!(
    a_wait_is_linked_to_the_span_of_the_request_that_holds,
    a_label_of_its_own_is_kept_and_outside_of_a_trace_it_is_that_of_the_node,
    a_wait_behind_a_holder_without_a_trace_has_no_link,
    a_request_is_served_though_its_links_panic;
    not_on_a_cluster: a_wait_beside_jvms_is_linked_as_well;
    not_by_a_quorum:
    a_request_is_linked_to_the_others_that_hold_and_not_to_itself,
    requests_of_different_traces_are_in_no_batch,
);

#[test]
fn the_manual_has_the_links_that_are_tested() {
    let manual = include_str!("../../../lockcore/src/guide/observability.md");
    let tested = include_str!("open_telemetry.rs");
    let (_, code) = tested.split_once("\n\n").expect("a head, and the code");
    assert!(manual.contains(&code.replace("pub(crate) struct", "struct")));
}

/// The links of the manual, and how many have been made.
#[derive(Debug, Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl TraceLinks for Counted {
    fn current(&self) -> Option<TraceParent> {
        OpenTelemetry.current()
    }

    fn link(&self, wait: &Span, holder: &TraceParent) {
        OpenTelemetry.link(wait, holder);
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The spans of this thread, as exported by OpenTelemetry.
struct Exported {
    spans: InMemorySpanExporter,
    links: Counted,
    _here: DefaultGuard,
    _provider: SdkTracerProvider,
}

impl Exported {
    fn here() -> Self {
        LazyLock::force(&ANOTHER);
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("contract"));
        let here = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        Self { spans, links: Counted::default(), _here: here, _provider: provider }
    }

    fn builder(&self) -> LocksBuilder {
        let builder = Locks::builder().defaults(LockOptions::new().lease(LONG));
        builder.label("node").trace_links(self.links.clone())
    }

    async fn until_linked(&self, times: usize) {
        let linked = async || self.links.0.load(Ordering::Relaxed) >= times;
        eventually("a wait is linked", SOON, linked).await;
    }

    /// The span of the wait within this request, once it has ended.
    async fn wait_in(&self, request: &Span) -> SpanData {
        let request = context(request);
        let find = || {
            let spans = self.spans.get_finished_spans().expect("they are exported");
            let of_request = |span: &SpanData| {
                span.name == "acquire" && span.parent_span_id == request.span_id()
            };
            spans.into_iter().find(of_request)
        };
        eventually("the span has ended", SOON, async || find().is_some()).await;
        find().expect("it has ended")
    }
}

fn context(span: &Span) -> SpanContext {
    span.context().span().span_context().clone()
}

fn text(context: &SpanContext) -> String {
    let flags = context.trace_flags().to_u8();
    format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id())
}

/// The traces and spans linked from this span.
fn links(span: &SpanData) -> Vec<String> {
    span.links.iter().map(|link| text(&link.span_context)).collect()
}

async fn is_linked(exported: &Exported, [a, b]: [Locks; 2]) {
    let (holds, waits) = (info_span!("holds"), info_span!("waits"));
    let guard = a.lock("key").instrument(holds.clone()).await.expect("free");
    let seen = a.inspect("key").await.expect("an inspection");
    let holder = text(&context(&holds));
    assert_eq!(seen.holders[0].label.as_deref(), Some(&*holder));
    let waiting = tokio::spawn(b.lock("key").instrument(waits.clone()));
    until_waiting(1, &b, "key").await;
    exported.until_linked(1).await;
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
    assert_ne!(context(&holds).trace_id(), context(&waits).trace_id());
    assert_eq!(links(&exported.wait_in(&waits).await), [holder]);
    assert_eq!(links(&exported.wait_in(&holds).await), [""; 0], "it waited for none");
}

async fn a_wait_is_linked_to_the_span_of_the_request_that_holds(backend: &Backend) {
    let exported = Exported::here();
    let nodes = [backend.build(exported.builder()).await, backend.build(exported.builder()).await];
    is_linked(&exported, nodes).await;
}

async fn a_wait_beside_jvms_is_linked_as_well(backend: &Backend) {
    let exported = Exported::here();
    let builder = || exported.builder().redisson_peers(true);
    let nodes = [backend.build(builder()).await, backend.build(builder()).await];
    is_linked(&exported, nodes).await;
}

async fn a_request_is_linked_to_the_others_that_hold_and_not_to_itself(backend: &Backend) {
    let exported = Exported::here();
    let locks = backend.build(exported.builder()).await;
    let (other, request) = (info_span!("other"), info_span!("request"));
    let permit = || locks.permit("key", 2);
    let own = permit().instrument(request.clone()).await.expect("free");
    let others = permit().instrument(other.clone()).await.expect("free");
    let both = locks.key("key").permits(2, 2);
    let waiting = tokio::spawn(both.instrument(request.clone()));
    until_waiting(1, &locks, "key").await;
    exported.until_linked(1).await;
    drop((own, others));
    drop(granted(waiting).await);
    let spans = async || {
        let spans = exported.spans.get_finished_spans().expect("they are exported");
        let waits = spans.iter().filter(|span| span.name == "acquire");
        waits.map(links).find(|links| !links.is_empty())
    };
    eventually("a wait has ended", SOON, async || spans().await.is_some()).await;
    assert_eq!(spans().await.expect("it has ended"), [text(&context(&other))]);
}

async fn a_label_of_its_own_is_kept_and_outside_of_a_trace_it_is_that_of_the_node(
    backend: &Backend,
) {
    let exported = Exported::here();
    let locks = backend.build(exported.builder()).await;
    let label = async || {
        let seen = locks.inspect("key").await.expect("an inspection");
        seen.holders[0].label.clone().expect("ours has a label")
    };
    let request = info_span!("request");
    let own = locks.key("key").label("checkout").lock().instrument(request.clone());
    let guard = own.await.expect("free");
    assert_eq!(label().await, "checkout");
    guard.release().await.expect("held until now");
    let guard = locks.lock("key").await.expect("free");
    assert_eq!(label().await, "node");
    guard.release().await.expect("held until now");
    let tried = locks.try_lock("key").instrument(request.clone()).await;
    let guard = tried.expect("an answer").expect("free");
    assert_eq!(label().await, text(&context(&request)));
    guard.release().await.expect("held until now");
}

async fn a_wait_behind_a_holder_without_a_trace_has_no_link(backend: &Backend) {
    let exported = Exported::here();
    let [plain, locks] = [backend.node().await, backend.build(exported.builder()).await];
    let guard = plain.key("key").label("host:7").lock().await.expect("free");
    let request = info_span!("request");
    let waiting = tokio::spawn(locks.lock("key").instrument(request.clone()));
    until_waiting(1, &locks, "key").await;
    guard.release().await.expect("held until now");
    drop(granted(waiting).await);
    // The end of the span shows that the holders were queried: the span is open until they are
    // known.
    assert_eq!(links(&exported.wait_in(&request).await), [""; 0]);
}

async fn requests_of_different_traces_are_in_no_batch(backend: &Backend) {
    let exported = Exported::here();
    let locks = backend.build(exported.builder().batch_limit(8)).await;
    let one = info_span!("request");
    for (other, is_batch) in [(one.clone(), true), (info_span!("request"), false)] {
        let guard = locks.lock("key").await.expect("free");
        let first = tokio::spawn(locks.lock("key").instrument(one.clone()));
        until_waiting(1, &locks, "key").await;
        let second = tokio::spawn(locks.lock("key").instrument(other));
        until_waiting(2, &locks, "key").await;
        guard.release().await.expect("held until now");
        let guard = granted(first).await;
        // A position is a value of the token counter: the tokens of a batch were drawn before it.
        let third = tokio::spawn(locks.lock("key"));
        until_waiting(2, &locks, "key").await;
        let token = guard.fencing_token().get();
        guard.release().await.expect("held until now");
        let guard = granted(second).await;
        assert_eq!(guard.fencing_token().get() == token + 1, is_batch);
        guard.release().await.expect("held until now");
        granted(third).await.release().await.expect("held until now");
    }
}

/// Links that panic, and how many have panicked.
#[derive(Debug, Clone, Default)]
struct Panics(Arc<AtomicUsize>);

impl TraceLinks for Panics {
    fn current(&self) -> Option<TraceParent> {
        panic!("the current trace")
    }

    fn link(&self, _: &Span, _: &TraceParent) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("the link")
    }
}

async fn a_request_is_served_though_its_links_panic(backend: &Backend) {
    let exported = Exported::here();
    let holds = backend.build(exported.builder()).await;
    let links = Panics::default();
    let waits = Locks::builder().label("node").trace_links(links.clone());
    let waits = backend.build(waits).await;
    let guard = holds.lock("key").instrument(info_span!("request")).await.expect("free");
    let waiting = tokio::spawn(waits.lock("key"));
    until_waiting(1, &holds, "key").await;
    let seen = holds.inspect("key").await.expect("an inspection");
    assert_eq!(seen.waiters[0].label.as_deref(), Some("node"));
    let called = async || links.0.load(Ordering::Relaxed) > 0;
    eventually("a link has panicked", SOON, called).await;
    guard.release().await.expect("held until now");
    granted(waiting).await.release().await.expect("held until now");
}
