//! The spans of waits and holds.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use futures_util::poll;
use lock_tests::eventually;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::backend::{Backend, SOON, granted, ms, soon, until_waiting};

on_every_store!(
    ;
    not_by_a_quorum:
    // Each primary has its own spans.
    a_wait_and_a_hold_have_a_span_each_and_the_hold_follows_the_wait,
    a_span_of_a_wait_has_its_outcome,
    a_span_of_a_wait_has_the_label_of_the_holder_where_that_is_asked_for,
);

#[derive(Debug, Clone, Default)]
struct SpanRecord {
    name: &'static str,
    fields: HashMap<&'static str, String>,
    parent: Option<u64>,
    follows: HashSet<u64>,
    handles: usize,
}

impl SpanRecord {
    fn is_open(&self) -> bool {
        self.handles > 0
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl Visit for SpanRecord {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// A subscriber that keeps all spans of lockcore and of this test.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    spans: Vec<SpanRecord>,
    entered: Vec<u64>,
}

/// A subscriber that lives on: with a single subscriber, tracing consults the thread that first
/// reaches a span, which may have none.
pub(crate) static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Spans::default()));

impl Spans {
    /// Records the spans of this thread while the guard lives.
    fn here() -> (Self, DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let spans = Self::default();
        let here = tracing::subscriber::set_default(spans.clone());
        (spans, here)
    }

    fn change<T>(&self, id: &Id, change: impl FnOnce(&mut SpanRecord) -> T) -> T {
        let index = usize::try_from(id.into_u64()).expect("it fits") - 1;
        change(&mut self.0.lock().expect("no panic").spans[index])
    }

    fn named(&self, name: &str) -> Vec<(u64, SpanRecord)> {
        let spans = self.0.lock().expect("no panic").spans.clone();
        (1..).zip(spans).filter(|(_, span)| span.name == name).collect()
    }

    /// The last span of this name.
    fn last(&self, name: &str) -> (u64, SpanRecord) {
        self.named(name).pop().expect("a span of this name")
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
            && ["lockcore", "contract"].iter().any(|of| metadata.target().starts_with(of))
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut inner = self.0.lock().expect("no panic");
        let parent = match attributes.is_contextual() {
            true => inner.entered.last().copied(),
            false => attributes.parent().map(Id::into_u64),
        };
        let name = attributes.metadata().name();
        let mut span = SpanRecord { name, parent, handles: 1, ..SpanRecord::default() };
        attributes.record(&mut span);
        inner.spans.push(span);
        Id::from_u64(inner.spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.change(id, |span| values.record(span));
    }

    fn record_follows_from(&self, id: &Id, follows: &Id) {
        self.change(id, |span| span.follows.insert(follows.into_u64()));
    }

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, id: &Id) {
        self.0.lock().expect("no panic").entered.push(id.into_u64());
    }

    fn exit(&self, id: &Id) {
        let entered = &mut self.0.lock().expect("no panic").entered;
        let last = entered.iter().rposition(|entered| *entered == id.into_u64());
        entered.remove(last.expect("it was entered"));
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.change(id, |span| span.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.change(&id, |span| {
            span.handles -= 1;
            !span.is_open()
        })
    }
}

async fn a_wait_and_a_hold_have_a_span_each_and_the_hold_follows_the_wait(backend: &Backend) {
    let (spans, _here) = Spans::here();
    let locks = backend.node().await;
    let guard = locks.lock("key").await.expect("free");
    let request = tracing::info_span!("request");
    let mut acquire = Box::pin(locks.key("key").class("orders").lock());
    {
        let _in_request = request.enter();
        assert!(poll!(acquire.as_mut()).is_pending());
    }
    until_waiting(1, &locks, "key").await;
    eventually("it is told so", SOON, async || acquire.position().is_some()).await;
    let (wait, seen) = spans.last("acquire");
    assert!(seen.is_open());
    assert_eq!((seen.field("class"), seen.field("outcome")), (Some("orders"), None));
    guard.release().await.expect("held until now");
    eventually("it is granted", SOON, async || locks.status().holding == 1).await;
    let polled = {
        let _in_request = request.enter();
        poll!(acquire.as_mut())
    };
    let std::task::Poll::Ready(guard) = polled else { panic!("granted") };
    let guard = guard.expect("granted");
    drop(acquire);

    let (_, seen) = spans.last("acquire");
    let token = guard.fencing_token().to_string();
    assert!(!seen.is_open());
    assert_eq!((seen.field("position"), seen.field("outcome")), (Some("0"), Some("granted")));
    assert_eq!((seen.field("token"), seen.field("holder")), (Some(&*token), None));
    let (_, hold) = spans.last("hold");
    assert_eq!((hold.field("token"), hold.field("class")), (Some(&*token), Some("orders")));
    assert_eq!(hold.follows, HashSet::from([wait]));
    assert_eq!(hold.parent, seen.parent, "that of the caller, and not the wait");
    assert_eq!(hold.parent, request.id().map(|id| id.into_u64()));

    let other = guard.reenter().expect("held");
    guard.release().await.expect("held until now");
    assert!(spans.last("hold").1.is_open(), "another guard has it");
    other.release().await.expect("held until now");
    assert!(!spans.last("hold").1.is_open());
}

async fn a_span_of_a_wait_has_its_outcome(backend: &Backend) {
    let (spans, _here) = Spans::here();
    let locks = backend.node().await;
    let guard = locks.lock("key").await.expect("free");
    let outcome = || spans.last("acquire").1.field("outcome").map(str::to_owned);
    assert!(locks.try_lock("key").await.expect("an answer").is_none());
    assert_eq!(outcome().as_deref(), Some("busy"));
    locks.lock_timeout("key", ms(50)).await.expect_err("held");
    assert_eq!(outcome().as_deref(), Some("timeout"));
    let mut acquire = Box::pin(locks.lock("key"));
    assert!(poll!(acquire.as_mut()).is_pending());
    drop(acquire);
    assert_eq!(outcome().as_deref(), Some("cancelled"));
    drop(guard);
}

async fn a_span_of_a_wait_has_the_label_of_the_holder_where_that_is_asked_for(backend: &Backend) {
    let (spans, _here) = Spans::here();
    let [a, b] = backend.nodes().await;
    let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let guard = a.key("key").label(context).lock().await.expect("free");
    let waiting = tokio::spawn(b.key("key").record_holders(true).lock());
    eventually("it is recorded", SOON, async || {
        spans.last("acquire").1.field("holder") == Some(context)
    })
    .await;
    guard.release().await.expect("held until now");
    let guard = soon(granted(waiting)).await;
    assert!(!spans.last("acquire").1.is_open(), "the wait is over");
    guard.release().await.expect("held until now");
    // A request that does not wait does not query the holder.
    let guard = b.key("key").record_holders(true).lock().await.expect("free");
    assert_eq!(spans.last("acquire").1.field("holder"), None);
    assert!(!spans.last("acquire").1.is_open());
    guard.release().await.expect("held until now");
}
