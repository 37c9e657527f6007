//! Reads, exclusive locks and permits: demands that run together, are shared within a request, or
//! are refused before anything is sent.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Method, Request, Response};
use http_body_util::Empty;
use lock_tests::{LIMIT, eventually};
use lock_tower::{
    ByPath, Cause, ExtractKeyExt as _, HttpLockLayer, Keys, LockError, LockErrorKind, LockHandle,
    LockLayer, LockScopeLayer, RequestLocks,
};
use lockcore::{LockKey, Locks};
use tower::{BoxError, Layer as _, ServiceBuilder, ServiceExt as _, service_fn};

use crate::support::{Job, job, next, nothing_reaches, send};

type Body = Empty<bytes::Bytes>;
type Key = fn(&Job) -> Keys;

/// Returns a job's key. The first letter says how it is locked: `r` read, `w` exclusive, `p`
/// permits.
fn by_letter(job: &Job) -> Keys {
    match job.key.unwrap_or_default().split_at(1) {
        ("r", name) => Keys::one(name).read(),
        ("w", name) => Keys::one(name).write(),
        ("p", name) => Keys::one(name).permits(1, 2),
        (_, name) => Keys::one(name),
    }
}

/// Waits until `count` requests are queued for this key.
async fn waiting(locks: &Locks, key: &str, count: usize) {
    eventually(&format!("{count} wait for {key}"), LIMIT, async || {
        locks.inspect(key).await.unwrap().waiters.len() == count
    })
    .await;
}

/// Acquires these keys one after the other in one request, and returns the last result.
async fn ask(locks: &Locks, asked: Vec<Keys>) -> Result<Vec<LockHandle>, LockError> {
    let layer = LockScopeLayer::new(locks.clone()).wait(Duration::ZERO);
    let last = Arc::new(std::sync::Mutex::new(None));
    let recorded = Arc::clone(&last);
    let service = layer.layer(service_fn(move |request: Request<_>| {
        let taken = RequestLocks::of(request.extensions()).unwrap();
        let asked = asked.clone();
        let recorded = Arc::clone(&recorded);
        async move {
            for keys in asked {
                let got = taken.lock(keys).await;
                *recorded.lock().unwrap() = Some(got);
            }
            Ok::<_, Infallible>(Response::new(Body::new()))
        }
    }));
    service.oneshot(Request::new(String::new())).await.unwrap();
    let got = last.lock().unwrap().take();
    got.expect("something is asked for")
}

#[tokio::test]
async fn reads_run_together_and_a_write_alone_in_the_order_of_arrival() {
    let locks = Locks::in_memory();
    let (inner, mut handle) = tower_test::mock::pair();
    let service = LockLayer::new(locks.clone(), by_letter as Key).layer(inner);
    let mut answers = vec![send(&service, job("rdoc", 0)), send(&service, job("rdoc", 1))];
    let first = next(&mut handle).await;
    let second = next(&mut handle).await;
    answers.push(send(&service, job("wdoc", 2)));
    waiting(&locks, "doc", 1).await;
    answers.push(send(&service, job("rdoc", 3)));
    waiting(&locks, "doc", 2).await;
    nothing_reaches(&mut handle).await; // the last read does not overtake the write
    first.1.send_response(first.0.number);
    nothing_reaches(&mut handle).await;
    second.1.send_response(second.0.number);
    let (write, answer) = next(&mut handle).await;
    assert_eq!(write.number, 2);
    nothing_reaches(&mut handle).await;
    answer.send_response(2);
    let (read, answer) = next(&mut handle).await;
    assert_eq!(read.number, 3);
    answer.send_response(3);
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer.await.unwrap().unwrap(), number);
    }
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn at_most_as_many_run_as_there_are_permits() {
    let locks = Locks::in_memory();
    let (inner, mut handle) = tower_test::mock::pair();
    let service = LockLayer::new(locks.clone(), by_letter as Key).layer(inner);
    let answers = [0, 1, 2].map(|number| send(&service, job("psmtp", number)));
    let first = next(&mut handle).await;
    let second = next(&mut handle).await;
    waiting(&locks, "smtp", 1).await;
    nothing_reaches(&mut handle).await;
    second.1.send_response(1);
    let third = next(&mut handle).await;
    assert_eq!(third.0.number, 2);
    third.1.send_response(2);
    first.1.send_response(0);
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    assert_eq!(locks.status().holding, 0);
}

