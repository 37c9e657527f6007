//! The log events of a request.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::Empty;
use lock_tests::http::{AnyBody, streamed};
use lock_tests::{LIMIT, RedisServer, eventually, queued};
use lock_tower::http::RequestBody;
use lock_tower::{ByPath, HttpLockLayer, Keys, LockHandle, LockLayer};
use lockcore::operate::ActivityState;
use lockcore::{LockErrorKind, Locks, MemoryStore};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::support::{Job, job, layer, locked, next, send, settle};

pub(crate) type Fields = HashMap<&'static str, String>;

/// A subscriber that collects the fields of all events of the layers.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Fields>>>);

/// A second subscriber that always exists. With a single subscriber, tracing asks only the first
/// thread to reach an event, and that thread may have no subscriber.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Log::default()));

impl Log {
    /// Starts to collect the events of this thread, until the returned guard is dropped.
    pub(crate) fn here() -> (Self, DefaultGuard) {
        LazyLock::force(&ANOTHER);
        let log = Self::default();
        let here = tracing::subscriber::set_default(log.clone());
        (log, here)
    }
}

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("lock_tower")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        self.0.lock().unwrap().push(fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Log {
    /// Returns the events of requests that have finished since the last call.
    pub(crate) fn ended(&self) -> Vec<Fields> {
        let mut events = std::mem::take(&mut *self.0.lock().unwrap());
        events.retain(|fields| fields.contains_key("outcome"));
        events
    }

    pub(crate) fn one(&self, outcome: &str) -> Fields {
        let mut events = self.ended();
        assert_eq!(events.len(), 1, "{events:?}");
        let fields = events.remove(0);
        assert_eq!(fields["outcome"], outcome, "{fields:?}");
        fields
    }
}

pub(crate) fn millis(fields: &Fields, name: &str) -> f64 {
    fields[name].parse().unwrap()
}

// On a single thread, so that its subscriber sees all events.
#[tokio::test(start_paused = true)]
async fn wait_hold_and_token_are_told_when_the_request_ends() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let (service, mut handle) = locked(layer(&locks));
    let guard = locks.lock("a").await.unwrap();
    let answer = send(&service, job("a", 1));
    queued(&locks, "a", 1).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    guard.release().await.unwrap();
    let (request, respond) = next(&mut handle).await;
    let handle = request.lock.clone().unwrap();
    assert_eq!(handle.position(), Some(0));
    assert!((2_000..2_100).contains(&handle.waited().as_millis()), "{:?}", handle.waited());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(log.ended().is_empty(), "it has not ended");
    respond.send_response(1);
    answer.await.unwrap().unwrap();

    let fields = log.one("served");
    assert_eq!(fields["position"], "0");
    assert!((2_000.0..2_100.0).contains(&millis(&fields, "wait_ms")), "{fields:?}");
    assert!((3_000.0..3_100.0).contains(&millis(&fields, "hold_ms")), "{fields:?}");
    assert_eq!(fields["token"], request.lock.unwrap().fencing_token().to_string());
}

#[tokio::test(start_paused = true)]
async fn every_way_out_has_its_outcome() {
    let (log, _here) = Log::here();
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).unwrap();
    let (service, mut handle) = locked(layer(&locks).wait(Duration::from_secs(1)).fail_open(true));

    let guard = locks.lock("a").await.unwrap();
    send(&service, job("a", 1)).await.unwrap().unwrap_err();
    let fields = log.one("lock-busy");
    assert_eq!(fields["position"], "0", "the queue that a refused one met");
    assert!(millis(&fields, "wait_ms") >= 1_000.0, "{fields:?}");
    assert!(!fields.contains_key("hold_ms") && !fields.contains_key("token"), "{fields:?}");

    let gone = send(&service, job("a", 2));
    queued(&locks, "a", 1).await;
    gone.abort();
    settle().await;
    assert_eq!(log.one("cancelled")["position"], "0");
    guard.release().await.unwrap();

    let answer = send(&service, job("a", 3));
    let (_request, _respond) = next(&mut handle).await;
    locks.force_release("a").await.unwrap();
    answer.await.unwrap().unwrap_err();
    assert!(log.one("lock-lost").contains_key("hold_ms"));

    store.refuse(Some(LockErrorKind::Unavailable));
    let answer = send(&service, job("a", 4));
    next(&mut handle).await.1.send_response(4);
    answer.await.unwrap().unwrap();
    assert!(!log.one("unlocked").contains_key("token"));

    let answer = send(&service, Job::default());
    next(&mut handle).await.1.send_response(5);
    answer.await.unwrap().unwrap();
    assert!(log.ended().is_empty(), "a request without a key is not told of");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_for_its_body_tells_of_the_queue_that_it_met() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let _guard = locks.lock("/a").await.unwrap();
    let layer = HttpLockLayer::new(locks, ByPath::new()).read_ahead(1_000).server_timing(true);
    let service = layer.layer(service_fn(async |_: Request<RequestBody<AnyBody>>| {
        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
    }));
    let (pieces, body) = streamed();
    pieces.send(Ok(Frame::data(Bytes::from(vec![b'x'; 2_000])))).unwrap();
    let request = Request::post("/a").version(Version::HTTP_2).body(body).unwrap();
    let refused = service.oneshot(request).await.unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let timing = refused.headers()["server-timing"].to_str().unwrap();
    assert!(timing.ends_with(", lock-queue;desc=0"), "{timing}");
    assert_eq!(log.one("lock-body-limit")["position"], "0");
}

