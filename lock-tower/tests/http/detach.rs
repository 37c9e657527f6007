//! `DetachLayer` and `detach`: handlers that finish under their locks after the client has gone.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;
use http::{Request, Response};
use hyper::body::Incoming;
use lock_tests::http::{AnyBody, Client, Keeper, Pieces, gate, get, piece, serve, streamed, text};
use lock_tests::{LIMIT, free, queued};
use lock_tower::http::RequestBody;
use lock_tower::{
    ByPath, Cause, DetachLayer, ExtractKeyExt as _, HttpLockLayer, LockHandle, LockScopeLayer,
    OnLost, RequestLocks,
};
use lockcore::Locks;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};
use tokio::task::block_in_place;
use tower::util::MapFutureLayer;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};
use tracing::{Dispatch, Instrument as _, Span};

async fn start(locks: &Locks, on_lost: OnLost) -> (SocketAddr, Keeper) {
    let (gate, keeper) = gate();
    let key = ByPath::new().methods([http::Method::GET]);
    let service = ServiceBuilder::new()
        .layer(HttpLockLayer::new(locks.clone(), key).on_lost(on_lost))
        .layer(DetachLayer::new())
        .service(service_fn(move |request: Request<_>| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                assert_ne!(request.uri().path(), "/panic", "on purpose");
                Ok::<_, Infallible>(Response::new(text("served")))
            }
        }));
    (serve(service).await, keeper)
}

#[tokio::test]
async fn a_critical_section_finishes_under_its_lock_although_the_client_has_gone() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks, OnLost::Stop).await;
    let gone = Client::send(address, "GET /a", "").await;
    keeper.entered().await;
    let next = Client::send(address, "GET /a", "").await;
    queued(&locks, "/a", 1).await;
    drop(gone);
    tokio::time::sleep(Duration::from_millis(100)).await; // nothing may happen meanwhile
    assert!(!keeper.has_finished());
    queued(&locks, "/a", 1).await;

    keeper.let_one_on();
    keeper.finished().await;
    keeper.entered().await;
    keeper.let_one_on();
    assert_eq!(next.answer().await.status, 200);
    free(&locks, "/a").await;
}

#[tokio::test]
async fn a_client_that_goes_while_it_waits_leaves_the_queue_all_the_same() {
    let locks = Locks::in_memory();
    let (address, _keeper) = start(&locks, OnLost::Stop).await;
    let _guard = locks.lock("/a").await.unwrap();
    let gone = Client::send(address, "GET /a", "").await;
    queued(&locks, "/a", 1).await;
    drop(gone);
    queued(&locks, "/a", 0).await;
}

#[tokio::test]
async fn a_detached_section_is_stopped_when_the_hold_is_lost_or_goes_on_if_told_so() {
    for on_lost in [OnLost::Stop, OnLost::Continue] {
        let locks = Locks::in_memory();
        let (address, mut keeper) = start(&locks, on_lost).await;
        let gone = Client::send(address, "GET /a", "").await;
        keeper.entered().await;
        drop(gone);
        locks.force_release("/a").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await; // the loss is reported meanwhile
        keeper.let_one_on();
        match on_lost {
            OnLost::Continue => keeper.finished().await,
            _ => {
                tokio::time::sleep(Duration::from_millis(100)).await; // it may not finish meanwhile
                assert!(!keeper.has_finished());
            }
        }
    }
}

#[tokio::test]
async fn detached_work_stays_in_the_span_of_its_request() {
    // With a single subscriber, tracing asks only the first thread to reach a span, and that thread
    // may have no subscriber.
    let _another = Dispatch::new(tracing_subscriber::registry());
    let _here = tracing::subscriber::set_default(tracing_subscriber::registry());
    let current = || Span::current().metadata().map(|span| span.name());
    let service = ServiceBuilder::new()
        .layer(HttpLockLayer::new(Locks::in_memory(), ByPath::new()))
        .layer(DetachLayer::new())
        .service(service_fn(move |request: Request<RequestBody<AnyBody>>| async move {
            assert_eq!(current(), Some("request"), "in the layer");
            let lock = request.extensions().get::<LockHandle>().unwrap();
            assert_eq!(lock.detach(async move { current() }).await.unwrap(), Some("request"));
            Ok::<_, Infallible>(Response::new(text("served")))
        }));
    let request = Request::get("/a").body(text("")).unwrap();
    service.oneshot(request).instrument(tracing::info_span!("request")).await.unwrap();
}

