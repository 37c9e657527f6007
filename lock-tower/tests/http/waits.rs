//! Locks that are lost while their request waits for another lock.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use lock_tests::{LIMIT, RedisServer, eventually, eventually_some, is_held, queued};
use lock_tower::{Cause, HttpLockLayer, Keys, LockError, LockScopeLayer, RequestLocks};
use lockcore::{LockOptions, Locks};
use tokio::task::JoinHandle;
use tower::{Layer as _, ServiceExt as _, service_fn};

const WAIT: Duration = Duration::from_secs(30);

fn both() -> Keys {
    Keys::one("a").and("b")
}

type Answer = Response<Full<Bytes>>;

/// A request that was sent: its answer, and whether its handler has begun.
struct Sent {
    answer: JoinHandle<Option<(Cause, u16)>>,
    has_begun: Arc<AtomicBool>,
}

/// Who acquires the locks of a request: an `HttpLockLayer`, or the handler behind a
/// `LockScopeLayer`.
#[derive(Debug, Clone, Copy)]
enum Way {
    Layer,
    Scope,
}

fn send(way: Way, locks: &Locks, max_hold: Option<Duration>) -> Sent {
    let has_begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&has_begun);
    let request = Request::new(Full::<Bytes>::default());
    let served = move || {
        begins.store(true, Ordering::SeqCst);
        Response::new(Full::<Bytes>::default())
    };
    let locks = locks.clone();
    let answer = tokio::spawn(async move {
        let answer: Answer = match way {
            Way::Layer => {
                let layer = HttpLockLayer::new(locks, |_: &Request<_>| Some(both())).wait(WAIT);
                let layer = match max_hold {
                    Some(longest) => layer.max_hold(longest),
                    None => layer,
                };
                let inner = service_fn(move |_request| {
                    let answer = served();
                    async { Ok::<_, Infallible>(answer) }
                });
                let (parts, _) = layer.layer(inner).oneshot(request).await.unwrap().into_parts();
                Response::from_parts(parts, Full::default())
            }
            Way::Scope => {
                let layer = LockScopeLayer::new(locks).wait(WAIT);
                let layer = match max_hold {
                    Some(longest) => layer.max_hold(longest),
                    None => layer,
                };
                let inner = service_fn(move |request: Request<_>| {
                    let locks = RequestLocks::of(request.extensions());
                    let served = served.clone();
                    async move {
                        Ok::<_, Infallible>(match locks.unwrap().lock(both()).await {
                            Ok(_) => served(),
                            Err(error) => {
                                let mut refused = Response::new(Full::default());
                                refused.extensions_mut().insert(error);
                                refused
                            }
                        })
                    }
                });
                let (parts, _) = layer.layer(inner).oneshot(request).await.unwrap().into_parts();
                Response::from_parts(parts, Full::default())
            }
        };
        answer.extensions().get().map(|error: &LockError| (error.cause(), error.status().as_u16()))
    });
    Sent { answer, has_begun }
}

#[tokio::test]
async fn a_lock_that_is_lost_while_the_next_is_waited_for_refuses_the_request() {
    for way in [Way::Layer, Way::Scope] {
        let locks = Locks::in_memory();
        let other = locks.lock("b").await.unwrap();
        let sent = send(way, &locks, Some(Duration::from_millis(300)));
        // The other lock is still held, so the refusal did not wait for it.
        let refused = tokio::time::timeout(LIMIT, sent.answer).await.expect("in time").unwrap();
        // 503: nothing was done, so a gateway may repeat it.
        assert_eq!(refused, Some((Cause::Lost, 503)), "{way:?}");
        assert!(!sent.has_begun.load(Ordering::SeqCst) && !other.is_lost(), "{way:?}");
        eventually("nothing of it is left", LIMIT, async || {
            let seen = locks.inspect("b").await.unwrap();
            seen.waiters.is_empty() && !is_held(&locks, "a").await
        })
        .await;
    }
}

#[tokio::test]
async fn no_handler_begins_under_a_lock_that_a_restarted_server_has_forgotten() {
    for way in [Way::Layer, Way::Scope] {
        let mut server = RedisServer::start();
        let options = LockOptions::new().lease(Duration::from_secs(3));
        let connect =
            async || Locks::builder().defaults(options).connect(server.url()).await.unwrap();
        let locks = connect().await;
        let other = connect().await;
        let holder = other.lock("b").await.unwrap();
        let sent = send(way, &locks, None);
        queued(&other, "b", 1).await;
        server.restart();
        // Both locks are free on the restarted server, and the other `Locks` acquires the first of
        // them first.
        let first = eventually_some("the other has it", LIMIT, async || {
            other.try_lock("a").await.ok().flatten()
        });
        let answer = tokio::time::timeout(LIMIT, sent.answer);
        let (_first, answer) = tokio::join!(first, answer);
        assert_eq!(answer.expect("in time").unwrap(), Some((Cause::Lost, 503)), "{way:?}");
        assert!(!sent.has_begun.load(Ordering::SeqCst), "{way:?}");
        drop(holder);
    }
}
