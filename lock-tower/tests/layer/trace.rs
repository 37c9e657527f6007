//! `label_by_trace`: the trace of a request as the label of its locks.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use http::{Request, Response};
use http_body_util::Empty;
use lock_tests::queued;
use lock_tower::{ByPath, HttpLockLayer, Keys, LockHandle, LockScopeLayer, RequestLocks};
use lockcore::Locks;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

type Body = Empty<bytes::Bytes>;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn request(trace: &'static str) -> Request<Body> {
    Request::get("/a").header("traceparent", trace).body(Body::new()).unwrap()
}

async fn label(locks: &Locks, key: &str) -> String {
    let seen = locks.inspect(key).await.unwrap();
    seen.holders[0].label.clone().unwrap()
}

/// Returns the label of the lock that a request with this `traceparent` holds behind this layer.
async fn label_behind(layer: HttpLockLayer<ByPath>, trace: &'static str, locks: &Locks) -> String {
    let service = layer.layer(service_fn(async |request: Request<_>| {
        assert!(request.extensions().get::<LockHandle>().is_some());
        let label = label(locks, "/a").await;
        let mut response = Response::new(Body::new());
        response.extensions_mut().insert(label);
        Ok::<_, Infallible>(response)
    }));
    let response = service.oneshot(request(trace)).await.unwrap();
    response.extensions().get::<String>().cloned().expect("the handler has run")
}

#[tokio::test(start_paused = true)]
async fn a_request_is_labelled_by_its_trace_where_that_is_asked_for_and_by_the_layer_else() {
    let locks = Locks::in_memory();
    let layer = || HttpLockLayer::new(locks.clone(), ByPath::new()).label("checkout");
    assert_eq!(label_behind(layer().label_by_trace(true), TRACE, &locks).await, TRACE);
    assert_eq!(label_behind(layer(), TRACE, &locks).await, "checkout");
    let bad = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    assert_eq!(label_behind(layer().label_by_trace(true), bad, &locks).await, "checkout");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_asked_for_inside_has_the_trace_of_the_request_unless_it_has_a_label() {
    let locks = Locks::in_memory();
    let layer = LockScopeLayer::new(locks.clone()).label_by_trace(true);
    let service = layer.layer(service_fn(async |request: Request<_>| {
        let taken = RequestLocks::of(request.extensions()).unwrap();
        taken.lock(Keys::one("a")).await.unwrap();
        taken.lock(Keys::one("b").label("wallet")).await.unwrap();
        assert_eq!(label(&locks, "a").await, TRACE);
        assert_eq!(label(&locks, "b").await, "wallet");
        Ok::<_, Infallible>(Response::new(Body::new()))
    }));
    service.oneshot(request(TRACE)).await.unwrap();
}

/// A subscriber that collects the field `holder` of lockcore's spans.
#[derive(Debug, Clone, Default)]
struct Holders(Arc<Mutex<Vec<String>>>);

/// A second subscriber that always exists. With a single subscriber, tracing asks only the first
/// thread to reach a span, and that thread may have no subscriber.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Holders::default()));

impl Visit for Holders {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "holder" {
            self.0.lock().unwrap().push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Holders {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("lockcore")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_request_that_waits_has_the_label_of_the_holder_where_that_is_asked_for() {
    LazyLock::force(&ANOTHER);
    let holders = Holders::default();
    let _here = tracing::subscriber::set_default(holders.clone());
    let locks = Locks::in_memory();
    let layer = || HttpLockLayer::new(locks.clone(), ByPath::new());
    for (layer, expected) in
        [(layer(), &[][..]), (layer().record_holders(true), &[TRACE.to_owned()][..])]
    {
        let guard = locks.key("/a").label(TRACE).lock().await.unwrap();
        let inner = service_fn(async |_| Ok::<_, Infallible>(Response::new(Body::new())));
        let waiting = tokio::spawn(layer.layer(inner).oneshot(request(TRACE)));
        queued(&locks, "/a", 1).await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap();
        assert_eq!(*holders.0.lock().unwrap(), expected);
    }
}
