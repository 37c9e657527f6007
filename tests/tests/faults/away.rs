//! Servers that are away: how long requests wait for them.

use std::time::Duration;

use lock_tests::{RedisServer, eventually};
use lockcore::{LockError, LockErrorKind, Locks};
use tokio::time::{Instant, sleep};

use crate::common::{LONG, SOON, granted, held, queued, release, setup, soon};

/// The store wait in these tests: the request timeout.
const STORE_WAIT: Duration = Duration::from_millis(500);
/// The longest duration of an immediate refusal.
const AT_ONCE: Duration = Duration::from_millis(50);
/// The lock wait: no test waits for its end.
const WAIT: Duration = Duration::from_secs(60);

async fn connect(url: &str) -> Locks {
    let builder = Locks::builder().request_timeout(STORE_WAIT).wait(WAIT);
    soon("a connection", builder.connect(url)).await.expect("the server accepts us")
}

async fn refused(locks: &Locks) -> (LockError, Duration) {
    let began = Instant::now();
    let error = soon("an end", locks.lock("k")).await.expect_err("the server is away");
    (error, began.elapsed())
}

/// Most refusals are immediate: on a busy machine a task may be delayed.
async fn are_refused_at_once(locks: &Locks) {
    let mut times = Vec::new();
    for _ in 0..9 {
        let (error, time) = refused(locks).await;
        assert_eq!(error.kind(), LockErrorKind::Unavailable);
        times.push(time);
    }
    times.sort_unstable();
    assert!(times[4] < AT_ONCE, "{times:?}");
    let began = Instant::now();
    let error = locks.try_lock("k").await.expect_err("the server is away");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(began.elapsed() < STORE_WAIT, "{:?}", began.elapsed());
}

