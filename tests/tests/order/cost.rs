//! The cost of waits and hand-overs for the server, by its own counters.

use std::time::Duration;

use futures_util::future::join_all;
use lock_tests::{CommandStats, Monitor, Raw, RedisServer, Source, eventually};
use lockcore::{LockGuard, Locks};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const KEY: &str = "cost";

fn wait(locks: &Locks) -> JoinHandle<LockGuard> {
    let acquire = locks.lock(KEY);
    tokio::spawn(async move { acquire.await.expect("granted in the end") })
}

async fn queued(redis: &mut Raw, count: usize) {
    eventually("all are queued", Duration::from_secs(10), async || {
        redis.queue(KEY).await.len() == count
    })
    .await;
}

#[tokio::test]
async fn twenty_idle_waiters_of_one_process_cost_one_touch_a_period() {
    const WAITERS: usize = 20;
    const SPAN: Duration = Duration::from_secs(9);
    /// The number of touches: one every four seconds, and one more at the begin of the span.
    const TOUCHES: u64 = 9 / 4 + 1;

    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let holder = Locks::connect(server.url()).await.expect("connected");
    let waiter = Locks::connect(server.url()).await.expect("connected");
    // A fixed lease: the holder does not renew, so every script is a waiter's.
    let held = holder.key(KEY).fixed_lease(Duration::from_secs(60)).lock().await.expect("free");
    let waiting: Vec<_> = (0..WAITERS).map(|_| wait(&waiter)).collect();
    queued(&mut redis, WAITERS).await;

    let monitor = Monitor::start(server.address());
    let before = CommandStats::read(&mut redis).await;
    let started = Instant::now();
    tokio::time::sleep(SPAN).await; // the measured span
    let ran = CommandStats::read(&mut redis).await.since(&before);
    // A machine that sleeps longer than it is told has the more touches.
    let periods = started.elapsed().saturating_sub(SPAN).as_secs() / 4;
    let lines = monitor.stop();

    let touches = ran.calls("evalsha");
    assert!((1..=TOUCHES + periods).contains(&touches), "{touches} scripts");
    assert_eq!(ran.calls("psetex"), touches, "one touch is for all: {ran:?}");
    let (node_keys, other): (Vec<String>, Vec<String>) = lines
        .iter()
        .filter(|line| matches!(line.source, Source::Client(_)))
        .filter(|line| !["EVALSHA", "PING", "INFO"].iter().any(|expected| line.is(expected)))
        .map(|line| if line.is("SET") { line.text(1) } else { line.text(0) })
        .partition(|text| text.starts_with("lock:node:"));
    assert!(other.is_empty(), "neither touch nor ping: {other:?}");
    // Both nodes say in which process they run, every 20 s.
    assert!(node_keys.len() as u64 <= 2 * (1 + periods), "{node_keys:?}");
    // There are four connections, each with a PING at most every 5 s.
    assert!(ran.calls("ping") <= 4 * (2 + periods), "{} pings", ran.calls("ping"));

    held.release().await.expect("held");
    for granted in waiting {
        granted.await.expect("no panic").release().await.expect("held");
    }
}

/// The first is sent at once by the fast path. The attempts behind the fence are sent with the
/// response, the first included: however many there are, up to the members of one command.
#[tokio::test]
async fn a_burst_of_64_for_one_lock_takes_its_positions_in_order_by_one_script() {
    const WAITERS: usize = 64;

    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let holder = Locks::connect(server.url()).await.expect("connected");
    let waiter = Locks::connect(server.url()).await.expect("connected");
    // A fixed lease: the holder does not renew, so every script is a waiter's.
    let held = holder.key(KEY).fixed_lease(Duration::from_secs(60)).lock().await.expect("free");
    let before = CommandStats::read(&mut redis).await;
    let waiting: Vec<_> = (0..WAITERS).map(|_| wait(&waiter)).collect();
    queued(&mut redis, WAITERS).await;
    let ran = CommandStats::read(&mut redis).await.since(&before);
    assert_eq!((ran.calls("multi"), ran.calls("evalsha")), (1, 1), "{ran:?}");
    let mut last = held.fencing_token();
    held.release().await.expect("held");
    for granted in waiting {
        let guard = granted.await.expect("no panic");
        assert!(guard.fencing_token() > last, "in the order in which they asked");
        last = guard.fencing_token();
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_hand_off_costs_one_script() {
    const HAND_OFFS: usize = 100;
    /// The time within which nothing is touched, renewed or confirmed.
    const QUIET: Duration = Duration::from_millis(3_500);

    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let nodes = [
        Locks::connect(server.url()).await.expect("connected"),
        Locks::connect(server.url()).await.expect("connected"),
    ];
    // A machine that stalls may need another round; one that counts wrong fails in every round.
    for _ in 0..5 {
        let started = Instant::now();
        let before = CommandStats::read(&mut redis).await;
        let first = nodes[0].lock(KEY).await.expect("free");
        let mut waiting = Vec::new();
        for number in 0..HAND_OFFS {
            waiting.push(wait(&nodes[(number + 1) % 2]));
            queued(&mut redis, number + 1).await;
        }
        let enqueued = CommandStats::read(&mut redis).await;
        first.release().await.expect("held");
        let turns = waiting
            .into_iter()
            .map(async |granted| granted.await.expect("no panic").release().await.expect("held"));
        tokio::time::timeout(Duration::from_secs(10), join_all(turns)).await.expect("all served");
        let after = CommandStats::read(&mut redis).await;
        if started.elapsed() > QUIET {
            continue;
        }
        let acquires = enqueued.since(&before).calls("evalsha");
        assert_eq!(acquires, HAND_OFFS as u64 + 1, "one script takes a place");
        let handing = after.since(&enqueued);
        assert_eq!(handing.calls("evalsha"), HAND_OFFS as u64 + 1, "one script hands over");
        assert_eq!(handing.calls("publish"), HAND_OFFS as u64, "one message tells of it");
        return;
    }
    panic!("no round of {HAND_OFFS} hand-offs was done within {QUIET:?}");
}
