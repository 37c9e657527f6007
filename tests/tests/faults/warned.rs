//! Warnings, and the texts that may be in a log.

use std::time::{Duration, Instant};

use lock_tests::{Log, RedisServer, eventually};
use lockcore::{LockErrorKind, Locks};
use tracing::Level;

use crate::common::{LONG, SOON, granted, held, queued, release, setup, soon};

// On a single thread, so that the thread's subscriber sees everything.
#[tokio::test]
async fn a_server_that_may_evict_locks_is_warned_of_and_used() {
    let (log, _here) = Log::listen();
    let server = RedisServer::options()
        .arg("maxmemory", "100mb")
        .arg("maxmemory-policy", "allkeys-lru")
        .start();
    let locks = soon("a connection", Locks::connect(server.url())).await.expect("accepted");
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for word in ["allkeys-lru", "maxmemory-policy", "noeviction"] {
        assert!(warnings[0].contains(word), "no {word:?} in {warnings:?}");
    }
    release(held(&locks, "k", LONG).await).await;
}

#[tokio::test]
async fn nothing_is_warned_of_on_a_server_that_is_as_it_should_be() {
    let (log, _here) = Log::listen();
    let setup = setup().await;
    let locks = setup.direct().await;
    release(held(&locks, "k", LONG).await).await;
    assert_eq!(log.warnings(), Vec::<String>::new());
}

// N6: the warnings of an outage were its last trace in a log.
#[tokio::test]
async fn the_end_of_an_outage_is_in_the_log_with_its_length() {
    let (log, _here) = Log::listen();
    let setup = setup().await;
    let locks = setup.through().await;
    setup.proxy.cut_all().await;
    eventually("it is told", SOON, async || {
        let lines = log.lines();
        ["connected to Redis again", "subscribed to Redis again"].iter().all(|words| {
            lines.iter().any(|(level, line)| {
                let has = |text: &str| line.contains(text);
                *level == Level::INFO && has(words) && has("after=") && has("server=")
            })
        })
    })
    .await;
    let broke = log.warnings();
    assert!(broke.iter().all(|line| line.contains("server=")), "{broke:?}");
    assert!(locks.status().is_connected());
}

/// Rust accepts `let _guard = locks.lock(key);`, and its section runs without a lock.
#[tokio::test]
async fn a_forgotten_await_is_warned_of_once() {
    let (log, _here) = Log::listen();
    let locks = Locks::in_memory();
    drop(locks.lock("k").await);
    assert_eq!(log.warnings(), Vec::<String>::new());
    for _ in 0..2 {
        drop(locks.lock("k"));
        drop(locks.try_read("k"));
    }
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("write `.await`"), "{warnings:?}");
}

// The request already held the name, and silently waited for itself.
#[tokio::test(start_paused = true)]
async fn a_wait_behind_a_hold_of_its_own_process_is_warned_of_once_a_name() {
    let (log, _here) = Log::listen();
    let locks = Locks::in_memory();
    for name in ["k", "k", "another"] {
        let guard = locks.lock(name).await.expect("free");
        let error = locks.key(name).wait(Duration::from_secs(100)).lock().await;
        assert_eq!(error.expect_err("it is held").kind(), LockErrorKind::Timeout);
        guard.release().await.expect("held until now");
    }
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for (warning, name) in warnings.iter().zip(["lock=k", "lock=another"]) {
        assert!(warning.contains(name) && warning.contains("reenter"), "{warnings:?}");
    }
}

// A queue in which each waiter has its turn is no reason, however long a wait is.
#[tokio::test(start_paused = true)]
async fn a_long_wait_behind_short_holds_of_its_own_process_is_not_warned_of() {
    let (log, _here) = Log::listen();
    let locks = Locks::in_memory();
    let turns = (0..10).map(|_| async {
        let guard = locks.lock("k").await.expect("its turn comes");
        tokio::time::sleep(Duration::from_secs(15)).await;
        guard.release().await.expect("held until now");
    });
    futures_util::future::join_all(turns).await;
    assert_eq!(log.warnings(), Vec::<String>::new());
}

/// The granting process derives a grant's channel from its own prefix: a process with another
/// prefix never receives its grants.
#[tokio::test]
async fn a_process_that_is_skipped_for_ever_is_warned_of_with_what_to_compare() {
    let (log, _here) = Log::listen();
    let mut setup = setup().await;
    let near = setup.direct().await;
    let builder = Locks::builder().channel_prefix("elsewhere");
    let far = soon("a connection", builder.connect(setup.server.url())).await.expect("accepted");
    let mut guard = held(&near, "k", LONG).await;
    let never = queued(&far, "k", LONG, &mut setup.redis).await;
    let started = Instant::now();
    while log.warnings().is_empty() {
        assert!(started.elapsed() < 3 * SOON, "no warning");
        let next = queued(&near, "k", LONG, &mut setup.redis).await;
        tokio::time::sleep(Duration::from_millis(500)).await; // few hand-overs are enough
        release(guard).await;
        guard = granted(next).await;
    }
    // A dead process is out of the queue by then.
    assert!(started.elapsed() > Duration::from_secs(20), "{:?}", started.elapsed());
    let warnings = log.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("channel_prefix"), "{warnings:?}");
    assert!(!never.is_finished(), "its position is kept");
}

#[tokio::test]
async fn a_password_and_a_redacted_name_stand_in_no_event() {
    let (log, _here) = Log::listen();
    let mut server = RedisServer::options().arg("requirepass", "hunter2").start();
    let builder = Locks::builder().redact_names(true);
    let locks = soon("a connection", builder.connect(server.url())).await.expect("accepted");
    let guard = held(&locks, "patient-4711", LONG).await;
    server.kill();
    let _ = soon("an answer", guard.release()).await.expect_err("the server is gone");
    let lines = log.lines();
    assert!(!lines.is_empty());
    for (_, line) in lines {
        assert!(!line.contains("hunter2") && !line.contains("patient-4711"), "{line}");
    }
}
