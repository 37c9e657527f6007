//! A node of the next version of the protocol beside a node of this version, as in an upgrade
//! without the procedure: the versions exclude each other, and neither changes what is the other's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lock_tests::{Proxy, Raw, RedisServer, queue_key};
use lockcore::{Demand, LockErrorKind, LockGuard, Locks};
use redis::cmd;
use tokio::time::{Instant, sleep};

use crate::common::{SHORT, held, nothing_left, queue, queued, release, soon};

/// A server, and a node of each version.
struct Versions {
    _server: RedisServer,
    _proxy: Proxy,
    redis: Raw,
    ours: Locks,
    next: Locks,
}

impl Versions {
    async fn start(with_peers: bool) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start_next_version(server.address());
        let connect = async |url: String| {
            let builder = Locks::builder().redisson_peers(with_peers);
            soon("a connection", builder.connect(url)).await.expect("the server accepts us")
        };
        let (ours, next) = (connect(server.url()).await, connect(proxy.url()).await);
        let redis = Raw::connect(&server.url()).await;
        Self { _server: server, _proxy: proxy, redis, ours, next }
    }
}

async fn held_for(locks: &Locks, demand: Demand) -> LockGuard {
    let request = locks.key("key").lease(SHORT).acquire(demand);
    soon("the lock", request).await.expect("it is free")
}

/// Asserts that each demand is refused.
async fn is_refused(locks: &Locks, demands: &[Demand]) {
    for demand in demands {
        let asked = [
            soon("a refusal", locks.key("key").acquire(*demand)).await.map(drop),
            soon("a refusal", locks.key("key").try_acquire(*demand)).await.map(drop),
        ];
        for answer in asked {
            let error = answer.expect_err("the other version holds it");
            assert_eq!(error.kind(), LockErrorKind::WrongType, "{demand:?}: {error:?}");
        }
    }
}

async fn check_holds(with_peers: bool, demands: &[Demand]) {
    let at = Versions::start(with_peers).await;
    for demand in demands {
        for (holding, asking) in [(&at.next, &at.ours), (&at.ours, &at.next)] {
            let guard = held_for(holding, *demand).await;
            // Long enough that the lease would have ended without renewals.
            let over = Instant::now() + SHORT + Duration::from_millis(500);
            while Instant::now() < over {
                is_refused(asking, demands).await;
                sleep(Duration::from_millis(50)).await;
            }
            let earlier = guard.fencing_token();
            release(guard).await;
            let later = held(asking, "key", SHORT).await;
            assert!(later.fencing_token() > earlier, "{later:?} after {earlier:?}");
            release(later).await;
        }
    }
}

#[tokio::test]
async fn each_version_is_refused_where_the_other_holds_and_serves_after_it() {
    let permits = Demand::permits(1, 5).expect("a permit of five");
    check_holds(false, &[Demand::EXCLUSIVE, Demand::READ, permits]).await;
}

#[tokio::test]
async fn with_peers_each_version_is_refused_where_the_other_holds_and_serves_after_it() {
    check_holds(true, &[Demand::EXCLUSIVE]).await;
}

/// Takes turns in the lock; returns how many requests were refused for the other version.
async fn turns(locks: &Locks, number: usize, inside: &AtomicBool, last: &AtomicU64) -> usize {
    let mut refused = 0;
    for _ in 0..number {
        let guard = loop {
            match locks.lock("key").await {
                Ok(guard) => break guard,
                Err(error) => {
                    assert_eq!(error.kind(), LockErrorKind::WrongType, "{error:?}");
                    refused += 1;
                    tokio::task::yield_now().await;
                }
            }
        };
        assert!(!inside.swap(true, Ordering::SeqCst), "two hold it");
        let token = u64::from(guard.fencing_token());
        let earlier = last.swap(token, Ordering::SeqCst);
        assert!(token > earlier, "{token} after {earlier}");
        locks.inspect("key").await.expect("its own lock");
        inside.store(false, Ordering::SeqCst);
        guard.release().await.expect("the hold lasted");
    }
    refused
}

/// Lets as many tasks of each version take turns; returns the refusals of each version.
async fn all_take_turns(at: &Versions, tasks: usize) -> [usize; 2] {
    let (inside, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let of = async |locks: &Locks| -> usize {
        let all = (0..tasks).map(|_| turns(locks, 40, &inside, &last));
        join_all(all).await.into_iter().sum()
    };
    let (ours, next) = soon("all turns", async { tokio::join!(of(&at.ours), of(&at.next)) }).await;
    [ours, next]
}

async fn check_turns(with_peers: bool) {
    let mut at = Versions::start(with_peers).await;
    let refused = all_take_turns(&at, 1).await;
    assert!(refused.iter().all(|refused| *refused > 0), "they never met: {refused:?}");
    // Several tasks of a version also wait in the queue and are granted together.
    all_take_turns(&at, 3).await;
    if !with_peers {
        nothing_left(&mut at.redis, "key").await;
    }
}

#[tokio::test]
async fn two_versions_never_hold_a_lock_at_the_same_time() {
    check_turns(false).await;
}

#[tokio::test]
async fn with_peers_two_versions_never_hold_a_lock_at_the_same_time() {
    check_turns(true).await;
}

#[tokio::test]
async fn a_waiter_behind_a_member_of_the_next_version_is_served_once_that_is_gone() {
    const NEXT: &str = "~3AAAAAAAAAAAAAAAAAAAAAA:1:30000:w:a label";
    let mut at = Versions::start(false).await;
    let guard = held(&at.ours, "key", SHORT).await;
    let waiting = queued(&at.ours, "key", SHORT, &mut at.redis).await;
    let () = at.redis.ask(cmd("ZADD").arg(queue_key("key")).arg(0).arg(NEXT)).await;
    let before = queue(&mut at.redis, "key").await;
    let error = soon("the release", guard.release()).await.expect_err("it would skip a waiter");
    assert_eq!(error.kind(), LockErrorKind::WrongType, "{error:?}");
    // The lease ends, and the first in the queue is not a member that this version can grant to.
    sleep(SHORT * 2).await;
    assert_eq!(queue(&mut at.redis, "key").await, before);
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    assert_eq!(at.redis.ask::<u32>(cmd("ZREM").arg(queue_key("key")).arg(NEXT)).await, 1);
    let guard = soon("the grant", waiting).await.expect("no panic").expect("nothing is ahead");
    release(guard).await;
    nothing_left(&mut at.redis, "key").await;
}
