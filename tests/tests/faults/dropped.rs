//! Guards dropped while the runtime is busy or blocked.

use std::time::Duration;

use futures_util::poll;
use lock_tests::{RedisServer, eventually};
use lockcore::Locks;
use tokio::runtime::Builder;
use tokio::time::Instant;

use crate::common::{SOON, connect};

/// Keeps the thread busy for `time`, like work between two awaits.
fn works(time: Duration) {
    let started = std::time::Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}

// H1: with 64 of them in flight at once, 15 000 holds were without an owner after 5 s.
#[tokio::test]
async fn a_busy_thread_leaves_fewer_holds_without_an_owner_than_twice_its_tasks() {
    const TASKS: usize = 300;
    let server = RedisServer::start();
    let locks = connect(&server.url()).await;
    let end = Instant::now() + Duration::from_secs(3);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let mut most = 0;
                for turn in 0.. {
                    if Instant::now() >= end {
                        break;
                    }
                    let guard = locks.lock(format!("{task}:{turn}")).await.expect("free");
                    works(Duration::from_micros(20));
                    drop(guard);
                    most = most.max(locks.status().releasing);
                }
                most
            })
        })
        .collect();
    for task in tasks {
        let releasing = task.await.expect("no panic");
        assert!(releasing < 2 * TASKS, "{releasing} are held by nobody");
    }
    eventually("all are released", SOON, async || locks.status().releasing == 0).await;
}

/// Whether another process gets this lock before a blocked thread ends.
fn is_handed_over(url: &str, key: &str, then: impl FnOnce() + Send + 'static) -> bool {
    let (url, key) = (url.to_owned(), key.to_owned());
    let theirs = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let other = connect(&url).await;
            let mut waiting = Box::pin(other.lock_timeout(key.as_str(), SOON));
            assert!(poll!(waiting.as_mut()).is_pending());
            eventually("it waits", SOON, async || other.status().waiting == 1).await;
            let waits = async || {
                let seen = other.inspect(key.as_str()).await.expect("an inspection");
                !seen.waiters.is_empty()
            };
            eventually("the server has it in its queue", SOON, waits).await;
            std::thread::spawn(then).join().expect("no panic");
            waiting.await.is_ok()
        })
    });
    theirs.join().expect("no panic")
}

#[tokio::test]
async fn a_guard_that_is_dropped_while_its_runtime_stands_still_is_released() {
    let server = RedisServer::start();
    let locks = connect(&server.url()).await;
    let guard = locks.lock("key").await.expect("free");
    // Nothing is in flight, and nothing of this runtime runs from here on.
    assert!(is_handed_over(&server.url(), "key", move || drop(guard)));
}

#[tokio::test]
async fn a_wait_that_is_dropped_while_its_runtime_stands_still_leaves() {
    let server = RedisServer::start();
    let [locks, holding]: [Locks; 2] = [connect(&server.url()).await, connect(&server.url()).await];
    let guard = holding.lock("key").await.expect("free");
    let mut waiting = Box::pin(locks.lock("key"));
    assert!(poll!(waiting.as_mut()).is_pending());
    let waits = async || locks.inspect("key").await.expect("an inspection").waiters.len() == 1;
    eventually("it waits", SOON, waits).await;
    let then = move || {
        drop(waiting);
        // Its leave is ahead of this request only if it was sent at once.
        drop(guard);
    };
    assert!(is_handed_over(&server.url(), "key", then));
}
