//! The deadlines of callers, and refusals before a wait that would be too long.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::poll;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use lock_tower::http::{Deadline, DeadlineSource};
use lock_tower::{
    ByHeader, ByPath, Cause, HttpLockLayer, Keys, LockError, LockScopeLayer, RequestLocks,
};
use lockcore::Locks;
use tokio::time::Instant;
use tower::{Layer as _, ServiceExt as _, service_fn};

type Body = Empty<bytes::Bytes>;

const WAIT: Duration = Duration::from_secs(10);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn sources() -> [DeadlineSource; 3] {
    let header = HeaderName::from_static("x-budget-ms");
    [DeadlineSource::GrpcTimeout, DeadlineSource::Header(header), DeadlineSource::Extension]
}

/// Returns why a request for the key `/a` was refused, and how long it waited.
async fn refused(layer: HttpLockLayer<ByPath>, request: Request<Body>) -> (Cause, Duration) {
    let service =
        layer.layer(service_fn(async |_| Ok::<_, Infallible>(Response::new(Body::new()))));
    let began = Instant::now();
    let response = service.oneshot(request).await.unwrap();
    let error = response.extensions().get::<LockError>().expect("a refusal");
    (error.cause(), began.elapsed())
}

fn request(name: &'static str, value: &'static str) -> Request<Body> {
    Request::get("/a").header(name, value).body(Body::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_its_callers_deadline_and_never_longer_than_the_wait() {
    let locks = Locks::in_memory();
    let guard = locks.lock("/a").await.unwrap();
    let layer = || HttpLockLayer::new(locks.clone(), ByPath::new()).wait(WAIT);
    let timed = || layer().deadline_from(sources()).handler_reserve(ms(200));
    let mut in_extensions = request("x", "y");
    in_extensions.extensions_mut().insert(Deadline(Instant::now() + ms(3_000)));
    let cases = [
        (layer(), request("grpc-timeout", "1S"), WAIT),
        (timed(), request("grpc-timeout", "1S"), ms(800)),
        (timed(), request("x-budget-ms", "2000"), ms(1_800)),
        (timed(), request("x-budget-ms", "100"), ms(0)),
        (timed(), request("x-budget-ms", "60000"), WAIT),
        (timed(), request("x-budget-ms", "soon"), WAIT),
        (timed(), request("x-envoy-expected-rq-timeout-ms", "1"), WAIT),
        (timed().wait_forever(), request("grpc-timeout", "30S"), ms(29_800)),
    ];
    for (number, (layer, request, wait)) in cases.into_iter().enumerate() {
        let (cause, waited) = refused(layer, request).await;
        assert_eq!(cause, Cause::Busy, "{number}");
        assert!((wait..wait + ms(20)).contains(&waited), "{number}: {waited:?}");
    }
    in_extensions.extensions_mut().insert(Deadline(Instant::now() + ms(3_000)));
    let (_, waited) = refused(timed(), in_extensions).await;
    assert!((ms(2_800)..ms(2_820)).contains(&waited), "{waited:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_asked_for_inside_waits_until_the_deadline_of_the_request() {
    let locks = Locks::in_memory();
    let guard = locks.lock("a").await.unwrap();
    let layer = LockScopeLayer::new(locks.clone()).deadline_from(sources());
    let service = layer.layer(service_fn(async |request: Request<_>| {
        let taken = RequestLocks::of(request.extensions()).unwrap();
        tokio::time::sleep(ms(400)).await; // the deadline belongs to the request, not to the wait
        let began = Instant::now();
        let error = taken.lock(Keys::one("a")).await.unwrap_err();
        assert_eq!(error.cause(), Cause::Busy);
        assert!((ms(600)..ms(620)).contains(&began.elapsed()), "{:?}", began.elapsed());
        Ok::<_, Infallible>(Response::new(Body::new()))
    }));
    service.oneshot(request("grpc-timeout", "1S")).await.unwrap();
    drop(guard);
}

// Once, each layer counted the time anew.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_header_states_runs_from_the_outermost_layer_on() {
    let locks = Locks::in_memory();
    let (outer, _inner) = (locks.lock("x").await.unwrap(), locks.lock("/a").await.unwrap());
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(WAIT);
    let inner = layer
        .deadline_from(sources())
        .layer(service_fn(async |_| Ok::<_, Infallible>(Response::new(Body::new()))));
    let layer = HttpLockLayer::new(locks.clone(), ByHeader::new("name")).wait(WAIT);
    let service = layer.deadline_from(sources()).layer(inner);
    let mut request = request("x-budget-ms", "1000");
    request.headers_mut().insert("name", "x".parse().unwrap());
    let began = Instant::now();
    tokio::spawn(async move {
        tokio::time::sleep(ms(900)).await;
        drop(outer);
    });
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 423);
    assert!((ms(1_000)..ms(1_020)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_handler_learns_how_much_of_the_callers_time_is_left_after_the_wait() {
    async fn left(request: Request<impl Sized>) -> Result<Response<Body>, Infallible> {
        let mut response = Response::new(Body::new());
        let deadline = request.extensions().get::<Deadline>();
        let left = deadline.map(|Deadline(at)| at.duration_since(Instant::now()).as_millis());
        response.extensions_mut().insert(left);
        Ok(response)
    }

    let locks = Locks::in_memory();
    let layer = || HttpLockLayer::new(locks.clone(), ByPath::new()).handler_reserve(ms(200));
    let scope = || LockScopeLayer::new(locks.clone());
    let on = |name: &'static str| [DeadlineSource::Header(HeaderName::from_static(name))];
    let three = || request("x-three", "3000");
    let mut both = three();
    both.extensions_mut().insert(Deadline(Instant::now() + ms(2_000)));
    let answers = [
        (layer().layer(service_fn(left)).oneshot(three()).await, None),
        (layer().deadline_from(on("x")).layer(service_fn(left)).oneshot(three()).await, None),
    ];
    for (response, expected) in answers {
        assert_eq!(response.unwrap().extensions().get::<Option<u128>>(), Some(&expected));
    }
    let response = scope().deadline_from(on("x-three")).layer(service_fn(left)).oneshot(three());
    assert_eq!(response.await.unwrap().extensions().get(), Some(&Some(3_000_u128)));

    let guard = locks.lock("/a").await.unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(ms(500)).await;
        drop(guard);
    });
    let timed = layer().deadline_from(on("x-three"));
    let response = timed.layer(service_fn(left)).oneshot(three()).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Some(2_500_u128)));
    // Of the extension and the header, the earlier counts.
    let response = timed.layer(service_fn(left)).oneshot(both).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Some(1_500_u128)));
    let mut both = three();
    both.extensions_mut().insert(Deadline(Instant::now() + ms(9_000)));
    let response = timed.layer(service_fn(left)).oneshot(both).await.unwrap();
    assert_eq!(response.extensions().get(), Some(&Some(3_000_u128)));
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_deadlines_counts() {
    let locks = Locks::in_memory();
    let guard = locks.lock("a").await.unwrap();
    for order in 0..3 {
        let began = Instant::now();
        let at = |millis| Keys::one("a").wait_until(began + ms(millis));
        let keys = match order {
            0 => at(100).wait_until(began + ms(500)),
            1 => at(500).join(at(100)),
            _ => at(100).join(at(500)),
        };
        let layer = LockScopeLayer::new(locks.clone());
        let service = layer.layer(service_fn(move |request: Request<_>| {
            let keys = keys.clone();
            async move {
                let taken = RequestLocks::of(request.extensions()).unwrap();
                taken.lock(keys).await.unwrap_err();
                Ok::<_, Infallible>(Response::new(Body::new()))
            }
        }));
        service.oneshot(request("x", "y")).await.unwrap();
        assert!((ms(100)..ms(120)).contains(&began.elapsed()), "{order}: {:?}", began.elapsed());
    }
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_would_be_too_long_is_refused_with_503_and_the_time_of_the_queue() {
    let locks = Locks::in_memory();
    let layer = HttpLockLayer::new(locks.clone(), ByPath::new()).wait(ms(100)).refuse_early(true);
    let handler = service_fn(async |_| {
        tokio::time::sleep(ms(50)).await;
        Ok::<_, Infallible>(Response::new(Body::new()))
    });
    let service = layer.clone().layer(handler);
    for _ in 0..100 {
        assert_eq!(service.clone().oneshot(request("x", "y")).await.unwrap().status(), 200);
    }
    let guard = locks.lock("/a").await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..200 {
        let mut acquire = Box::pin(locks.lock("/a"));
        assert!(poll!(acquire.as_mut()).is_pending());
        waiting.push(acquire);
    }
    let began = Instant::now();
    let response = service.oneshot(request("x", "y")).await.unwrap();
    assert!(began.elapsed() < ms(20), "{:?}", began.elapsed());
    assert_eq!(response.status(), 503);
    let after: u64 = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    // 200 waiters ahead for 50 ms each make 10 s, and a random part of up to as much is added.
    assert!((10..=24).contains(&after), "however short its own wait is: {after}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    assert!(body.contains(r#""code":"lock-wait-too-long""#), "{body}");

    // A request that is not refused early waits until its maximum wait ends.
    let scope = LockScopeLayer::new(locks.clone()).wait(ms(100)).refuse_early(true);
    let each = service_fn(async |request: Request<_>| {
        let locks = request.extensions().get::<RequestLocks>().expect("in a scope");
        for (refuses_early, cause) in [(true, Cause::WaitTooLong), (false, Cause::Busy)] {
            let keys = Keys::one("/b").and("/a").refuse_early(refuses_early);
            assert_eq!(locks.lock(keys).await.expect_err("it is held").cause(), cause);
        }
        Ok::<_, Infallible>(Response::new(Body::new()))
    });
    assert_eq!(scope.layer(each).oneshot(request("x", "y")).await.unwrap().status(), 200);

    let call = request("content-type", "application/grpc");
    let grpc = layer.grpc().layer(handler).oneshot(call).await.unwrap();
    assert_eq!(
        (&grpc.headers()["grpc-status"], grpc.status().as_u16()),
        (&"14".parse().unwrap(), 200)
    );
    assert!(grpc.headers().contains_key("grpc-retry-pushback-ms"));
    drop((waiting, guard));
}
