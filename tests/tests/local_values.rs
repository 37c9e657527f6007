//! Guards among the local values of a thread. A binary of its own: once a test has paused the
//! clock, tokio's `Instant::now` panics where the runtime's local values have been dropped, and a
//! panic there aborts the process.

use std::cell::RefCell;
use std::time::Duration;

use lock_tests::{RedisServer, eventually};
use lockcore::{LockGuard, Locks, MemoryStore};
use tokio::runtime::Builder;

/// The bound of anything here; a test that waits this long has failed.
const SOON: Duration = Duration::from_secs(20);

/// Longer than the time after a reply for which a connection of redis-rs is not checked.
const IDLE: Duration = Duration::from_millis(50);

thread_local! {
    static KEPT: RefCell<Option<LockGuard>> = const { RefCell::new(None) };
}

async fn is_released_by_the_end_of_a_thread(locks: &Locks) {
    // The local values of the runtime are dropped after the guard, or before it.
    for is_runtime_first in [true, false] {
        let guard = locks.lock("key").await.expect("free");
        tokio::time::sleep(IDLE).await;
        let thread = std::thread::spawn(move || {
            let enter = || {
                let runtime = Builder::new_current_thread().enable_all().build().expect("one");
                drop(runtime.enter());
            };
            if is_runtime_first {
                enter();
            }
            KEPT.set(Some(guard));
            enter();
        });
        tokio::task::spawn_blocking(move || thread.join())
            .await
            .expect("joined")
            .expect("no panic");
        eventually("it is free", SOON, async || {
            let found = locks.inspect("key").await.expect("an inspection");
            found.holders.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn a_guard_that_is_dropped_with_the_local_values_of_its_thread_is_released() {
    let server = RedisServer::start();
    let locks = Locks::connect(server.url()).await.expect("the server is up");
    is_released_by_the_end_of_a_thread(&locks).await;
}

#[tokio::test]
async fn on_a_connection_of_redis_rs_it_is_released_too() {
    let server = RedisServer::start();
    let url = format!("{}?protocol=resp3", server.url());
    let locks = Locks::connect(url).await.expect("the server is up");
    is_released_by_the_end_of_a_thread(&locks).await;
}

#[tokio::test]
async fn in_memory_it_is_released_too() {
    let locks = Locks::builder().on_memory(&MemoryStore::new()).expect("options");
    is_released_by_the_end_of_a_thread(&locks).await;
}

#[tokio::test]
async fn by_a_quorum_it_is_released_too() {
    let stores = [(); 3].map(|()| MemoryStore::new());
    let locks = Locks::builder().on_memory_quorum(&stores).expect("options");
    is_released_by_the_end_of_a_thread(&locks).await;
}
