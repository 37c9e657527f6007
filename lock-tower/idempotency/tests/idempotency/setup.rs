//! Settings that the layer refuses when it is built, and requests without a usable key or scope.

use std::sync::atomic::Ordering;

use http::Method;
use lock_idempotency::{IdempotencyLayer, MemoryReplays, Scope};
use lockcore::Locks;

use crate::support::{Spy, by_user, counted, layer, payment, payment_of, send};

#[tokio::test(start_paused = true)]
async fn a_request_without_a_usable_key_is_refused() {
    let layer = layer(&Locks::in_memory(), &Spy::default()).required(true);
    let (service, runs) = counted(&layer);
    let mut missing = payment("a1");
    missing.headers_mut().remove("idempotency-key");
    let refused = send(&service, missing).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "idempotency-key-missing"));
    let mut two = payment("a1");
    two.headers_mut().append("idempotency-key", "a2".parse().unwrap());
    let refused = send(&service, two).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "idempotency-key-invalid"));
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_scope_refuses_its_request_and_an_empty_one_is_never_shared() {
    let locks = Locks::in_memory();
    let (service, runs) = counted(&layer(&locks, &Spy::default()));
    let mut nobody = payment("a1");
    nobody.headers_mut().remove("x-user");
    let refused = send(&service, nobody).await;
    assert_eq!((refused.status, refused.code().as_str()), (401, "idempotency-scope-refused"));
    for _ in 0..2 {
        let refused = send(&service, payment_of("", "a1", "500 cents")).await;
        assert_eq!((refused.status, refused.code().as_str()), (500, "idempotency-misconfigured"));
    }
    let half = IdempotencyLayer::new(locks, MemoryReplays::new(), |_| Ok(Scope::new("t").and("")));
    let (half, _) = counted(&half);
    assert_eq!(send(&half, payment("a1")).await.status, 500);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn refusals_can_have_a_form_of_their_own() {
    let layer = layer(&Locks::in_memory(), &Spy::default()).respond_with(|refusal| {
        let mut response = http::Response::new(refusal.cause().code().into());
        *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
        response
    });
    let (service, _) = counted(&layer);
    let refused = send(&service, payment("")).await;
    assert_eq!((refused.status, refused.body.as_str()), (418, "idempotency-key-invalid"));
}

#[tokio::test]
#[should_panic = "a safe method needs no idempotency key"]
async fn a_safe_method_is_refused() {
    drop(layer(&Locks::in_memory(), &Spy::default()).methods([Method::POST, Method::GET]));
}

/// A store that claims to outlive the process.
#[derive(Debug)]
struct Lasting(MemoryReplays);

impl lock_idempotency::ReplayStore for Lasting {
    fn look_up<'a>(
        &'a self,
        key: &'a lock_idempotency::RecordKey,
    ) -> lock_idempotency::StoreFuture<'a, Option<lock_idempotency::Record>> {
        self.0.look_up(key)
    }

    fn start<'a>(
        &'a self,
        key: &'a lock_idempotency::RecordKey,
        start: &'a lock_idempotency::Start,
    ) -> lock_idempotency::StoreFuture<'a, lock_idempotency::Started> {
        self.0.start(key, start)
    }

    fn finish<'a>(
        &'a self,
        key: &'a lock_idempotency::RecordKey,
        finish: &'a lock_idempotency::Finish,
    ) -> lock_idempotency::StoreFuture<'a, lock_idempotency::Finished> {
        self.0.finish(key, finish)
    }

    fn end<'a>(
        &'a self,
        key: &'a lock_idempotency::RecordKey,
        token: lockcore::FencingToken,
    ) -> lock_idempotency::StoreFuture<'a, ()> {
        self.0.end(key, token)
    }
}

#[tokio::test]
#[should_panic = "in-memory locks need an in-memory store"]
async fn locks_in_memory_are_refused_with_a_store_that_lasts() {
    let lasting = Lasting(MemoryReplays::new());
    drop(IdempotencyLayer::new(Locks::in_memory(), lasting, by_user));
}
