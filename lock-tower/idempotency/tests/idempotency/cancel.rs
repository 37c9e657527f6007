//! Clients that disconnect at each step, and handlers that panic.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::task::Waker;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body_util::BodyExt;
use lock_idempotency::Attempt;
use lock_tests::http::{gate, piece, streamed, text};
use lock_tower::{Keys, LockScopeLayer, RequestLocks};
use lockcore::Locks;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::support::{Asked, Spy, counted, gated, layer, payment, send, serve, settle, spawn};

/// Creates a service whose handler waits twice, and the counters of begun and finished runs.
fn slow(
    layer: &lock_idempotency::IdempotencyLayer,
) -> (crate::support::Service, [Arc<AtomicUsize>; 2]) {
    let counters = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let [begun, done] = counters.clone();
    let service = serve(layer, move |_| {
        let (begun, done) = (Arc::clone(&begun), Arc::clone(&done));
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            done.fetch_add(1, Ordering::SeqCst);
            Response::new(text("paid"))
        }
    });
    (service, counters)
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_at_any_step_leaves_nothing_half_done() {
    let mut finished = 0;
    for polls in 1..60 {
        let (locks, store) = (Locks::in_memory(), Spy::default());
        let (service, [begun, done]) = slow(&layer(&locks, &store));
        let mut first = Box::pin(service.clone().oneshot(payment("a1")));
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            if first.poll_unpin(&mut cx).is_ready() {
                finished += 1;
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(first);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let counts = [&begun, &done].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(counts[0], counts[1], "after {polls} polls: it was stopped half-way");
        assert_eq!(store.count("start"), counts[0], "after {polls} polls: a start without a run");
        assert_eq!((locks.status().waiting, locks.status().holding), (0, 0), "{polls} polls");
        let second = send(&service, payment("a1")).await;
        assert_eq!((second.body.as_str(), second.is_replayed()), ("paid", counts[0] == 1));
        assert_eq!(done.load(Ordering::SeqCst), 1, "after {polls} polls");
    }
    assert!(finished > 10, "the walk goes from the first step to the last");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_while_its_handler_runs_finds_its_answer() {
    let locks = Locks::in_memory();
    let (service, mut keeper) = gated(&layer(&locks, &Spy::default()));
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let second = spawn(&service, payment("a1"));
    settle().await;
    assert!(!second.is_finished() && locks.status().holding == 1, "the handler still runs");
    keeper.let_one_on();
    keeper.finished().await;
    let second = second.await.unwrap();
    assert_eq!((second.body.as_str(), second.is_replayed()), ("paid", true));
    assert!(keeper.is_alone());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_in_line_leaves_it_and_its_handler_does_not_run() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let service = serve(&layer(&locks, &Spy::default()), move |request: Asked| {
        let (gate, status) =
            (gate.clone(), request.headers()["x-status"].to_str().unwrap().parse::<u16>());
        async move {
            gate.pass().await;
            Response::builder().status(status.unwrap()).body(text("")).unwrap()
        }
    });
    let asks = |status: &str| {
        let mut request = payment("a1");
        request.headers_mut().insert("x-status", status.parse().unwrap());
        spawn(&service, request)
    };
    // The first request does nothing (503), so that the next waiter runs the handler.
    let first = asks("503");
    keeper.entered().await;
    let (gone, third) = (asks("200"), asks("201"));
    settle().await;
    assert_eq!(locks.status().waiting, 2);
    gone.abort();
    settle().await;
    assert_eq!(locks.status().waiting, 1, "it has left the line");
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().status, 503);
    keeper.let_one_on();
    assert_eq!(third.await.unwrap().status, 201);
    keeper.entered().await;
    assert!(keeper.is_alone(), "two handlers ran");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_kept_although_its_body_is_dropped() {
    let (service, runs) = counted(&layer(&Locks::in_memory(), &Spy::default()));
    drop(service.clone().oneshot(payment("a1")).await.unwrap());
    let second = send(&service, payment("a1")).await;
    assert_eq!((second.body.as_str(), second.is_replayed()), ("run 1", true));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_while_it_sends_its_body_frees_the_room() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    let (service, runs) = counted(&layer(&locks, &store).body_total(9));
    let (pieces, body) = streamed();
    pieces.send(piece("123456789")).unwrap();
    let request =
        || Request::post("/payments").header("x-user", "ada").header("idempotency-key", "a1");
    let sending = spawn(&service, request().body(body).unwrap());
    settle().await;
    assert_eq!(send(&service, payment("a2")).await.code(), "idempotency-body-room-full");
    sending.abort();
    settle().await;
    assert_eq!(send(&service, payment("a2")).await.body, "run 1", "the room is free");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(locks.status().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_reaches_the_server_and_the_next_request_runs_again() {
    let (locks, runs) = (Locks::in_memory(), Arc::new(AtomicUsize::new(0)));
    let counter = Arc::clone(&runs);
    let service = serve(&layer(&locks, &Spy::default()), move |request: Asked| {
        let run = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(run > 0, "the first run panics");
            let is_again = request.extensions().get::<Attempt>().unwrap().is_again();
            Response::new(text(format!("again: {is_again}")))
        }
    });
    let panicked = spawn(&service, payment("a1")).await.unwrap_err();
    assert!(panicked.is_panic(), "as without the layer");
    settle().await;
    assert_eq!(locks.status().holding, 0);
    assert_eq!(send(&service, payment("a1")).await.body, "again: true");
    assert!(send(&service, payment("a1")).await.is_replayed());
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_handler_without_a_client() {
    let locks = Locks::in_memory();
    let (service, [_, done]) = slow(&layer(&locks, &Spy::default()));
    let first = spawn(&service, payment("a1"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    first.abort();
    locks.shutdown(Duration::from_secs(5)).await;
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_the_handler_is_of_its_own_scope_and_outlives_the_client() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let inner = LockScopeLayer::new(locks.clone());
    let service = serve(&layer(&locks, &Spy::default()), move |request: Asked| {
        assert!(RequestLocks::of(request.extensions()).is_err(), "that would end with the client");
        let gate = gate.clone();
        let handler = inner.layer(service_fn(move |request: Request<_>| {
            let gate = gate.clone();
            async move {
                let locks = RequestLocks::of(Request::extensions(&request)).unwrap();
                drop::<Request<lock_tower::http::RequestBody<String>>>(request);
                locks.lock(Keys::one("account")).await.unwrap();
                gate.pass().await;
                Ok::<_, Infallible>(Response::new("paid".to_owned()))
            }
        }));
        let request = request.map(|_| String::new());
        async move { handler.oneshot(request).await.unwrap().map(BodyExt::boxed_unsync) }
    });
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    first.abort();
    settle().await;
    assert!(
        locks.try_lock("account").await.unwrap().is_none(),
        "it is held until the handler ends"
    );
    keeper.let_one_on();
    keeper.finished().await;
    settle().await;
    assert!(locks.try_lock("account").await.unwrap().is_some());
}