// Once, an exclusive lock and a read of the same name did not exclude each other, even in one
// request.
#[tokio::test]
async fn two_demands_of_one_name_that_one_hold_does_not_cover_are_refused_in_every_combination() {
    let locks = Locks::in_memory();
    let a = || Keys::one("a");
    let demands = [a(), a().write(), a().read(), a().permits(1, 2)];
    let does_for = |held: usize, other: usize| match held {
        0 | 1 => other < 3,
        2 => other == 2,
        _ => false,
    };
    for (held, first) in demands.iter().enumerate() {
        for (other, second) in demands.iter().enumerate() {
            let got = ask(&locks, vec![first.clone(), second.clone()]).await;
            let pair = format!("{second:?} after {first:?}");
            match got {
                Ok(_) => assert!(does_for(held, other), "{pair}"),
                Err(error) => {
                    assert!(!does_for(held, other), "{pair}");
                    assert_eq!(error.cause(), Cause::Misconfigured, "{pair}");
                    assert!(error.as_clash().is_some(), "{pair}");
                }
            }
        }
    }
    assert_eq!(locks.status().holding, 0);
    // The two demands may also come from two layers.
    let outer = HttpLockLayer::new(locks.clone(), |_: &Request<_>| Keys::one("b").read());
    let inner = HttpLockLayer::new(locks.clone(), |_: &Request<_>| Keys::one("b"));
    let never = service_fn(async |_: Request<_>| Ok::<_, BoxError>(Response::new(Body::new())));
    let service = ServiceBuilder::new().layer(outer).layer(inner).service(never);
    let answer = service.oneshot(Request::new(String::new())).now_or_never().expect("at once");
    assert_eq!(answer.unwrap().status(), 500);
}