#[tokio::test]
async fn the_answer_after_a_loss_is_the_layers() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks, OnLost::Stop).await;
    let client = Client::send(address, "GET /a", "").await;
    keeper.entered().await;
    locks.force_release("/a").await.unwrap();
    let answer = client.answer().await;
    assert!(answer.status == 500 && answer.body.contains("lock-lost"), "{}", answer.head);
}

#[tokio::test]
async fn a_panic_breaks_the_connection_as_without_the_layer_and_frees_the_lock() {
    let locks = Locks::in_memory();
    let (address, keeper) = start(&locks, OnLost::Stop).await;
    keeper.let_one_on();
    assert_eq!(get(address, "/panic", "").await.status, 0);
    free(&locks, "/panic").await;
}

#[tokio::test]
async fn a_request_without_a_lock_is_dropped_with_its_client() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks, OnLost::Stop).await;
    let client = Client::send(address, "DELETE /a", "").await;
    keeper.entered().await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(100)).await; // the server drops it meanwhile
    keeper.let_one_on();
    tokio::time::sleep(Duration::from_millis(50)).await; // it may not finish meanwhile
    assert!(!keeper.has_finished());
}

#[tokio::test]
async fn the_graceful_shutdown_waits_for_a_detached_section() {
    let locks = Locks::in_memory();
    let (address, mut keeper) = start(&locks, OnLost::Stop).await;
    let gone = Client::send(address, "GET /a", "").await;
    keeper.entered().await;
    drop(gone);
    let shutdown = tokio::spawn({
        let locks = locks.clone();
        async move { locks.shutdown(Duration::from_secs(20)).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await; // it may not end meanwhile
    assert!(!shutdown.is_finished());
    keeper.let_one_on();
    assert_eq!(shutdown.await.unwrap().holds, 0, "nothing was taken away from anybody");
    assert!(keeper.has_finished());
}

/// Sends the handle of a handler's lock when the handler is dropped.
struct Dropped(LockHandle, mpsc::UnboundedSender<LockHandle>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.send(self.0.clone()).unwrap();
    }
}

/// Sends a request to a handler that never responds, directly and not over a socket. When the layer
/// has polled the handler for the first time, the lock is lost, and then released once the handler
/// is stopped. Meanwhile the layer is not polled, and that first poll has ended if `is_watched`.
/// Returns the response's status.
async fn lose_and_release(is_watched: bool) -> u16 {
    let locks = Locks::in_memory();
    let (dropped, stopped) = mpsc::unbounded_channel::<LockHandle>();
    let stopped = Arc::new(Mutex::new(stopped));
    let held = locks.clone();
    let lose = move || {
        let (held, stopped) = (held.clone(), Arc::clone(&stopped));
        async move {
            held.force_release("/a").await.unwrap();
            let lock = stopped.lock().await.recv().await.unwrap();
            assert_eq!(lock.release().await.unwrap_err().cause(), Cause::Lost);
        }
    };
    let lose_first = lose.clone();
    let first_poll = MapFutureLayer::new(move |handler| {
        let lose = lose_first();
        async move {
            let mut handler = pin!(handler);
            assert!(poll!(&mut handler).is_pending());
            if !is_watched {
                block_in_place(|| Handle::current().block_on(lose));
            }
            handler.await
        }
    });
    let service = ServiceBuilder::new()
        .layer(HttpLockLayer::new(locks.clone(), ByPath::new()))
        .layer(first_poll)
        .layer(DetachLayer::new())
        .service(service_fn(move |request: Request<RequestBody<AnyBody>>| {
            let lock = request.extensions().get::<LockHandle>().unwrap().clone();
            let dropped = Dropped(lock, dropped.clone());
            async move {
                let _dropped = dropped;
                std::future::pending::<Result<Response<AnyBody>, Infallible>>().await
            }
        }));
    let mut response = pin!(service.oneshot(Request::get("/a").body(text("")).unwrap()));
    if is_watched {
        while !is_held(&locks, "/a").await {
            assert!(poll!(&mut response).is_pending());
        }
        assert!(poll!(&mut response).is_pending());
        lose().await;
    }
    tokio::time::timeout(LIMIT, response).await.expect("a response").unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_section_that_a_loss_has_stopped_is_answered_although_its_lock_is_released_afterwards() {
    for is_watched in [true, false] {
        let status = tokio::time::timeout(2 * LIMIT, lose_and_release(is_watched)).await;
        assert_eq!(status, Ok(500), "watched: {is_watched}");
    }
}

/// Starts a server that runs `handler` behind two lock layers, and passes it the handle of the last
/// lock.
async fn start_two<F, R>(locks: &Locks, outer: OnLost, handler: F) -> SocketAddr
where
    F: Fn(LockHandle) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    type Inner = Request<RequestBody<Incoming>>;
    let two = (|_: &Inner| "b", |_: &Inner| "c");
    let service = ServiceBuilder::new()
        .layer(HttpLockLayer::new(locks.clone(), |_: &Request<Incoming>| "a").on_lost(outer))
        .layer(HttpLockLayer::new(locks.clone(), two))
        .layer(DetachLayer::new())
        .service(service_fn(move |request: Request<_>| {
            let handled = handler(request.extensions().get::<LockHandle>().unwrap().clone());
            async move {
                handled.await;
                Ok::<_, Infallible>(Response::new(text("served")))
            }
        }));
    serve(service).await
}

async fn is_held(locks: &Locks, key: &str) -> bool {
    !locks.inspect(key).await.unwrap().holders.is_empty()
}

#[tokio::test]
async fn a_detached_section_has_all_its_locks_to_the_end_and_sees_them() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let address = start_two(&locks, OnLost::Stop, move |lock| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            assert!(!lock.is_lost() && lock.reenter().is_ok());
            assert!(lock.deadline() > tokio::time::Instant::now());
            lock.detach(async move { gate.pass().await }).await.unwrap();
        }
    });
    let gone = Client::send(address.await, "GET /", "").await;
    keeper.entered().await;
    drop(gone);
    tokio::time::sleep(Duration::from_millis(100)).await; // the server notices meanwhile
    for _ in 0..2 {
        for key in ["a", "b", "c"] {
            assert!(is_held(&locks, key).await, "{key}");
        }
        keeper.let_one_on();
        keeper.finished().await;
    }
    for key in ["a", "b", "c"] {
        free(&locks, key).await;
    }
}

