//! The options of layers and of keys.

use std::time::Duration;

use http::{Request, Response};
use lock_tests::{LIMIT, queued};
use lock_tower::{ByPath, Cause, HttpLockLayer, Keys, LockError, LockLayer};
use lockcore::{LockErrorKind, LockOptions, Locks, MemoryStore};
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use crate::support::{job, layer, locked, next, nothing_reaches, send};

const SHORT: Duration = Duration::from_millis(30);

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn cause(error: &BoxError) -> Cause {
    error.downcast_ref::<LockError>().expect("an error of the lock").cause()
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_after_ten_seconds_unless_something_else_is_said() {
    let locks = Locks::in_memory();
    let _guard = locks.lock("a").await.unwrap();
    for (wait, expected) in [(None, 10), (Some(2), 2), (Some(0), 0)] {
        let layer = match wait {
            Some(wait) => layer(&locks).wait(Duration::from_secs(wait)),
            None => layer(&locks),
        };
        let (service, _handle) = locked(layer);
        let start = tokio::time::Instant::now();
        let error = send(&service, job("a", 1)).await.unwrap().unwrap_err();
        assert_eq!(cause(&error), Cause::Busy);
        assert_eq!(start.elapsed().as_secs(), expected);
    }
    let (service, mut handle) = locked(layer(&locks).wait_forever());
    let answer = send(&service, job("a", 1));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    nothing_reaches(&mut handle).await;
    assert!(!answer.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_wait_set_on_the_locks_counts_in_a_layer_that_sets_none() {
    let of =
        |options: LockOptions| Locks::builder().defaults(options).in_memory().expect("in range");
    let locks = of(LockOptions::new().wait(s(30)));
    let http = HttpLockLayer::new(locks.clone(), ByPath::new());
    let service = http
        .layer(service_fn(async |_: Request<_>| Ok::<_, BoxError>(Response::new(String::new()))));
    let _guard = locks.lock("/a").await.unwrap();
    let start = tokio::time::Instant::now();
    let response = service.oneshot(Request::get("/a").body(String::new()).unwrap()).await.unwrap();
    assert_eq!((response.status().as_u16(), start.elapsed().as_secs()), (423, 30));

    let locks = of(LockOptions::new().wait_forever());
    let _guard = locks.lock("a").await.unwrap();
    let (service, _handle) = locked(layer(&locks));
    let answer = send(&service, job("a", 1));
    tokio::time::sleep(s(3600)).await;
    assert!(!answer.is_finished());
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let locks = Locks::in_memory();
    let (service, _handle) = locked(layer(&locks).queue_limit(1));
    let _guard = locks.lock("a").await.unwrap();
    let _waiting = send(&service, job("a", 1));
    queued(&locks, "a", 1).await;
    let error = send(&service, job("a", 2)).await.unwrap().unwrap_err();
    assert_eq!(cause(&error), Cause::QueueFull);
    queued(&locks, "a", 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_can_bring_options_of_its_own() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), |wait: &u64| {
        Keys::one("a").wait(Duration::from_secs(*wait)).queue_limit(5)
    });
    let service = layer.layer(service_fn(|_: u64| async move { Ok::<_, BoxError>(()) }));
    let _guard = locks.lock("a").await.unwrap();
    for wait in [0, 3, 60] {
        let start = tokio::time::Instant::now();
        let error = service.clone().oneshot(wait).await.unwrap_err();
        assert_eq!((cause(&error), start.elapsed().as_secs()), (Cause::Busy, wait));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_key_leaves_open_the_layer_says_then_the_locks_then_the_defaults() {
    // The wait comes from the key, the queue limit from the layer, the lease from the `Locks`.
    let locks =
        Locks::builder().lease(s(7)).queue_limit(9).wait(s(9)).in_memory().expect("in range");
    let of_layer = LockOptions::new().queue_limit(1).wait(s(8));
    let layer = LockLayer::new(locks.clone(), |_: &u64| {
        Keys::one("a").options(LockOptions::new().wait(s(3)))
    });
    let service = layer.options(of_layer).layer(service_fn(async |_: u64| {
        tokio::time::sleep(s(60)).await;
        Ok::<_, BoxError>(())
    }));
    let lease = async || {
        let holders = locks.inspect("a").await.unwrap().holders;
        holders.first().map_or(Duration::ZERO, |holder| holder.lease_left)
    };

    let holder = tokio::spawn(service.clone().oneshot(0));
    while lease().await == Duration::ZERO {
        tokio::task::yield_now().await;
    }
    assert_eq!(lease().await, s(7));
    let start = tokio::time::Instant::now();
    let waiter = tokio::spawn(service.clone().oneshot(0));
    queued(&locks, "a", 1).await;
    let error = service.clone().oneshot(0).await.unwrap_err();
    assert_eq!(cause(&error), Cause::QueueFull);
    assert_eq!(cause(&waiter.await.unwrap().unwrap_err()), Cause::Busy);
    assert_eq!(start.elapsed().as_secs(), 3);
    holder.abort();

    let plain = Locks::in_memory();
    let guard = plain.lock("a").await.unwrap();
    assert_eq!(plain.inspect("a").await.unwrap().holders[0].lease_left, s(30));
    drop(guard);
}

#[tokio::test]
async fn without_the_store_requests_are_refused_and_pass_only_where_it_was_said() {
    let store = MemoryStore::new();
    let locks = Locks::builder().on_memory(&store).unwrap();
    store.refuse(Some(LockErrorKind::Unavailable));
    let (closed, _handle) = locked(layer(&locks).wait(SHORT));
    let error = send(&closed, job("a", 1)).await.unwrap().unwrap_err();
    assert_eq!(cause(&error), Cause::Unavailable);

    let (open, mut handle) = locked(layer(&locks).wait(SHORT).fail_open(true));
    let answer = send(&open, job("a", 1));
    let (request, respond) = next(&mut handle).await;
    assert!(request.lock.is_none());
    respond.send_response(1);
    answer.await.unwrap().unwrap();

    // These errors are not outages, because most of them depend on the key, or on the server's
    // settings.
    let others = [
        (LockErrorKind::QueueFull, Cause::QueueFull),
        (LockErrorKind::WrongType, Cause::Misconfigured),
        (LockErrorKind::Denied, Cause::Unavailable),
        (LockErrorKind::Protocol, Cause::Unavailable),
        (LockErrorKind::Unsupported, Cause::Misconfigured),
        (LockErrorKind::ReadOnly, Cause::Unavailable),
        (LockErrorKind::OutOfMemory, Cause::Unavailable),
    ];
    for (kind, expected) in others {
        store.refuse(Some(kind));
        let answer = send(&open, job("a", 1));
        let error =
            tokio::time::timeout(LIMIT, answer).await.expect("refused").unwrap().unwrap_err();
        assert_eq!(cause(&error), expected, "{kind:?}");
    }
}

#[tokio::test]
async fn an_option_out_of_its_range_says_that_the_server_is_wrong() {
    let locks = Locks::in_memory();
    let (service, _handle) = locked(layer(&locks).lease(Duration::ZERO));
    let error = send(&service, job("a", 1)).await.unwrap().unwrap_err();
    assert_eq!(cause(&error), Cause::Misconfigured);
}

#[tokio::test]
async fn the_label_and_a_handle_tell_of_the_hold() {
    let locks = Locks::builder().namespace("shop").in_memory().expect("in range");
    let (service, mut handle) = locked(layer(&locks).label("checkout"));
    let _answer = send(&service, job("a", 1));
    let (request, _respond) = next(&mut handle).await;
    let lock = request.lock.unwrap();
    assert_eq!(lock.key(), "a");
    assert!(lock.deadline() > tokio::time::Instant::now());
    let inspection = locks.inspect("a").await.unwrap();
    assert_eq!(inspection.holders[0].label.as_deref(), Some("checkout"));
}
