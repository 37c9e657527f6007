//! The keys that are left of locks that are no longer used.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use lock_tests::{COUNTER, Raw, RedisServer, eventually};
use lockcore::Locks;
use redis::cmd;

const KEYS: usize = 100_000;
/// The distance between keys with two holders at once, so that queues come and go as well.
const CONTENDED: usize = 10;
const AT_ONCE: usize = 256;

async fn take_and_give_back(locks: &Locks, key: usize) {
    let guard = locks.lock(format!("order:{key}")).await.expect("acquired");
    guard.release().await.expect("held until now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_keys_leave_nothing_but_one_counter_and_few_tombstones_that_expire() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let one = Locks::connect(server.url()).await.expect("connected");
    let other = Locks::connect(server.url()).await.expect("connected");

    let turns = stream::iter(0..KEYS).map(|key| {
        let one = one.clone();
        let other = other.clone();
        tokio::spawn(async move {
            if key % CONTENDED == 0 {
                tokio::join!(take_and_give_back(&one, key), take_and_give_back(&other, key));
            } else {
                take_and_give_back(&one, key).await;
            }
        })
    });
    let all = turns.buffer_unordered(AT_ONCE).for_each(async |turn| turn.expect("no panic"));
    // This takes ten seconds on an idle machine; the bound is for one that compiles next to it.
    tokio::time::timeout(Duration::from_secs(240), all).await.expect("all in time");
    eventually("nothing is waited for, held or given back", Duration::from_secs(5), async || {
        [&one, &other].into_iter().all(|locks| {
            let status = locks.status();
            status.waiting + status.holding + status.releasing == 0
        })
    })
    .await;

    let mut cursor = 0_u64;
    let mut counters = 0;
    let mut tombstones = 0;
    loop {
        let (next, keys): (u64, Vec<String>) =
            redis.ask(cmd("SCAN").arg(cursor).arg("COUNT").arg(1_000)).await;
        let script = "local left = {} for i, key in ipairs(KEYS) do left[i] = redis.call('PTTL', key) end return left";
        let left: Vec<i64> = redis.ask(cmd("EVAL").arg(script).arg(keys.len()).arg(&keys)).await;
        for (key, left) in keys.iter().zip(left) {
            if key == COUNTER {
                counters += 1;
                continue;
            }
            if key.starts_with("lock:node:") {
                assert!((0..=60_000).contains(&left), "{key} lives for {left} ms");
                continue;
            }
            // The lock key of a free lock says that there are tombstones. A node that waited is
            // known to be alive for 15 s.
            assert!(key.starts_with("lock:{order:"), "left behind: {key}");
            tombstones += usize::from(key.ends_with("}:gone"));
            let is_known =
                key.ends_with("}:gone") || key.ends_with('}') || key.contains("}:patience:");
            assert!(is_known, "left behind: {key}");
            // 0: within its last millisecond. -2: it has expired between the two questions.
            assert!(left == -2 || (0..=165_000).contains(&left), "{key} lives for {left} ms");
        }
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(counters, 1);
    // A short wait may end by message before its acquire is answered, and the release come before
    // that, too: 7 to 8 % of these waits, where it was measured.
    let waits = KEYS / CONTENDED;
    assert!(tombstones < waits / 2, "{tombstones} tombstones of {waits} who waited");
}

// A grant is not taken in before the answer to its member's acquire: else its release would leave
// a tombstone, and cost several times as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_lock_of_one_process_leaves_no_tombstone() {
    const TASKS: usize = 64;
    const TURNS: usize = 200;
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.expect("connected");
    let task = async |locks: Locks| {
        for _ in 0..TURNS {
            locks.lock("hot").await.expect("granted").release().await.expect("held until now");
        }
    };
    let tasks: Vec<_> = (0..TASKS).map(|_| tokio::spawn(task(locks.clone()))).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let tombstones: u64 = redis.ask(cmd("ZCARD").arg("lock:{hot}:gone")).await;
    assert_eq!(tombstones, 0);
}
