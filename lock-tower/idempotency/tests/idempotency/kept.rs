//! What is stored from a response, and what later requests receive.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt as _;
use lock_idempotency::{Attempt, IdempotencyLayer, Meaning};
use lock_tests::http::{AnyBody, piece, streamed, text};
use lockcore::Locks;
use tower::ServiceExt as _;

use crate::support::{Service, Spy, layer, payment, read, send, serve, settle};

/// Creates a service whose handler responds with the result of `answer`, and the counter of its
/// runs.
fn answering(
    layer: &IdempotencyLayer,
    answer: impl Fn() -> Response<AnyBody> + Send + Sync + 'static,
) -> (Service, Arc<AtomicUsize>) {
    let (runs, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(answer));
    let counter = Arc::clone(&runs);
    let service = serve(layer, move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let answer = Arc::clone(&answer);
        async move { answer() }
    });
    (service, runs)
}

fn plain() -> IdempotencyLayer {
    layer(&Locks::in_memory(), &Spy::default())
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_the_work_is_kept_and_one_that_says_that_nothing_was_done_is_not() {
    let kept = [200, 201, 204, 302, 303, 307, 400, 402, 404, 410, 422];
    let ended = [401, 403, 405, 406, 407, 408, 409, 412, 413, 415, 421, 423, 424, 425, 429, 431];
    let ended = ended.into_iter().filter(|status| *status != 408).chain([501, 503, 505, 511]);
    let all = kept.into_iter().map(|status| (status, 1)).chain(ended.map(|status| (status, 2)));
    for (status, expected) in all {
        let (service, runs) =
            answering(&plain(), move || Response::builder().status(status).body(text("")).unwrap());
        assert_eq!(send(&service, payment("a1")).await.status, status);
        let second = send(&service, payment("a1")).await;
        assert_eq!((second.status, second.is_replayed()), (status, expected == 1));
        assert_eq!(runs.load(Ordering::SeqCst), expected, "{status}");
    }
}

/// Sends two requests with one key, to which the handler responds with this status. Returns the
/// value of `is_again` for each run of the handler, and `None` if it did not run.
async fn is_again(layer: &IdempotencyLayer, status: u16) -> [Option<bool>; 2] {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let service = serve(layer, move |request| {
        let attempt = request.extensions().get::<Attempt>().unwrap();
        record.lock().unwrap().push(attempt.is_again());
        async move { Response::builder().status(status).body(text("")).unwrap() }
    });
    for _ in 0..2 {
        send(&service, payment("a1")).await;
    }
    let seen = seen.lock().unwrap();
    [seen.first().copied(), seen.get(1).copied()]
}

#[tokio::test(start_paused = true)]
async fn after_an_answer_that_leaves_it_open_the_handler_runs_again_and_is_told() {
    for status in [408, 500, 502, 504, 507, 599] {
        assert_eq!(is_again(&plain(), status).await, [Some(false), Some(true)], "{status}");
        let remembers = plain().remember_starts(true);
        assert_eq!(is_again(&remembers, status).await, [Some(false), None], "{status}");
    }
    // This status means that nothing was done, so the next attempt is again like a first attempt.
    assert_eq!(is_again(&plain().remember_starts(true), 503).await, [Some(false); 2]);
}

#[tokio::test(start_paused = true)]
async fn a_function_decides_otherwise_what_an_answer_means() {
    let all = |meaning| plain().remember_starts(true).meaning(move |_| meaning);
    assert_eq!(is_again(&all(Meaning::Done), 500).await, [Some(false), None]);
    assert_eq!(is_again(&all(Meaning::NothingDone), 200).await, [Some(false); 2]);
    let (service, _) = answering(&all(Meaning::Unknown), || Response::new(text("")));
    assert_eq!(send(&service, payment("a1")).await.status, 200);
    let later = send(&service, payment("a1")).await;
    assert_eq!((later.status, later.code().as_str()), (409, "idempotency-outcome-unknown"));
}

/// Sends two requests, and asserts that the second is refused because the first response was not
/// stored. Returns the body of the first response.
async fn is_done_and_not_kept(
    layer: &IdempotencyLayer,
    answer: fn() -> Response<AnyBody>,
) -> String {
    let (service, runs) = answering(layer, answer);
    let first = send(&service, payment("a1")).await;
    let later = send(&service, payment("a1")).await;
    assert_eq!((later.status, later.code().as_str()), (409, "idempotency-answer-not-kept"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    first.body
}

#[tokio::test(start_paused = true)]
async fn size_never_makes_a_payment_run_twice() {
    let small = || plain().keep_limit(4);
    let known = || Response::new(text("12345"));
    assert_eq!(is_done_and_not_kept(&small(), known).await, "12345");
    let unknown = || {
        let (pieces, body) = streamed();
        pieces.send(piece("123")).unwrap();
        pieces.send(piece("45")).unwrap();
        Response::new(body)
    };
    assert_eq!(is_done_and_not_kept(&small(), unknown).await, "12345", "nothing of it is missing");
    let (service, _) = answering(&small(), || Response::new(text("1234")));
    send(&service, payment("a1")).await;
    assert!(send(&service, payment("a1")).await.is_replayed(), "the limit itself fits");
}

#[tokio::test(start_paused = true)]
async fn streams_upgrades_and_compressed_answers_are_done_and_not_kept() {
    let with = |name, value| Response::builder().header(name, value).body(text("x")).unwrap();
    is_done_and_not_kept(&plain(), || {
        Response::builder().header(CONTENT_TYPE, "Text/Event-Stream; x=y").body(text("x")).unwrap()
    })
    .await;
    is_done_and_not_kept(&plain(), || {
        Response::builder().header(CONTENT_ENCODING, "gzip").body(text("x")).unwrap()
    })
    .await;
    is_done_and_not_kept(&plain(), || {
        Response::builder().status(StatusCode::SWITCHING_PROTOCOLS).body(text("")).unwrap()
    })
    .await;
    let (service, _) = answering(&plain(), move || with(CONTENT_TYPE, "text/event-streams"));
    send(&service, payment("a1")).await;
    assert!(send(&service, payment("a1")).await.is_replayed(), "that is another type");
}

#[tokio::test(start_paused = true)]
async fn a_body_without_a_size_is_collected_if_it_comes_soon() {
    let (service, runs) = answering(&plain(), || {
        let (pieces, body) = streamed();
        tokio::spawn(async move {
            for text in ["pa", "id"] {
                tokio::time::sleep(Duration::from_millis(400)).await;
                pieces.send(piece(text)).unwrap();
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("x-trailer", "t".parse().unwrap());
            pieces.send(Ok(Frame::trailers(trailers))).unwrap();
        });
        Response::new(body)
    });
    let first = service.clone().oneshot(payment("a1")).await.unwrap().into_body();
    let first = first.collect().await.unwrap();
    assert_eq!(first.trailers().unwrap()["x-trailer"], "t", "the first request gets them");
    assert_eq!(first.to_bytes(), "paid");
    let second = send(&service, payment("a1")).await;
    assert_eq!((second.body.as_str(), second.is_replayed()), ("paid", true));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn no_time_is_too_long() {
    let layer = plain().collect_within(Duration::MAX).max_run(Duration::MAX);
    let layer = layer.expiry(Duration::MAX).body_within(Duration::MAX).store_within(Duration::MAX);
    let (service, _) = answering(&layer, || {
        let (pieces, body) = streamed();
        pieces.send(piece("paid")).unwrap();
        Response::new(body)
    });
    assert_eq!(send(&service, payment("a1")).await.body, "paid");
    assert!(send(&service, payment("a1")).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_longer_is_sent_as_it_comes() {
    let locks = Locks::in_memory();
    let sender = Arc::new(std::sync::Mutex::new(None));
    let keep = Arc::clone(&sender);
    let (service, runs) = answering(&layer(&locks, &Spy::default()), move || {
        let (pieces, body) = streamed();
        pieces.send(piece("pa")).unwrap();
        *keep.lock().unwrap() = Some(pieces);
        Response::new(body)
    });
    let mut response = service.clone().oneshot(payment("a1")).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "pa", "its first part is not lost");
    settle().await;
    assert_eq!(locks.status().holding, 0, "the rest does not keep the lock");
    let pieces = sender.lock().unwrap().take().unwrap();
    pieces.send(piece("id")).unwrap();
    drop(pieces);
    assert_eq!(read(response).await.body, "id");
    assert_eq!(send(&service, payment("a1")).await.code(), "idempotency-answer-not-kept");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_fails_for_its_client_and_was_the_work() {
    let (service, runs) = answering(&plain(), || {
        let (pieces, body) = streamed();
        pieces.send(piece("pa")).unwrap();
        pieces.send(Err("cut".into())).unwrap();
        Response::new(body)
    });
    let mut body = service.clone().oneshot(payment("a1")).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "pa");
    assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "cut");
    assert_eq!(send(&service, payment("a1")).await.code(), "idempotency-answer-not-kept");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}
