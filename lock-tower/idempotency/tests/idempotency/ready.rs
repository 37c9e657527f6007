//! Inner services that are not ready.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use lock_idempotency::{Attempt, Decision, IdempotencyLayer, ResponseBody};
use lock_tests::http::{AnyBody, gate, text};
use lock_tests::queued;
use lockcore::Locks;
use tokio::sync::Semaphore;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{Asked, Service, Spy, gated, layer, payment, send, spawn};
use crate::unanswered::died;

/// Creates a service that is ready as long as `slots` has a permit. Also returns the value of
/// `is_again` for each run of the handler.
fn limited(layer: &IdempotencyLayer, slots: &Arc<Semaphore>) -> (Service, Arc<Mutex<Vec<bool>>>) {
    let seen = Arc::<Mutex<Vec<bool>>>::default();
    let record = Arc::clone(&seen);
    let handler = service_fn(move |request: Asked| {
        record.lock().unwrap().push(request.extensions().get::<Attempt>().unwrap().is_again());
        async { Ok::<_, Infallible>(Response::new(text("paid"))) }
    });
    let limit = GlobalConcurrencyLimitLayer::with_semaphore(Arc::clone(slots));
    let service = layer.layer(limit.layer(handler));
    let service = service.map_response(|response: Response<ResponseBody<AnyBody>>| {
        response.map(BodyExt::boxed_unsync)
    });
    (BoxCloneSyncService::new(service), seen)
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_service_does_not_become_ready_leaves_no_start() {
    let store = Spy::default();
    let layer = layer(&Locks::in_memory(), &store).max_run(Duration::from_secs(1));
    let slots = Arc::new(Semaphore::new(1));
    let (service, seen) = limited(&layer.remember_starts(true), &slots);
    let other = slots.acquire().await.unwrap();
    let refused = send(&service, payment("a1")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "idempotency-not-ready"));
    let retry_after: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=2).contains(&retry_after), "{retry_after}: part of it is random");
    assert_eq!(store.count("start"), 0);
    drop(other);
    assert_eq!(send(&service, payment("a1")).await.body, "paid");
    assert_eq!(*seen.lock().unwrap(), [false]);
}

#[tokio::test(start_paused = true)]
async fn a_stored_response_is_replayed_by_a_process_whose_service_is_not_ready() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    let (one, mut keeper) = gated(&layer(&locks, &store));
    let first = spawn(&one, payment("a1"));
    keeper.entered().await;
    // Another process: no message tells it of the stored response.
    let (other, seen) = limited(&layer(&locks, &store), &Arc::new(Semaphore::new(0)));
    let second = spawn(&other, payment("a1"));
    let key = format!(
        "idempotency:lock:{}",
        lock_idempotency::RecordKey::new(&lock_idempotency::Scope::new("ada"), "a1")
    );
    queued(&locks, &key, 1).await;
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().body, "paid");
    assert!(second.await.unwrap().is_replayed());
    assert!(seen.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_a_decision_keeps_no_other_from_the_service() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    died(&store, 1).await;
    let (gate, mut keeper) = gate();
    let layer = layer(&locks, &store).when_unanswered(move |_| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.pass().await;
            Decision::Run
        })
    });
    let slots = Arc::new(Semaphore::new(1));
    let (service, seen) = limited(&layer, &slots);
    let deciding = spawn(&service, payment("a1"));
    keeper.entered().await;
    assert_eq!(slots.available_permits(), 1);
    assert_eq!(send(&service, payment("a2")).await.body, "paid");
    keeper.let_one_on();
    assert_eq!(deciding.await.unwrap().body, "paid");
    assert_eq!(*seen.lock().unwrap(), [false, true]);
    assert_eq!(["look_up", "start"].map(|step| store.count(step)), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn only_a_decision_to_run_waits_for_the_service() {
    let ask = |decide: fn() -> Decision| {
        move |layer: IdempotencyLayer| {
            layer.when_unanswered(move |_| Box::pin(async move { decide() }))
        }
    };
    let after_a_death = async |set: &dyn Fn(IdempotencyLayer) -> IdempotencyLayer| {
        let store = Spy::default();
        died(&store, 1).await;
        let layer = layer(&Locks::in_memory(), &store).max_run(Duration::from_secs(1));
        let (service, seen) = limited(&set(layer), &Arc::new(Semaphore::new(0)));
        let got = send(&service, payment("a1")).await;
        assert!(seen.lock().unwrap().is_empty());
        (got, service)
    };
    for set in [&ask(|| Decision::Refuse) as &dyn Fn(_) -> _, &|layer: IdempotencyLayer| {
        layer.remember_starts(true)
    }] {
        let (got, _) = after_a_death(set).await;
        assert_eq!((got.status, got.code().as_str()), (409, "idempotency-outcome-unknown"));
    }
    let answer = || Decision::Answer(Response::new("paid before".into()));
    let (got, service) = after_a_death(&ask(answer)).await;
    assert_eq!((got.status, got.body.as_str(), got.is_replayed()), (200, "paid before", false));
    assert!(send(&service, payment("a1")).await.is_replayed());
    let (got, _) = after_a_death(&ask(|| Decision::Run)).await;
    assert_eq!((got.status, got.code().as_str()), (503, "idempotency-not-ready"));
}