#[tokio::test]
async fn a_detached_section_can_release_a_lock_early() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let address = start_two(&locks, OnLost::Stop, move |lock| {
        let gate = gate.clone();
        async move {
            lock.release().await.unwrap();
            lock.outer().unwrap().outer().unwrap().release().await.unwrap();
            gate.pass().await;
        }
    });
    let client = Client::send(address.await, "GET /", "").await;
    keeper.entered().await;
    assert!(!is_held(&locks, "a").await && is_held(&locks, "b").await);
    assert!(!is_held(&locks, "c").await);
    let others = [locks.lock("a").await.unwrap(), locks.lock("c").await.unwrap()];
    locks.force_release("a").await.unwrap(); // now held by another caller
    others[0].lost().await;
    keeper.let_one_on();
    assert_eq!(client.answer().await.status, 200);
    free(&locks, "b").await;
}

#[tokio::test]
async fn a_detached_section_goes_on_if_only_that_lock_is_lost_whose_layer_says_so() {
    for (lost, status) in [("a", 200), ("b", 500), ("c", 500)] {
        let locks = Locks::in_memory();
        let (gate, mut keeper) = gate();
        let handler = move |_| {
            let gate = gate.clone();
            async move { gate.pass().await }
        };
        let address = start_two(&locks, OnLost::Continue, handler).await;
        let client = Client::send(address, "GET /", "").await;
        keeper.entered().await;
        locks.force_release(lost).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await; // the loss is reported meanwhile
        keeper.let_one_on();
        assert_eq!(client.answer().await.status, status, "{lost}");
        for key in ["a", "b", "c"] {
            free(&locks, key).await;
        }
    }
}

