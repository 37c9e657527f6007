//! A child process with many waiters on one lock: `lock-crowd URL KEY NAME COUNT`.
//!
//! The program writes `ready` once connected, and starts on the first line of input. Waiter i is
//! labelled `NAME-i`. Inside the critical section each waiter increments `crowd-inside` and appends
//! its label to `crowd-order`; afterwards it writes a line `label token inside`. The program exits
//! with status 0 when all waiters have had their turn.
#![expect(clippy::print_stdout, reason = "standard output is how the test hears of it")]

use std::env;
use std::io;

use lock_tests::Raw;
use lockcore::Locks;
use redis::cmd;
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, key, name, count] = arguments.as_slice() else {
        panic!("usage: lock-crowd URL KEY NAME COUNT");
    };
    let count: usize = count.parse().expect("COUNT is a number");
    let locks = Locks::connect(url).await.expect("the server accepts a node");
    let redis = Raw::connect(url).await;

    println!("ready");
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line).expect("standard input is a pipe");
    assert_ne!(read, 0, "the parent has gone before it said when to start");

    let mut crowd = JoinSet::new();
    for number in 0..count {
        let label = format!("{name}-{number}");
        crowd.spawn(wait(locks.clone(), redis.clone(), key.clone(), label));
    }
    while let Some(waited) = crowd.join_next().await {
        println!("{}", waited.expect("no waiter panics"));
    }
}

/// Takes one turn; returns the report line.
async fn wait(locks: Locks, mut redis: Raw, key: String, label: String) -> String {
    let request = locks.key(key.as_str()).label(&label).queue_limit(10_000);
    let guard = request.lock().await.expect("everybody gets the lock");
    let inside: usize = redis.ask(cmd("INCR").arg("crowd-inside")).await;
    redis.ask::<usize>(cmd("RPUSH").arg("crowd-order").arg(&label)).await;
    redis.ask::<usize>(cmd("DECR").arg("crowd-inside")).await;
    let token = guard.fencing_token();
    guard.release().await.expect("it was held until now");
    format!("{label} {} {inside}", token.get())
}
