//! A second request with the same key receives the response to the first.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{Method, Request, Response, StatusCode};
use lock_idempotency::{Attempt, StoreError};
use lock_tests::http::text;
use lockcore::Locks;

use crate::support::{Spy, counted, gated, layer, payment, payment_of, send, serve, settle, spawn};

#[tokio::test(start_paused = true)]
async fn a_second_request_gets_the_bytes_of_the_first() {
    let service = serve(&layer(&Locks::in_memory(), &Spy::default()), async |_| {
        let response = Response::builder().status(StatusCode::CREATED);
        let response = response.header(CONTENT_TYPE, "text/plain; charset=utf-8");
        let response = response.header(LOCATION, "/payments/1").header(SET_COOKIE, "session=s");
        let response = response.header(CACHE_CONTROL, "a").header(CACHE_CONTROL, "b");
        response.header("x-other", "o").body(text("paid")).unwrap()
    });
    let first = send(&service, payment("a1")).await;
    assert_eq!((first.status, first.body.as_str(), first.is_replayed()), (201, "paid", false));
    assert_eq!(first.headers[SET_COOKIE], "session=s", "the first one gets it all");
    for key in ["a1", "\"a1\""] {
        let second = send(&service, payment(key)).await;
        assert_eq!(
            (second.status, second.body.as_str(), second.is_replayed()),
            (201, "paid", true)
        );
        assert_eq!(second.headers[LOCATION], "/payments/1");
        let caching = second.headers.get_all(CACHE_CONTROL).iter().collect::<Vec<_>>();
        assert_eq!(caching, ["a", "b"]);
        for name in [SET_COOKIE.as_str(), "x-other"] {
            assert!(!second.headers.contains_key(name), "{name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_while_the_first_one_runs_waits_for_its_answer() {
    let locks = Locks::in_memory();
    let (service, mut keeper) = gated(&layer(&locks, &Spy::default()));
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    let second = spawn(&service, payment("a1"));
    settle().await;
    assert!(!second.is_finished() && locks.status().waiting == 1, "it waits in line");
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().body, "paid");
    let second = second.await.unwrap();
    assert_eq!((second.body.as_str(), second.is_replayed()), ("paid", true));
    assert!(keeper.is_alone(), "the handler ran once");
}

#[tokio::test(start_paused = true)]
async fn sixty_four_at_once_run_the_handler_once_and_do_not_queue_behind_each_other() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    let (service, mut keeper) = gated(&layer(&locks, &store));
    let all = (0..64).map(|_| spawn(&service, payment("a1"))).collect::<Vec<_>>();
    keeper.entered().await;
    settle().await;
    keeper.let_one_on();
    let answers = join_all(all).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert!(answers.iter().all(|answer| answer.status == 200 && answer.body == "paid"));
    assert_eq!(answers.iter().filter(|answer| answer.is_replayed()).count(), 63);
    assert!(keeper.is_alone(), "the handler ran once");
    let starts = store.count("start");
    assert!(starts <= 3, "{starts} of them had the lock, one after the other");
    settle().await;
    assert_eq!((locks.status().waiting, locks.status().holding), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_is_sent_without_the_lock() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    let (service, runs) = counted(&layer(&locks, &store));
    send(&service, payment("a1")).await;
    settle().await;
    // A stored response is sent even while the lock is held.
    let key = lock_idempotency::RecordKey::new(&lock_idempotency::Scope::new("ada"), "a1");
    let _guard = locks.lock(format!("idempotency:lock:{key}")).await.unwrap();
    assert!(send(&service, payment("a1")).await.is_replayed());
    assert_eq!((runs.load(Ordering::SeqCst), store.count("start")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_there_is_sent_although_the_lock_is_refused() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    let at_once = layer(&locks, &store).locking(|locks| locks.wait(Duration::ZERO));
    let full = layer(&locks, &store).locking(|locks| locks.queue_limit(1));
    send(&counted(&at_once).0, payment("a1")).await;
    settle().await;
    // As after the death of a process between the finish and the release; and another one waits.
    let lock = |key: &str| {
        let key = lock_idempotency::RecordKey::new(&lock_idempotency::Scope::new("ada"), key);
        locks.lock(format!("idempotency:lock:{key}"))
    };
    let _guards = [lock("a1").await.unwrap(), lock("a2").await.unwrap()];
    let _waiters = ["a1", "a2"].map(|key| tokio::spawn(lock(key).into_future()));
    settle().await;
    for (layer, status) in [(at_once, 423), (full, 429)] {
        let (service, _) = counted(&layer);
        assert!(send(&service, payment("a1")).await.is_replayed(), "{status}");
        let other = payment_of("ada", "a1", "900 cents");
        assert_eq!(send(&service, other).await.code(), "idempotency-key-reused");
        // Without a response, the lock's refusal stands, even if the store fails.
        assert_eq!(send(&service, payment("a2")).await.status, status);
        store.fail("look_up", Some(StoreError::unavailable("down")));
        assert_eq!(send(&service, payment("a2")).await.status, status);
        store.fail("look_up", None);
    }
}

#[tokio::test(start_paused = true)]
async fn services_with_namespaces_of_their_own_share_no_answer_in_one_store() {
    let store = Spy::default();
    for namespace in ["shop", "blog"] {
        let locks = Locks::builder().namespace(namespace).in_memory().expect("in range");
        let (service, runs) = counted(&layer(&locks, &store));
        assert!(!send(&service, payment("a1")).await.is_replayed(), "{namespace}");
        assert!(send(&service, payment("a1")).await.is_replayed(), "{namespace}");
        assert_eq!(runs.load(Ordering::SeqCst), 1, "{namespace}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_methods_and_requests_without_a_key_pass() {
    let store = Spy::default();
    let (service, runs) = counted(&layer(&Locks::in_memory(), &store));
    for round in 0..2 {
        for method in [Method::GET, Method::HEAD, Method::PUT] {
            let mut request = payment("a1");
            *request.method_mut() = method.clone();
            let answer = send(&service, request).await;
            assert!(answer.status == 200 && !answer.is_replayed(), "{method} {round}");
        }
        let mut request = payment("a1");
        request.headers_mut().remove("idempotency-key");
        assert_eq!(send(&service, request).await.status, 200);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 8);
    assert_eq!(store.count("look_up") + store.count("start"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_request_is_refused_also_while_the_first_one_runs() {
    let locks = Locks::in_memory();
    let (service, mut keeper) = gated(&layer(&locks, &Spy::default()));
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    let other = async || send(&service, payment_of("ada", "a1", "900 cents")).await;
    let refused = other().await;
    assert_eq!((refused.status, refused.code().as_str()), (422, "idempotency-key-reused"));
    assert!(!first.is_finished(), "it is refused at once");
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().body, "paid");
    assert_eq!(other().await.code(), "idempotency-key-reused");
    settle().await;
    assert_eq!(locks.status().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn two_users_with_one_key_never_see_each_other() {
    let service = serve(
        &layer(&Locks::in_memory(), &Spy::default()),
        async |request: crate::support::Asked| {
            let user = request.headers()["x-user"].to_str().unwrap().to_owned();
            Response::new(text(format!("secret of {user}")))
        },
    );
    for round in [false, true] {
        for user in ["ada", "bob"] {
            let answer = send(&service, payment_of(user, "a1", "500 cents")).await;
            assert_eq!(answer.body, format!("secret of {user}"));
            assert_eq!(answer.is_replayed(), round);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_ends_after_its_time() {
    let hour = Duration::from_secs(3_600);
    let (service, _) = counted(&layer(&Locks::in_memory(), &Spy::default()).expiry(hour));
    assert_eq!(send(&service, payment("a1")).await.body, "run 1");
    tokio::time::sleep(hour - Duration::from_secs(1)).await;
    assert_eq!(send(&service, payment("a1")).await.body, "run 1");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(send(&service, payment("a1")).await.body, "run 2");
}

#[tokio::test(start_paused = true)]
async fn a_handler_finds_its_attempt_and_its_body() {
    use http_body_util::BodyExt as _;
    let service = serve(
        &layer(&Locks::in_memory(), &Spy::default()),
        async |request: crate::support::Asked| {
            let attempt = request.extensions().get::<Attempt>().unwrap().clone();
            assert!(!attempt.is_again() && attempt.fencing_token().get() > 0);
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            Response::new(text(format!("{}: {body}", attempt.idempotency_key())))
        },
    );
    let request: Request<_> = payment("\"a1\"");
    assert_eq!(send(&service, request).await.body, "a1: 500 cents");
}