/// Starts a server whose response body streams the pieces sent by the test, once the keeper allows
/// it.
async fn start_streaming(
    locks: &Locks,
    until_body_end: bool,
) -> (SocketAddr, Keeper, mpsc::UnboundedReceiver<Pieces>) {
    let (gate, keeper) = gate();
    let (streams, started) = mpsc::unbounded_channel();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new());
    let layer = layer.hold_until_body_end(until_body_end);
    let service = ServiceBuilder::new().layer(layer).layer(DetachLayer::new()).service(service_fn(
        move |_: Request<_>| {
            let gate = gate.clone();
            let streams = streams.clone();
            async move {
                gate.pass().await;
                let (pieces, body) = streamed();
                streams.send(pieces).unwrap();
                Ok::<_, Infallible>(Response::new(body))
            }
        },
    ));
    (serve(service).await, keeper, started)
}

#[tokio::test]
async fn a_detached_section_may_answer_with_a_stream() {
    for until_body_end in [false, true] {
        let locks = Locks::in_memory();
        let (address, keeper, mut streams) = start_streaming(&locks, until_body_end).await;
        keeper.let_one_on();
        let mut client = Client::send(address, "GET /a", "").await;
        let pieces = streams.recv().await.unwrap();
        pieces.send(piece("first")).unwrap();
        client.until("first").await;
        // The handler ended with the response head. Only without `hold_until_body_end` was the lock
        // released then.
        assert_eq!(!locks.inspect("/a").await.unwrap().holders.is_empty(), until_body_end);
        pieces.send(piece("second")).unwrap();
        drop(pieces);
        client.until("second").await;
        free(&locks, "/a").await;

        keeper.let_one_on();
        let mut client = Client::send(address, "GET /a", "").await;
        let pieces = streams.recv().await.unwrap();
        pieces.send(piece("first")).unwrap();
        client.until("first").await;
        drop(client); // the section is over: its body is dropped like any other
        tokio::time::timeout(LIMIT, pieces.closed()).await.expect("the server drops the body");
        free(&locks, "/a").await;
    }
}

#[tokio::test]
async fn a_stream_that_nobody_takes_any_more_is_dropped_and_frees_the_lock() {
    for until_body_end in [false, true] {
        let locks = Locks::in_memory();
        let (address, mut keeper, mut streams) = start_streaming(&locks, until_body_end).await;
        let gone = Client::send(address, "GET /a", "").await;
        keeper.entered().await;
        drop(gone);
        tokio::time::sleep(Duration::from_millis(100)).await; // the server notices meanwhile
        keeper.let_one_on();
        let pieces = streams.recv().await.unwrap(); // the section ran to completion
        tokio::time::timeout(LIMIT, pieces.closed()).await.expect("the body was dropped");
        free(&locks, "/a").await;
    }
}

/// An output of detached work that records whether the lock was held when the output was dropped.
struct Output(LockHandle, mpsc::UnboundedSender<bool>);

impl Drop for Output {
    fn drop(&mut self) {
        let _ = self.1.send(!self.0.is_lost());
    }
}

#[tokio::test]
async fn an_output_that_nobody_takes_any_more_is_dropped_before_the_next_has_the_lock() {
    for how in ["layer", "handle", "request"] {
        let locks = Locks::in_memory();
        let (gate, mut keeper) = gate();
        let (seen, mut was_held) = mpsc::unbounded_channel();
        let service = ServiceBuilder::new()
            .layer(LockScopeLayer::new(locks.clone()))
            .layer(HttpLockLayer::new(locks.clone(), ByPath::new()))
            .option_layer((how == "layer").then(DetachLayer::new))
            .service(service_fn(move |request: Request<_>| {
                let (gate, seen) = (gate.clone(), seen.clone());
                async move {
                    let all = RequestLocks::of(request.extensions()).unwrap();
                    let lock = request.extensions().get::<LockHandle>().unwrap().clone();
                    let output = Arc::new(Output(lock.clone(), seen));
                    let work = async move {
                        gate.pass().await;
                        output
                    };
                    let output = match how {
                        "layer" => work.await,
                        "handle" => lock.detach(work).await.unwrap(),
                        _ => all.detach(work).await.unwrap(),
                    };
                    let mut response = Response::new(text(""));
                    response.extensions_mut().insert(output);
                    Ok::<_, BoxError>(response)
                }
            }));
        let request = Request::get("/a").body(text("")).unwrap();
        keeper.abandon(Box::pin(service.oneshot(request))).await;
        assert_eq!(was_held.recv().await, Some(true), "{how}");
        free(&locks, "/a").await;
    }
}
