//! `LockScopeLayer`: locks acquired by the handler.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use lock_tests::{LIMIT, free, queued};
use lock_tower::{Cause, Keys, LockError, LockHandle, LockScopeLayer, OnLost, RequestLocks};
use lockcore::Locks;
use tokio::sync::oneshot;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::events::{Log, millis};
use crate::support::settle;

type Answer = Response<Full<Bytes>>;

fn ok() -> Answer {
    Response::new(Full::from("served"))
}

/// Serves one request behind `layer` with `handler`, which receives the request's `RequestLocks`.
/// Returns the result of the layer's future.
async fn serve<F, R>(layer: LockScopeLayer, handler: F) -> Result<Response<String>, Infallible>
where
    F: FnOnce(RequestLocks) -> R + Clone,
    R: Future<Output = Answer>,
{
    let service = layer.layer(service_fn(move |request: Request<_>| {
        let answer = handler.clone()(RequestLocks::of(request.extensions()).unwrap());
        async move { Ok::<_, Infallible>(answer.await) }
    }));
    let (parts, body) = service.oneshot(Request::new(String::new())).await?.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Ok(Response::from_parts(parts, String::from_utf8(body.to_vec()).unwrap()))
}

async fn is_held(locks: &Locks, key: &str) -> bool {
    !locks.inspect(key).await.unwrap().holders.is_empty()
}

#[tokio::test]
async fn a_key_that_the_request_has_already_is_shared_by_the_next_call() {
    let locks = Locks::in_memory();
    let layer = LockScopeLayer::new(locks.clone()).wait(Duration::ZERO);
    let answer = serve(layer, async |taken: RequestLocks| {
        let first = taken.lock(Keys::one("a")).await.unwrap();
        let both = taken.lock(Keys::one("b").and("a")).await.unwrap();
        assert_eq!(both[0].fencing_token(), first[0].fencing_token());
        let guards = taken.guards(Keys::one("b")).await.unwrap();
        assert_eq!(guards[0].fencing_token(), both[1].fencing_token());
        ok()
    });
    assert_eq!(answer.await.unwrap().status(), 200);
    free(&locks, "a").await;
    free(&locks, "b").await;
}

#[tokio::test]
async fn one_lock_after_the_other_leaves_nothing_behind() {
    let layer = LockScopeLayer::new(Locks::in_memory());
    let answer = serve(layer, async |taken: RequestLocks| {
        for number in 0..100 {
            let lock = taken.lock(Keys::one(format!("a{number}"))).await.unwrap();
            lock[0].release().await.unwrap();
        }
        assert_eq!(format!("{taken:?}"), "RequestLocks { held: 2, .. }", "the first and the last");
        ok()
    });
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_lock_asked_for_after_the_response_is_refused_at_once() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let _guard = locks.lock("a").await.unwrap(); // another caller would have to wait
    let (sender, late) = oneshot::channel();
    let sender = std::sync::Arc::new(std::sync::Mutex::new(Some(sender)));
    let answer = serve(LockScopeLayer::new(locks.clone()), async move |taken: RequestLocks| {
        let sender = sender.lock().unwrap().take().unwrap();
        sender.send(taken).unwrap();
        ok()
    });
    answer.await.unwrap();
    let late = late.await.unwrap();
    let refused = late.lock(Keys::one("a")).now_or_never().expect("without a wait").unwrap_err();
    assert_eq!(refused.cause(), Cause::Misconfigured);
    let refused = late.guards(Keys::one("a")).now_or_never().expect("without a wait").unwrap_err();
    assert_eq!(refused.cause(), Cause::Misconfigured);
    assert!(late.detach(async {}).await.is_ok(), "there is nothing to keep");
    drop(late);
    assert!(log.ended().is_empty(), "a request without a lock is not told of");
}