/// On Redis a request is queued after the first poll of its wait, and nothing wakes it for that.
#[tokio::test]
async fn a_refused_request_tells_of_the_queue_that_it_met_although_nothing_woke_it_there() {
    let (log, _here) = Log::here();
    let server = RedisServer::start();
    let locks = Locks::connect(server.url()).await.unwrap();
    let _guard = locks.lock("a").await.unwrap();
    let (service, _handle) = locked(layer(&locks));
    let answer = send(&service, job("a", 1));
    eventually("it knows its position", LIMIT, async || {
        locks
            .activity()
            .any(|one| matches!(one.state, ActivityState::Waiting { position: Some(0), .. }))
    })
    .await;
    locks.shutdown(Duration::ZERO).await; // ends the wait
    answer.await.unwrap().unwrap_err();
    assert_eq!(log.one("lock-unavailable")["position"], "0");
}

#[tokio::test(start_paused = true)]
async fn the_class_is_that_of_the_key_and_else_that_of_the_layer() {
    let locks = Locks::in_memory();
    let class = |job: &Job| match job.number {
        0 => Keys::one("a").join(Keys::one("b").class("wallet")),
        _ => Keys::one("a"),
    };
    let (inner, mut handle) = tower_test::mock::pair::<Job, usize>();
    let service = LockLayer::new(locks.clone(), class).class("orders").layer(inner);
    for (number, class) in [(0, "wallet"), (1, "orders")] {
        let answer = send(&service, job("a", number));
        let (_, respond) = next(&mut handle).await;
        assert!(locks.activity().all(|one| *one.class == *class), "{number}");
        respond.send_response(1);
        answer.await.unwrap().unwrap();
    }
}

// Once, the socket stayed open without its lock, and nothing was logged.
#[tokio::test]
async fn a_lock_that_ends_with_the_response_of_an_upgrade_is_warned_of_once() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let open = |method: Method, keeps: bool| {
        let kept = Arc::clone(&kept);
        let upgrade = service_fn(move |request: Request<RequestBody<Empty<Bytes>>>| {
            let lock = request.extensions().get::<LockHandle>().expect("locked").clone();
            if keeps {
                kept.lock().unwrap().push(lock.reenter().expect("held"));
            }
            // HTTP/2 opens a WebSocket with CONNECT.
            let status = match *request.method() {
                Method::CONNECT => StatusCode::OK,
                _ => StatusCode::SWITCHING_PROTOCOLS,
            };
            ready(Response::builder().status(status).body(Empty::<Bytes>::new()))
        });
        let service = HttpLockLayer::new(locks.clone(), ByPath::new()).layer(upgrade);
        let request = Request::builder().method(method).uri("/documents/7");
        service.oneshot(request.body(Empty::new()).unwrap())
    };
    let warnings = || {
        let events = log.0.lock().unwrap();
        let said = events.iter().filter_map(|fields| fields.get("message"));
        said.filter(|message| message.contains("the WebSocket continues")).count()
    };
    for method in [Method::GET, Method::CONNECT] {
        open(method, true).await.unwrap();
        assert_eq!(warnings(), 0, "the socket has a guard");
    }
    kept.lock().unwrap().clear();
    for (method, warned) in [(Method::GET, 1), (Method::CONNECT, 2)] {
        for _ in 0..2 {
            open(method.clone(), false).await.unwrap();
            assert_eq!(warnings(), warned, "{method}");
        }
    }
}