#[tokio::test]
async fn each_name_of_a_request_has_its_own_form() {
    let locks = Locks::in_memory();
    let keys = Keys::one("rates").read().join(Keys::one("account").write()).and("plain");
    let layer = LockLayer::new(locks.clone(), move |(): &()| keys.clone());
    let inner = locks.clone();
    let service = layer.layer(service_fn(move |()| {
        let locks = inner.clone();
        async move {
            assert!(locks.try_read("rates").await?.is_some());
            assert!(locks.try_write("rates").await?.is_none());
            assert!(locks.try_read("account").await?.is_none());
            assert!(locks.try_lock("plain").await?.is_none());
            Ok::<_, BoxError>(())
        }
    }));
    service.oneshot(()).await.unwrap();
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn methods_that_read_read_and_all_others_write() {
    let locks = Locks::in_memory();
    let key = ByPath::new().prefix("doc").read_on([Method::GET, Method::HEAD]);
    let layer = HttpLockLayer::new(locks.clone(), key).wait(Duration::ZERO);
    let service = layer
        .layer(service_fn(async |_: Request<_>| Ok::<_, Infallible>(Response::new(Body::new()))));
    let call = async |method: Method| {
        let request = Request::builder().method(method).uri("/7").body(String::new()).unwrap();
        service.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let _read = locks.read("doc:/7").await.unwrap();
    for method in [Method::GET, Method::HEAD] {
        assert_eq!(call(method).await, 200, "beside another read");
    }
    for method in [Method::PUT, Method::POST, Method::DELETE, Method::OPTIONS] {
        assert_eq!(call(method).await, 423, "not beside a read");
    }
}

#[tokio::test]
async fn what_a_request_has_is_shared_if_it_is_as_much_as_it_asks_for() {
    let locks = Locks::in_memory();
    let twice = |one: Keys, other: Keys| {
        let locks = &locks;
        async move { ask(locks, vec![one, other]).await.expect("it has it already").remove(0) }
    };
    let a = || Keys::one("a");
    twice(a().read(), a().read()).await;
    twice(a().write(), a().write()).await;
    twice(a().write(), a().read()).await;
    twice(a(), a()).await;
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn a_name_that_is_given_as_a_foreign_one_too_is_locked_once() {
    let builder = || Locks::builder().redisson_peers(true);
    for (builder, name) in [(builder(), "a"), (builder().namespace("shop"), "shop:a")] {
        let locks = builder.in_memory().expect("valid");
        let foreign = || Keys::key(LockKey::foreign(name).expect("a name"));
        // A second lock would wait for the first.
        for asked in [vec![foreign().and("a").and("b")], vec![Keys::one("a"), foreign()]] {
            ask(&locks, asked).await.expect("it has it already");
        }
        let one_permit = Keys::one("a").permits(1, 2);
        let refused = ask(&locks, vec![foreign().read().join(one_permit)]).await;
        assert_eq!(refused.unwrap_err().cause(), Cause::Misconfigured);
        assert_eq!(locks.status().holding, 0);
    }
}

#[tokio::test]
async fn requests_with_different_namespaces_acquire_the_same_locks_in_the_same_order() {
    let builder = || Locks::builder().redisson_peers(true);
    let foreign = || Keys::key(LockKey::foreign("order").expect("a name"));
    for (builder, given) in [(builder(), "shop:a"), (builder().namespace("shop"), "a")] {
        let locks = builder.in_memory().expect("valid");
        let held = ask(&locks, vec![Keys::one(given).join(foreign())]).await.expect("free");
        let keys: Vec<_> = held.iter().map(LockHandle::key).collect();
        assert_eq!(keys, ["order", given]);
    }
}

#[tokio::test]
async fn a_write_of_a_name_that_the_request_reads_is_refused_at_once_and_names_both_forms() {
    let locks = Locks::in_memory();
    let read = Keys::one("a").read();
    let write = Keys::one("a").write();
    let wait = LockScopeLayer::new(locks.clone()).wait_forever(); // it would wait for itself
    let service = wait.layer(service_fn(move |request: Request<_>| {
        let taken = RequestLocks::of(request.extensions()).unwrap();
        let read = read.clone();
        let write = write.clone();
        async move {
            taken.lock(read).await.unwrap();
            let refused = taken.lock(write).now_or_never().expect("without a wait").unwrap_err();
            Ok::<_, Infallible>(taken.refusals().respond(&refused).map(http_body_util::Full::new))
        }
    }));
    let response = service.oneshot(Request::new(String::new())).await.unwrap();
    assert_eq!(response.status(), 500);
    let error = response.extensions().get::<LockError>().unwrap();
    assert_eq!((error.cause(), error.kind()), (Cause::Misconfigured, LockErrorKind::InvalidOption));
    let clash = error.as_clash().expect("it names the two forms").to_string();
    assert_eq!(
        clash,
        "a request cannot acquire the same name as a read and as a lock: acquire the name once, \
         with all that the request needs"
    );
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn permits_that_one_request_asks_for_at_once_add_up() {
    let locks = Locks::in_memory();
    let of_ten = |count| Keys::one("a").permits(count, 10);
    for other in [5, 6] {
        let error = ask(&locks, vec![of_ten(6).join(of_ten(other))]).await.unwrap_err();
        let clash = error.as_clash().expect("it would wait for itself").to_string();
        let both = format!("as 6 of 10 permits and as {other} of 10 permits:");
        assert!(clash.contains(&both), "{clash}");
    }
    // Demands in the same call are added up and acquired together.
    let _others = locks.key("a").permits(1, 10).await.unwrap();
    ask(&locks, vec![of_ten(5).join(of_ten(4))]).await.expect("nine are free");
    let error = ask(&locks, vec![of_ten(5).join(of_ten(5))]).await.unwrap_err();
    assert_eq!(error.cause(), Cause::LimitReached, "one is not free");
}

// Once, ten requests that each held one of ten permits, and requested one more, waited for each
// other.
#[tokio::test]
async fn more_of_a_name_that_the_request_has_is_refused_at_once() {
    let locks = Locks::in_memory();
    let a = || Keys::one("a");
    let pairs = [
        (a().permits(1, 10), a().permits(1, 10)),
        (a().permits(6, 10), a().permits(6, 10)),
        (a().permits(1, 10), a().read()),
        (a().read(), a().permits(1, 10)),
        (a().permits(1, 10), a().write()),
        (a().permits(1, 10), a()),
    ];
    for (has, more) in pairs {
        let error = ask(&locks, vec![has, more]).await.unwrap_err();
        assert!(error.as_clash().is_some(), "it may wait for another that waits for it: {error}");
    }
    ask(&locks, vec![a().permits(1, 10), Keys::one("b").permits(1, 10)]).await.expect("not of a");
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn one_name_in_two_forms_at_once_is_refused_before_anything_is_sent() {
    let locks = Locks::in_memory();
    let a = || Keys::one("a");
    let sets = [
        a().join(a().permits(1, 2)),
        a().read().join(a().permits(1, 2)),
        a().permits(1, 2).join(a().permits(1, 3)),
    ];
    for keys in sets {
        let error = ask(&locks, vec![Keys::one("0").join(keys)]).await.unwrap_err();
        assert!(error.as_clash().is_some(), "{error}");
    }
    for keys in [a().read().write(), a().write().read(), a().permits(1, 2).permits(2, 2)] {
        let error = ask(&locks, vec![keys]).await.unwrap_err();
        assert_eq!(
            (error.cause(), error.kind()),
            (Cause::Misconfigured, LockErrorKind::InvalidOption)
        );
        assert!(error.as_clash().is_some(), "it is said of one name: {error}");
    }
    let status = locks.status();
    assert_eq!((status.waiting, status.holding, status.releasing), (0, 0, 0));
}

// Once, a transfer from an account to itself was 500: the client chooses both names.
#[tokio::test]
async fn one_name_that_is_read_and_locked_at_once_is_locked() {
    let locks = Locks::in_memory();
    let a = || Keys::one("a");
    let sets = [a().read().join(a().write()), a().join(a().read()), a().write().join(a())];
    for keys in sets {
        let service = LockLayer::new(locks.clone(), move |(): &()| keys.clone());
        let inner = locks.clone();
        let service = service.layer(service_fn(move |()| {
            let locks = inner.clone();
            async move { Ok::<_, BoxError>(locks.try_read("a").await?.is_none()) }
        }));
        assert!(service.oneshot(()).await.unwrap(), "it is not only read");
    }
    ask(&locks, vec![a().read().join(a().read())]).await.expect("both read");
}

#[tokio::test]
async fn a_number_of_permits_that_cannot_be_is_refused_before_anything_is_sent() {
    let locks = Locks::in_memory();
    for (count, limit) in [(0, 10), (11, 10), (0, 0), (1, 0), (1, 1 << 30), (u32::MAX, u32::MAX)] {
        // The valid name, which sorts first, is not acquired either.
        let keys = Keys::one("0").join(Keys::one("a").permits(count, limit));
        let error = ask(&locks, vec![keys]).now_or_never().expect("at once").unwrap_err();
        assert_eq!(
            (error.cause(), error.kind()),
            (Cause::Misconfigured, LockErrorKind::InvalidOption)
        );
        assert!(error.to_string().contains(&format!("{count} of {limit}")), "{error}");
    }
    ask(&locks, vec![Keys::one("a").permits((1 << 30) - 1, (1 << 30) - 1)]).await.unwrap();
}

#[tokio::test]
async fn a_handler_sees_its_hold_in_every_form() {
    let locks = Locks::in_memory();
    for (keys, token) in [
        (Keys::one("a").read(), true),
        (Keys::one("a").write(), true),
        (Keys::one("a").permits(2, 3), false),
    ] {
        let layer = LockScopeLayer::new(locks.clone()).on_lost(lock_tower::OnLost::Continue);
        let inner = locks.clone();
        let service = layer.layer(service_fn(move |request: Request<_>| {
            let taken = RequestLocks::of(request.extensions()).unwrap();
            let keys = keys.clone();
            let locks = inner.clone();
            async move {
                let hold = taken.lock(keys.clone()).await.unwrap().remove(0);
                assert_eq!((&*hold.key(), hold.is_lost()), ("a", false));
                assert_eq!(hold.fencing_token().get() > 0, token);
                assert!(hold.deadline() > tokio::time::Instant::now());
                assert!(hold.check().is_ok());
                assert!(!hold.reenter().unwrap().is_lost());
                assert_eq!(hold.detach(async { 7 }).await.unwrap(), 7);
                assert!(locks.force_release("a").await.unwrap());
                tokio::time::timeout(LIMIT, hold.lost()).await.expect("it is told");
                assert!(hold.is_lost() && hold.cancellation_token().is_cancelled());
                assert_eq!(hold.check().unwrap_err().cause(), Cause::Lost);

                let hold = taken.lock(Keys::one("b").permits(1, 1)).await.unwrap().remove(0);
                hold.release().await.unwrap();
                assert!(hold.is_lost());
                assert!(locks.try_permit("b", 1).await.unwrap().is_some());
                Ok::<_, Infallible>(Response::new(Body::new()))
            }
        }));
        service.oneshot(Request::new(String::new())).await.unwrap();
    }
}

#[tokio::test]
async fn the_loss_of_a_hold_stops_the_handler_in_every_form() {
    let locks = Locks::in_memory();
    let a = || Keys::one("a");
    for keys in [a().read(), a().write(), a().permits(1, 1)] {
        let layer = HttpLockLayer::new(locks.clone(), move |_: &Request<_>| keys.clone());
        let inner = locks.clone();
        let service = layer.layer(service_fn(move |_: Request<_>| {
            let locks = inner.clone();
            async move {
                locks.force_release("a").await?;
                std::future::pending::<Result<Response<Body>, BoxError>>().await
            }
        }));
        let answer = service.oneshot(Request::new(String::new()));
        let response = tokio::time::timeout(LIMIT, answer).await.expect("it stops").unwrap();
        assert_eq!(response.extensions().get().map(LockError::cause), Some(Cause::Lost));
    }
}

#[tokio::test]
async fn what_is_held_of_permits_can_be_kept_as_a_guard() {
    let locks = Locks::in_memory();
    let layer = LockScopeLayer::new(locks.clone());
    let service = layer.layer(service_fn(|request: Request<_>| {
        let taken = RequestLocks::of(request.extensions()).unwrap();
        async move {
            let permits = taken.guards(Keys::one("a").permits(1, 2)).await.unwrap();
            assert_eq!(permits[0].demand().weight(), 1);
            let reads = taken.guards(Keys::one("b").read()).await.unwrap();
            assert!(!reads[0].is_lost());
            Ok::<_, Infallible>(Response::new(Body::new()))
        }
    }));
    service.oneshot(Request::new(String::new())).await.unwrap();
}
