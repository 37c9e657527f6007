//! The time from just before the release on one engine to the waiting task on another running with
//! its guard, against a bare script that publishes and the subscriber's task that it wakes.
//!
//! Target: at most 1.25 times as long.
#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use lockcore::Locks;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use support::{Server, load, median, median_us, runtimes};
use tokio::sync::mpsc;

const REPETITIONS: usize = 9;
const HAND_OFFS: usize = 400;
const KEY: &str = "bench";
const PUBLISH: &str = "return redis.call('PUBLISH', ARGV[1], ARGV[2])";

/// The bare hand-off: `woken` returns the time at which the subscriber's task ran.
struct Bare {
    connection: MultiplexedConnection,
    publish: String,
    woken: mpsc::UnboundedReceiver<Instant>,
}

impl Bare {
    async fn start(server: &Server) -> Self {
        let mut connection = server.bare().await;
        let publish = load(&mut connection, PUBLISH).await;
        let mut subscription = server.bare_subscription("bench-channel").await;
        let (sender, woken) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut messages = subscription.on_message();
            while messages.next().await.is_some() {
                let _ = sender.send(Instant::now());
            }
        });
        Self { connection, publish, woken }
    }

    async fn hand_off(&mut self) -> Duration {
        let payload = "p 1795242275666200 7 10000";
        let mut publish = cmd("EVALSHA");
        publish.arg(&self.publish).arg(1).arg(KEY).arg("bench-channel").arg(payload);
        let start = Instant::now();
        let receivers: i64 = publish.query_async(&mut self.connection).await.expect("answered");
        assert_eq!(receivers, 1);
        self.woken.recv().await.expect("the subscriber lives") - start
    }
}

/// Two engines, and a connection that sees when one of them is queued.
struct Ours {
    one: Locks,
    other: Locks,
    redis: MultiplexedConnection,
}

impl Ours {
    async fn hand_off(&mut self) -> Duration {
        let held = self.one.lock(KEY).await.expect("free");
        let acquire = self.other.lock(KEY);
        let waiter = tokio::spawn(async move {
            let guard = acquire.await.expect("handed over");
            (Instant::now(), guard)
        });
        let queue = format!("lock:{{{KEY}}}:queue");
        loop {
            let length: usize =
                cmd("ZCARD").arg(&queue).query_async(&mut self.redis).await.expect("answered");
            // The engine's own answer has to be there as well.
            if length == 1 {
                break;
            }
        }
        self.other.ping().await.expect("answered");
        tokio::task::yield_now().await;
        let start = Instant::now();
        held.release().await.expect("held");
        let (woken, guard) = waiter.await.expect("no panic");
        guard.release().await.expect("held");
        woken - start
    }
}

async fn repetition(ours: &mut Ours, bare: &mut Bare) -> (f64, f64) {
    let mut our_times = Vec::new();
    let mut bare_times = Vec::new();
    for _ in 0..HAND_OFFS {
        // Both begin after the same quiet time.
        ours.redis_ping().await;
        bare_times.push(bare.hand_off().await);
        our_times.push(ours.hand_off().await);
    }
    (median_us(&our_times), median_us(&bare_times))
}

impl Ours {
    async fn redis_ping(&mut self) {
        let _: String = cmd("PING").query_async(&mut self.redis).await.expect("answered");
        self.other.ping().await.expect("answered");
        tokio::task::yield_now().await;
    }
}

async fn measure(mut ours: Ours, mut bare: Bare) -> Vec<(f64, f64)> {
    repetition(&mut ours, &mut bare).await; // warm
    let mut repetitions = Vec::new();
    for _ in 0..REPETITIONS {
        repetitions.push(repetition(&mut ours, &mut bare).await);
    }
    repetitions
}

fn main() {
    let server = Server::start();
    println!("hand-off, {REPETITIONS} repetitions of {HAND_OFFS}, interleaved");
    println!("{:<16} {:>10} {:>10} {:>7}   target 1.25", "runtime", "bare µs", "ours µs", "ratio");
    for (name, runtime) in runtimes() {
        let repetitions = runtime.block_on(async {
            let ours = Ours {
                one: Locks::connect(server.url()).await.expect("connected"),
                other: Locks::connect(server.url()).await.expect("connected"),
                redis: server.bare().await,
            };
            let bare = Bare::start(&server).await;
            tokio::spawn(measure(ours, bare)).await.expect("no panic")
        });
        let bare = median(repetitions.iter().map(|(_, bare)| *bare).collect());
        let ours = median(repetitions.iter().map(|(ours, _)| *ours).collect());
        let ratio = median(repetitions.iter().map(|(ours, bare)| ours / bare).collect());
        println!("{name:<16} {bare:>10.1} {ours:>10.1} {ratio:>7.3}");
    }
}