#[tokio::test]
async fn a_lock_that_is_granted_after_the_response_is_released() {
    let locks = Locks::in_memory();
    let guard = locks.lock("a").await.unwrap();
    let (sender, mut tasks) = tokio::sync::mpsc::unbounded_channel();
    let inner = locks.clone();
    let answer = serve(LockScopeLayer::new(locks.clone()), async move |taken: RequestLocks| {
        sender.send(tokio::spawn(async move { taken.lock(Keys::one("a")).await })).unwrap();
        queued(&inner, "a", 1).await;
        ok()
    });
    assert_eq!(answer.await.unwrap().status(), 200);
    let late = tasks.recv().await.unwrap();
    queued(&locks, "a", 1).await;
    drop(guard);
    assert_eq!(late.await.unwrap().unwrap_err().cause(), Cause::Misconfigured);
    free(&locks, "a").await;
}

#[tokio::test]
async fn the_loss_of_a_lock_that_another_task_took_stops_the_handler() {
    let locks = Locks::in_memory();
    let inner = locks.clone();
    let answer = serve(LockScopeLayer::new(locks.clone()), async move |taken: RequestLocks| {
        tokio::spawn(async move {
            settle().await; // the layer's future sleeps by then
            taken.lock(Keys::one("a")).await.unwrap();
            settle().await; // nothing else wakes it
            inner.force_release("a").await.unwrap();
        });
        std::future::pending().await
    });
    let begun = tokio::time::Instant::now();
    let answer = tokio::time::timeout(LIMIT, answer).await.expect("the layer is woken").unwrap();
    assert!(begun.elapsed() < LIMIT / 2, "the end of the time is no waking");
    assert_eq!(answer.extensions().get().map(LockError::cause), Some(Cause::Lost));
}

#[tokio::test]
async fn whenever_a_request_is_dropped_nothing_is_left() {
    let locks = Locks::in_memory();
    for step in 0..60 {
        for layer in [
            LockScopeLayer::new(locks.clone()),
            LockScopeLayer::new(locks.clone()).hold_until_body_end(true),
            LockScopeLayer::new(locks.clone()).release_in_background(true),
        ] {
            let answer = serve(layer, async |taken: RequestLocks| {
                let lock = taken.lock(Keys::one("a").and("b")).await.unwrap();
                tokio::task::yield_now().await;
                lock[0].release().await.unwrap();
                tokio::task::yield_now().await;
                taken.lock(Keys::one("c")).await.unwrap();
                tokio::task::yield_now().await;
                ok()
            });
            {
                let mut answer = pin!(answer);
                for _ in 0..step {
                    if answer.as_mut().now_or_never().is_some() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            for key in ["a", "b", "c"] {
                free(&locks, key).await;
            }
        }
    }
}

#[tokio::test]
async fn the_handler_is_gone_before_the_next_has_the_lock() {
    /// A value that records whether the lock was still held when the handler was dropped.
    struct Dropped(LockHandle, std::sync::Arc<std::sync::Mutex<Vec<bool>>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0.is_lost());
        }
    }

    let locks = Locks::in_memory();
    let seen = std::sync::Arc::<std::sync::Mutex<Vec<bool>>>::default();
    let recorded = std::sync::Arc::clone(&seen);
    let answer = serve(LockScopeLayer::new(locks.clone()), async move |taken: RequestLocks| {
        let lock = taken.lock(Keys::one("a")).await.unwrap().remove(0);
        let _dropped = Dropped(lock, recorded);
        std::future::pending().await
    });
    let held = async {
        lock_tests::eventually("it is held", LIMIT, async || is_held(&locks, "a").await).await;
    };
    tokio::select! {
        _ = answer => unreachable!("it never answers"),
        () = held => {}
    }
    assert_eq!(*seen.lock().unwrap(), [false]);
    free(&locks, "a").await;
}