/// The end of the outage is detected in about a second.
async fn are_served_again(locks: &Locks) {
    let began = Instant::now();
    let guard = loop {
        match locks.lock("k").await {
            Ok(guard) => break guard,
            Err(error) => assert_eq!(error.kind(), LockErrorKind::Unavailable),
        }
        sleep(Duration::from_millis(20)).await;
        assert!(began.elapsed() < Duration::from_secs(3), "not found in time");
    };
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_server_is_waited_for_once_and_then_refused_at_once_until_it_is_back() {
    let mut server = RedisServer::start();
    let locks = connect(&server.url()).await;
    server.kill();
    let (error, time) = refused(&locks).await;
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(time < 2 * STORE_WAIT, "{time:?}");
    are_refused_at_once(&locks).await;
    let (error, _) = refused(&locks).await;
    assert!(error.to_string().contains("refused"), "the store's own words: {error}");
    server.restart();
    are_served_again(&locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_waited_for_once_and_then_refused_at_once_until_it_goes_on() {
    let server = RedisServer::start();
    let locks = connect(&server.url()).await;
    server.freeze();
    let (_, time) = refused(&locks).await;
    assert!(time < 2 * STORE_WAIT, "{time:?}");
    // Another task records the request timeout.
    sleep(STORE_WAIT / 5).await;
    // Also when its connection is found to be dead, and its replacement cannot be established.
    for _ in 0..5 {
        are_refused_at_once(&locks).await;
        sleep(STORE_WAIT / 2).await;
    }
    server.thaw();
    are_served_again(&locks).await;
}

// A server that was back refused requests until the subscription was back as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_commands_are_answered_again_requests_wait_for_the_subscription() {
    let mut setup = setup().await;
    let config = deadpool_redis::Config::from_url(setup.server.url());
    let pool = config.create_pool(Some(deadpool_redis::Runtime::Tokio1)).expect("a pool");
    // Above the longest pause between two subscription attempts.
    let builder = Locks::builder().request_timeout(STORE_WAIT).store_wait(4 * STORE_WAIT);
    let connecting = builder.wait(WAIT).from_pool(pool, setup.proxy.url());
    let locks = soon("a connection", connecting).await.expect("one server");
    setup.proxy.refuse().await;
    setup.server.kill();
    refused(&locks).await;
    are_refused_at_once(&locks).await;
    setup.server.restart();
    eventually("commands are answered", SOON, async || locks.ping().await.is_ok()).await;
    let waiting = tokio::spawn(locks.lock("k"));
    sleep(STORE_WAIT / 5).await;
    setup.proxy.accept();
    release(granted(waiting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_subscription_only_requests_that_do_not_wait_are_served() {
    let setup = setup().await;
    let locks = connect(&setup.proxy.url()).await;
    let held = held(&locks, "held", LONG).await;
    setup.proxy.refuse().await;
    setup.proxy.cut_subscriptions().await;
    eventually("its loss is known", SOON, async || !locks.status().is_connected()).await;
    let (error, time) = refused(&locks).await;
    assert!(error.to_string().contains("subscription"), "{error}");
    assert!(time < 2 * STORE_WAIT, "{time:?}");
    let began = Instant::now();
    let (error, _) = refused(&locks).await;
    assert!(error.to_string().contains("subscription"), "{error}");
    assert!(began.elapsed() < STORE_WAIT, "{:?}", began.elapsed());
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_queued_keeps_its_position_through_an_outage_unless_it_leaves_in_one() {
    let mut setup = setup().await;
    let holder = setup.direct().await;
    let locks = connect(&setup.proxy.url()).await;
    let guard = held(&holder, "k", LONG).await;
    let stays = queued(&locks, "k", LONG, &mut setup.redis).await;
    let leaves = tokio::spawn(locks.key("k").leave_in_outage(true).lock());
    lock_tests::queued(&holder, "k", 2).await;
    setup.proxy.refuse().await;
    setup.proxy.cut_all().await;
    let began = Instant::now();
    let left = soon("it leaves", leaves).await.expect("no panic").expect_err("the store is away");
    assert_eq!(left.kind(), LockErrorKind::Unavailable);
    assert!(began.elapsed() > STORE_WAIT / 2 && began.elapsed() < 3 * STORE_WAIT);
    sleep(3 * STORE_WAIT).await; // it would end meanwhile
    assert!(!stays.is_finished());
    setup.proxy.accept();
    release(guard).await;
    release(granted(stays).await).await;
    assert_eq!(locks.status().positions_lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_that_is_queued_ends_while_a_server_is_restarted_under_load() {
    let directory = std::env::temp_dir().join(format!("lock-away-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let mut server = RedisServer::options()
        .arg("dir", directory.to_str().expect("a path is text"))
        .arg("appendonly", "yes")
        .arg("appendfsync", "always")
        .start();
    let nodes = [connect(&server.url()).await, connect(&server.url()).await];
    let end = Instant::now() + Duration::from_secs(8);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..40 {
        let locks = nodes[task % 2].clone();
        tasks.spawn(async move {
            let (mut served, mut refused) = (0, 0);
            while Instant::now() < end {
                let acquire = locks.lock(format!("k{}", task % 4));
                let positions = acquire.positions();
                match acquire.await {
                    Ok(guard) => {
                        sleep(Duration::from_millis(2)).await;
                        served += 1;
                        drop(guard.release().await);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
                        assert_eq!(*positions.borrow(), None, "it was queued: {error}");
                        refused += 1;
                        sleep(Duration::from_millis(50)).await;
                    }
                }
            }
            (served, refused)
        });
    }
    sleep(Duration::from_secs(2)).await;
    server.kill();
    sleep(Duration::from_secs(3)).await;
    server.restart();
    let counts = soon("everybody's end", tasks.join_all()).await;
    let served: u32 = counts.iter().map(|(served, _)| served).sum();
    assert!(served > 400, "{counts:?}");
    assert!(counts.iter().all(|(served, _)| *served > 0), "{counts:?}");
    drop(server);
    std::fs::remove_dir_all(&directory).expect("the server writes there no more");
}
