//! Requests with a user and a key, handlers that count their runs, and a store that fails on
//! demand.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use lock_idempotency::{
    Finish, Finished, IdempotencyLayer, MemoryReplays, ReadBody, Record, RecordKey, Refusal,
    ReplayStore, ResponseBody, Scope, Start, Started, StoreError, StoreFuture,
};
use lock_tests::http::{AnyBody, Gate, Keeper, gate, text};
use lockcore::{FencingToken, Locks};
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};

pub(crate) type Asked = Request<ReadBody<AnyBody>>;
pub(crate) type Answered = Response<AnyBody>;
pub(crate) type Service = BoxCloneSyncService<Request<AnyBody>, Answered, Infallible>;

/// The response to a request, with the complete body.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn is_replayed(&self) -> bool {
        self.headers.get("idempotency-replayed").is_some_and(|value| value == "true")
    }

    /// Returns the member `code` of the refusal in the body.
    pub(crate) fn code(&self) -> String {
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        problem["code"].as_str().unwrap().to_owned()
    }
}

/// Returns the scope of a request: the user in the header `x-user`.
pub(crate) fn by_user(parts: &http::request::Parts) -> Result<Scope, Refusal> {
    match parts.headers.get("x-user") {
        Some(user) => Ok(Scope::new(user.to_str().unwrap())),
        None => Err(Refusal::scope(StatusCode::UNAUTHORIZED, "Log in first.")),
    }
}

pub(crate) fn layer(locks: &Locks, store: &Spy) -> IdempotencyLayer {
    IdempotencyLayer::new(locks.clone(), store.clone(), by_user)
}

pub(crate) fn serve<H, F>(layer: &IdempotencyLayer, handler: H) -> Service
where
    H: Fn(Asked) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<AnyBody>> + Send + 'static,
{
    let inner = service_fn(move |request: Asked| {
        let answer = handler(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let service = layer.layer(inner).map_response(|response: Response<ResponseBody<AnyBody>>| {
        response.map(BodyExt::boxed_unsync)
    });
    BoxCloneSyncService::new(service)
}

/// Creates a service whose handler responds with the number of its runs, and the counter of the
/// runs.
pub(crate) fn counted(layer: &IdempotencyLayer) -> (Service, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let service = serve(layer, move |_| {
        let run = counter.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Response::new(text(format!("run {run}"))) }
    });
    (service, runs)
}

/// Creates a handler that waits at the gate, and then responds `paid`.
pub(crate) fn paid<B>(
    gate: Gate,
) -> impl Fn(Request<B>) -> BoxFuture<'static, Answered> + Clone + use<B> {
    move |_| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.pass().await;
            Response::new(text("paid"))
        })
    }
}

/// Creates a service whose handler is [`paid`], and the keeper that opens the gate.
pub(crate) fn gated(layer: &IdempotencyLayer) -> (Service, Keeper) {
    let (gate, keeper) = gate();
    (serve(layer, paid(gate)), keeper)
}

/// Creates the request of the user Ada to pay 500 cents, with this key.
pub(crate) fn payment(key: &str) -> Request<AnyBody> {
    payment_of("ada", key, "500 cents")
}

pub(crate) fn payment_of(user: &str, key: &str, body: &str) -> Request<AnyBody> {
    let request = Request::post("/payments?currency=eur").header("x-user", user);
    request.header("idempotency-key", key).body(text(body.to_owned())).unwrap()
}

pub(crate) async fn send(service: &Service, request: Request<AnyBody>) -> Got {
    read(service.clone().oneshot(request).await.unwrap()).await
}

pub(crate) async fn read(response: Answered) -> Got {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Got { status: parts.status.as_u16(), headers: parts.headers, body }
}

pub(crate) fn spawn(service: &Service, request: Request<AnyBody>) -> JoinHandle<Got> {
    // Boxed here: within an async block, rustc cannot prove that it is `Send`.
    let sending: BoxFuture<'static, _> = Box::pin(service.clone().oneshot(request));
    tokio::spawn(async move { read(sending.await.unwrap()).await })
}

/// Runs every task until none can proceed.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// An in-memory store that counts its operations, yields to other tasks before each, and fails on
/// demand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spy {
    pub(crate) records: MemoryReplays,
    state: Arc<Mutex<SpyState>>,
}

#[derive(Debug, Default)]
struct SpyState {
    counts: BTreeMap<&'static str, usize>,
    failing: BTreeMap<&'static str, StoreError>,
    loses_next_reply_to_start: bool,
}

impl Spy {
    /// Returns how often the operation with this name was called.
    pub(crate) fn count(&self, step: &str) -> usize {
        self.state.lock().unwrap().counts.get(step).copied().unwrap_or_default()
    }

    /// Makes the operation with this name fail from now on, or succeed if `error` is `None`.
    pub(crate) fn fail(&self, step: &'static str, error: Option<StoreError>) {
        let failing = &mut self.state.lock().unwrap().failing;
        match error {
            Some(error) => failing.insert(step, error),
            None => failing.remove(step),
        };
    }

    /// Loses the reply to the next start: the start is executed, and returns that the store is
    /// unavailable.
    pub(crate) fn lose_next_reply_to_start(&self) {
        self.state.lock().unwrap().loses_next_reply_to_start = true;
    }

    async fn step(&self, step: &'static str) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        let mut state = self.state.lock().unwrap();
        *state.counts.entry(step).or_default() += 1;
        state.failing.get(step).cloned().map_or(Ok(()), Err)
    }
}

impl ReplayStore for Spy {
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            self.step("look_up").await?;
            self.records.look_up(key).await
        })
    }

    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started> {
        Box::pin(async move {
            self.step("start").await?;
            let started = self.records.start(key, start).await;
            match std::mem::take(&mut self.state.lock().unwrap().loses_next_reply_to_start) {
                true => Err(StoreError::unavailable("the reply was lost")),
                false => started,
            }
        })
    }

    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished> {
        Box::pin(async move {
            self.step("finish").await?;
            self.records.finish(key, finish).await
        })
    }

    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.step("end").await?;
            self.records.end(key, token).await
        })
    }

    fn is_in_memory(&self) -> bool {
        true
    }
}
