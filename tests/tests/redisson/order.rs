//! Every turn comes in the order in which the server saw the attempts come.

use std::time::Duration;

use lock_tests::{Monitor, Raw};
use lockcore::Locks;
use redis::cmd;
use tokio::time::timeout;

use crate::bench::{Bench, KEY, TOKEN, release};
use crate::script;

const THREADS: usize = 8;
const TASKS: usize = 8;
const ROUNDS: usize = 125;
const INSIDE: &str = "inside";

/// Takes the turns of one task; returns the number of times that another was inside.
async fn turns(locks: Locks, mut redis: Raw) -> usize {
    let mut met = 0;
    for _ in 0..ROUNDS {
        let guard = locks.lock(KEY).await.expect("a turn");
        let inside: i64 = redis.ask(cmd("INCR").arg(INSIDE)).await;
        met += usize::from(inside != 1);
        let () = redis.ask(cmd("DECR").arg(INSIDE)).await;
        guard.release().await.expect("still held");
    }
    met
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn two_thousand_turns_of_threads_and_tasks_follow_the_order_the_server_saw() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let nodes = [bench.locks.clone(), bench.node().await];
    for thread in 0..THREADS {
        jvm.member(&format!("t{thread}")).await;
    }
    let monitor = Monitor::start(bench.server.address());
    let gate = bench.hold().await;
    for thread in 0..THREADS {
        jvm.begin("turns", &format!("t{thread}"), &format!("{ROUNDS} {INSIDE}"));
    }
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(turns(nodes[task % 2].clone(), bench.redis.clone())))
        .collect();
    bench.until_waiting(THREADS + TASKS).await;
    release(gate).await;
    for task in tasks {
        let met = timeout(Duration::from_secs(120), task).await.expect("in time");
        assert_eq!(met.expect("no panic"), 0, "two at once");
    }
    for thread in 0..THREADS {
        assert_eq!(jvm.end("turns", &format!("t{thread}")).await, "met 0", "two at once");
    }
    let turns = script::turns(&monitor.stop());
    assert_eq!(turns.len(), (THREADS + TASKS) * ROUNDS + 1);
    let ours = turns.iter().filter(|member| member.starts_with("~1")).count();
    assert_eq!(ours, TASKS * ROUNDS + 1);
    for status in [nodes[0].status(), nodes[1].status()] {
        assert_eq!(status.positions_lost, 0);
    }
    bench.nothing_is_left().await;
    let left = bench.redis.keys("*").await;
    let known = [TOKEN, INSIDE, "redisson_lock_suspects:{shared}"];
    for key in left.iter().filter(|key| !known.contains(&key.as_str())) {
        // Redisson 3 keeps the outcome of each unlock for some seconds.
        assert!(key.starts_with("redisson_unlock_latch:"), "{key} is left");
        assert!(bench.redis.pttl(key).await != -1, "{key} has no end");
    }
}