#[tokio::test(start_paused = true)]
async fn one_event_tells_of_all_waits_of_a_request() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let layer = LockScopeLayer::new(locks.clone()).wait(Duration::from_secs(1));

    serve(layer.clone(), async |_| ok()).await.unwrap();
    assert!(log.ended().is_empty(), "a request without a lock is not told of");

    let _guard = locks.lock("b").await.unwrap();
    let answer = serve(layer.clone().server_timing(true), async |taken: RequestLocks| {
        assert_eq!(taken.lock(Keys::one("b")).await.unwrap_err().cause(), Cause::Busy);
        tokio::time::sleep(Duration::from_secs(5)).await; // no wait
        taken.lock(Keys::one("a")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(taken.lock(Keys::one("b")).await.unwrap_err().cause(), Cause::Busy);
        ok()
    });
    let answer = answer.await.unwrap();
    let timing = answer.headers()["server-timing"].to_str().unwrap();
    assert!(timing.starts_with("lock;dur=20"), "{timing}");
    let fields = log.one("served");
    assert!((2_000.0..2_100.0).contains(&millis(&fields, "wait_ms")), "{fields:?}");
    assert!((4_000.0..4_100.0).contains(&millis(&fields, "hold_ms")), "{fields:?}");
    assert!(fields.contains_key("token"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_the_handler_gives_up_counts_until_then() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let _guard = locks.lock("b").await.unwrap();
    let answer = serve(LockScopeLayer::new(locks.clone()), async |taken: RequestLocks| {
        for _ in 0..2 {
            let wait = taken.lock(Keys::one("b"));
            assert!(tokio::time::timeout(Duration::from_millis(50), wait).await.is_err());
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        ok()
    });
    answer.await.unwrap();
    let fields = log.one("served");
    assert!((100.0..110.0).contains(&millis(&fields, "wait_ms")), "{fields:?}");
    assert_eq!(fields["position"], "0", "the queue that the wait met");
}

#[tokio::test]
async fn every_way_out_has_its_outcome() {
    let (log, _here) = Log::here();
    let locks = Locks::in_memory();
    let guard = locks.lock("b").await.unwrap();
    for until_body_end in [false, true] {
        let layer = LockScopeLayer::new(locks.clone()).wait(Duration::ZERO);
        let layer = layer.hold_until_body_end(until_body_end);
        let answer = serve(layer.clone(), async |taken: RequestLocks| {
            taken.lock(Keys::one("a")).await.unwrap();
            let error = taken.lock(Keys::one("b")).await.unwrap_err();
            taken.refusals().respond(&error).map(Full::from)
        });
        assert_eq!(answer.await.unwrap().status(), 423);
        assert!(log.one("lock-busy").contains_key("hold_ms"));

        let answer = serve(layer.clone(), async |taken: RequestLocks| {
            taken.lock(Keys::one("a")).await.unwrap();
            ok()
        });
        assert_eq!(answer.await.unwrap().body(), "served");
        log.one("served");

        let inner = locks.clone();
        let answer = serve(layer.clone(), async move |taken: RequestLocks| {
            taken.lock(Keys::one("a")).await.unwrap();
            inner.force_release("a").await.unwrap();
            ok()
        });
        assert_eq!(answer.await.unwrap().status(), 500);
        log.one("lock-lost");

        let waits = serve(layer.wait_forever(), async |taken: RequestLocks| {
            taken.lock(Keys::one("b")).await.unwrap();
            ok()
        });
        tokio::select! {
            _ = waits => unreachable!("somebody else has it"),
            () = queued(&locks, "b", 1) => {}
        }
        log.one("cancelled");
        queued(&locks, "b", 0).await; // before the next event is awaited
    }
    drop(guard);
}

#[tokio::test]
async fn an_answer_under_a_lost_hold_goes_out_where_work_may_continue() {
    let locks = Locks::in_memory();
    let inner = locks.clone();
    let layer = LockScopeLayer::new(locks.clone()).on_lost(OnLost::Continue);
    let answer = serve(layer, async move |taken: RequestLocks| {
        let lock = taken.lock(Keys::one("a")).await.unwrap();
        inner.force_release("a").await.unwrap();
        lock[0].lost().await;
        tokio::task::yield_now().await;
        ok()
    });
    assert_eq!(answer.await.unwrap().body(), "served");
}

#[tokio::test(start_paused = true)]
async fn two_concurrent_calls_for_a_key_share_the_lock_whether_it_was_free_or_held() {
    for is_held in [false, true] {
        let locks = Locks::in_memory();
        let layer = LockScopeLayer::new(locks.clone()).wait(Duration::from_secs(2));
        let guard = if is_held { locks.try_lock("a").await.unwrap() } else { None };
        let guard = std::sync::Arc::new(std::sync::Mutex::new(guard));
        let inner = locks.clone();
        let answer = serve(layer, async move |taken: RequestLocks| {
            let other = taken.clone();
            let calls = tokio::spawn(async move {
                // The second call acquires "0" alone, and then waits for "a", too.
                let both = Keys::one("0").and("a");
                tokio::join!(other.lock(Keys::one("a")), other.lock(both))
            });
            if is_held {
                queued(&inner, "a", 2).await;
            }
            drop(guard.lock().unwrap().take());
            let (one, both) = calls.await.unwrap();
            assert_eq!(one.unwrap()[0].fencing_token(), both.unwrap()[1].fencing_token());
            assert_eq!(inner.status().holding, 2);
            ok()
        });
        assert_eq!(answer.await.unwrap().status(), 200, "held before: {is_held}");
        free(&locks, "a").await;
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_that_cannot_share_a_lock_clash_instead_of_waiting_for_each_other() {
    let a = || Keys::one("a");
    for (has, more) in [(a().read(), a()), (a().permits(1, 1), a().permits(1, 1))] {
        let locks = Locks::in_memory();
        let layer = LockScopeLayer::new(locks.clone()).wait(Duration::from_secs(2));
        let answer = serve(layer, async move |taken: RequestLocks| {
            let guard = locks.lock("a").await.unwrap();
            let other = taken.clone();
            let has = tokio::spawn(async move { other.lock(has).await });
            queued(&locks, "a", 1).await;
            let more = tokio::spawn(async move { taken.lock(more).await });
            queued(&locks, "a", 2).await;
            drop(guard);
            has.await.unwrap().unwrap();
            assert!(more.await.unwrap().unwrap_err().as_clash().is_some());
            ok()
        });
        assert_eq!(answer.await.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_queued_behind_a_writer_shares_the_read_that_the_writer_waits_for() {
    let locks = Locks::in_memory();
    let inner = locks.clone();
    let layer = LockScopeLayer::new(locks.clone()).wait(Duration::from_secs(2));
    let answer = serve(layer, async move |taken: RequestLocks| {
        let last = inner.lock("z").await.unwrap();
        let (other, locks) = (taken.clone(), inner.clone());
        // Holds a read of "a" that the registry does not have before "z" is granted.
        let set = Keys::one("a").and("z").read();
        let set = tokio::spawn(async move { other.lock(set).await });
        queued(&locks, "z", 1).await;
        let writer = tokio::spawn(async move { locks.lock("a").await });
        queued(&inner, "a", 1).await;
        let read = tokio::spawn(async move { taken.lock(Keys::one("a").read()).await });
        queued(&inner, "a", 2).await;
        let granted = tokio::time::Instant::now();
        drop(last);
        let set = set.await.unwrap().unwrap();
        assert_eq!(read.await.unwrap().unwrap()[0].fencing_token(), set[0].fencing_token());
        assert!(granted.elapsed() < Duration::from_secs(1), "the end of the wait is no waking");
        writer.abort();
        ok()
    });
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_wait_that_has_ended_keeps_no_waker() {
    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    let locks = Locks::in_memory();
    let inner = locks.clone();
    let answer = serve(LockScopeLayer::new(locks.clone()), async move |taken: RequestLocks| {
        let guard = inner.lock("a").await.unwrap();
        let wait = |task: &Arc<Task>| {
            let mut wait = Box::pin(taken.guards(Keys::one("a")));
            let waker = Waker::from(Arc::clone(task));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            wait
        };
        let (dropped, granted) = (Arc::new(Task), Arc::new(Task));
        drop(wait(&dropped));
        let wait = wait(&granted);
        drop(guard);
        wait.await.unwrap();
        settle().await; // the locks themselves let go of the wakers
        assert_eq!([&dropped, &granted].map(Arc::strong_count), [1, 1]);
        ok()
    });
    assert_eq!(answer.await.unwrap().status(), 200);
}
