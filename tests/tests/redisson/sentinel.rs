//! A JVM in Redisson's sentinel mode and us, while sentinels replace the primary.

use std::time::Duration;

use lock_tests::{Raw, RedisOptions, Watched, eventually};
use lockcore::Locks;
use redis::cmd;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

use crate::bench::{KEY, QUEUE, SOON, connect, granted, release};
use crate::jvm::Jvm;

/// The lease of a JVM whose watchdog has to outlast a failover. Redisson tries a renewal that meets
/// the dead primary again for some seconds, and the next one comes a third of the lease later: on a
/// busy machine that may be more than ten seconds.
const WATCHED_LEASE: Duration = Duration::from_secs(20);
/// The lease of both sides, short so that a failover costs little.
const LEASE: Duration = Duration::from_secs(10);
const THREADS: usize = 4;
const TASKS: usize = 4;
/// The time of turns before the failover.
const BEFORE: Duration = Duration::from_secs(3);
const AFTER: Duration = Duration::from_secs(10);
/// The time of a section.
const INSIDE: Duration = Duration::from_millis(2);

async fn jvm(watched: &Watched) -> Jvm {
    jvm_with(watched, LEASE).await
}

async fn jvm_with(watched: &Watched, lease: Duration) -> Jvm {
    Jvm::start_with(&watched.url(), 300_000, lease.as_millis() as u64).await
}

async fn node(watched: &Watched) -> Locks {
    connect(&watched.url()).await
}

async fn queue(redis: &mut Raw) -> Vec<String> {
    redis.list(QUEUE).await
}

/// Waits until as many wait, and a thread of a JVM among them listens, if one is named.
async fn until_waiting(redis: &mut Raw, count: usize, thread: Option<&str>) {
    let channel = thread.map(|member| format!("redisson_lock__channel:{{{KEY}}}:{member}"));
    eventually("it waits", SOON, async || {
        let listens = match &channel {
            Some(channel) => redis.subscribers(channel).await > 0,
            None => true,
        };
        listens && queue(redis).await.len() == count
    })
    .await;
}

/// The replicas know hold, places and order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_mixed_queue_keeps_its_order_when_the_primary_is_killed() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let mut jvm = jvm(&watched).await;
    let [holder, waiter] = [node(&watched).await, node(&watched).await];
    let mut redis = watched.raw(0).await;
    let guard = holder.key(KEY).lease(LEASE).lock().await.expect("free");
    let [a, b] = [jvm.member("a").await, jvm.member("b").await];
    jvm.begin("lock", "a", "");
    until_waiting(&mut redis, 1, Some(&a)).await;
    let ours = tokio::spawn(waiter.lock(KEY));
    until_waiting(&mut redis, 2, None).await;
    jvm.begin("lock", "b", "");
    until_waiting(&mut redis, 3, Some(&b)).await;
    let before = queue(&mut redis).await;
    watched.in_step().await;

    watched.server(0).kill();
    let now = watched.promoted(0).await;
    watched.until_named(now).await;
    let mut redis = watched.raw(now).await;
    until_waiting(&mut redis, 3, Some(&a)).await;
    until_waiting(&mut redis, 3, Some(&b)).await;
    assert_eq!(queue(&mut redis).await, before);
    eventually("our nodes listen", SOON, async || {
        let channels: Vec<String> =
            redis.ask(cmd("PUBSUB").arg("CHANNELS").arg("lockcore:grants:*")).await;
        channels.len() == 2
    })
    .await;
    assert!(!guard.is_lost(), "renewed at the new primary");
    release(guard).await;
    assert_eq!(jvm.end("lock", "a").await, "ok");
    assert!(!ours.is_finished() && !jvm.has_ended("lock", "b"));
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    let guard = granted(ours).await;
    assert!(!jvm.has_ended("lock", "b"));
    release(guard).await;
    assert_eq!(jvm.end("lock", "b").await, "ok");
    assert_eq!(jvm.run("unlock", "b", "").await, "ok");
}

/// A JVM's hold is renewed by its watchdog, at the new primary too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_jvm_s_hold_outlasts_the_death_of_the_primary() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let mut jvm = jvm_with(&watched, WATCHED_LEASE).await;
    let locks = node(&watched).await;
    let mut redis = watched.raw(0).await;
    assert_eq!(jvm.run("lock", "a", "").await, "ok");
    let waiting = tokio::spawn(locks.lock(KEY));
    until_waiting(&mut redis, 1, None).await;
    watched.in_step().await;
    watched.server(0).kill();
    let now = watched.promoted(0).await;
    // This is longer than its lease.
    let mut redis = watched.raw(now).await;
    let end = tokio::time::Instant::now() + WATCHED_LEASE + WATCHED_LEASE / 5;
    while tokio::time::Instant::now() < end {
        let left = redis.pttl(KEY).await;
        let ahead = end - tokio::time::Instant::now();
        assert!(
            left > 0,
            "the JVM has not renewed its hold: PTTL {left}, {ahead:?} before the end"
        );
        if waiting.is_finished() {
            panic!("ours waits no longer: {:?}, {ahead:?} before the end", waiting.await);
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(jvm.run("unlock", "a", "").await, "ok");
    release(granted(waiting).await).await;
}

/// A hold, by the clock that all processes of a machine share.
#[derive(Debug, Clone, Copy)]
struct Turn {
    begin: u128,
    end: u128,
    is_jvm: bool,
}

fn now() -> u128 {
    let now = clock_gettime(ClockId::Monotonic);
    u128::from(now.tv_sec.unsigned_abs()) * 1_000_000_000 + u128::from(now.tv_nsec.unsigned_abs())
}

/// Takes turns in one of our tasks; returns them, and the reasons of failed acquires.
async fn turns(locks: Locks, until: u128) -> (Vec<Turn>, Vec<String>) {
    let mut turns = Vec::new();
    let mut refused = Vec::new();
    while now() < until {
        match locks.key(KEY).lease(LEASE).wait(LEASE).lock().await {
            Ok(guard) => {
                let begin = now();
                sleep(INSIDE).await;
                // A hold that was lost may have been another's for a part of it.
                if !guard.is_lost() {
                    turns.push(Turn { begin, end: now(), is_jvm: false });
                }
                let _ = guard.release().await;
            }
            Err(error) => {
                refused.push(format!("{error} ({:?})", locks.status()));
                sleep(INSIDE).await;
            }
        }
    }
    (turns, refused)
}

fn overlaps(turns: &mut [Turn]) -> Vec<[Turn; 2]> {
    turns.sort_by_key(|turn| turn.begin);
    turns.windows(2).filter(|two| two[1].begin < two[0].end).map(|two| [two[0], two[1]]).collect()
}

/// The turns of threads and tasks while the primary was replaced.
#[derive(Debug)]
struct Run {
    turns: Vec<Turn>,
    refused: [usize; 2],
    said: Vec<String>,
    began: u128,
    named: u128,
}

async fn run(planned: bool) -> Run {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let mut jvm = jvm(&watched).await;
    let nodes = [node(&watched).await, node(&watched).await];
    let names: Vec<_> = (0..THREADS).map(|thread| format!("t{thread}")).collect();
    let until = now() + (BEFORE + AFTER).as_nanos();
    for name in &names {
        jvm.begin("turns-for", name, &(BEFORE + AFTER).as_millis().to_string());
    }
    let tasks: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(turns(nodes[task % 2].clone(), until))).collect();
    sleep(BEFORE).await;
    let began = now();
    let primary = if planned {
        watched.fail_over(0).await
    } else {
        watched.server(0).kill();
        watched.promoted(0).await
    };
    watched.until_named(primary).await;
    let named = now();
    let mut run = Run { turns: Vec::new(), refused: [0, 0], said: Vec::new(), began, named };
    for task in tasks {
        let (turns, refused) = task.await.expect("no panic");
        run.turns.extend(turns);
        run.refused[0] += refused.len();
        run.said.extend(refused);
    }
    for name in &names {
        let ended = jvm.end("turns-for", name).await;
        let refused = ended.split(' ').nth(1).and_then(|count| count.parse().ok());
        run.refused[1] += refused.unwrap_or(0);
        run.said.push(ended);
    }
    for line in jvm.said("turn") {
        let mut words = line.split(' ').skip(2).map(|word| word.parse().expect("nanoseconds"));
        let [begin, end] = [words.next(), words.next()].map(|at| at.expect("two times"));
        run.turns.push(Turn { begin, end, is_jvm: true });
    }
    run
}

impl Run {
    fn count(&self, is_jvm: bool, within: std::ops::Range<u128>) -> usize {
        self.turns
            .iter()
            .filter(|turn| turn.is_jvm == is_jvm && within.contains(&turn.begin))
            .count()
    }

    /// Checks that both go on, and that nothing overlaps but holds that the failover has lost.
    #[allow(clippy::print_stdout, reason = "figures for docs/redisson.md")]
    fn judge(mut self, what: &str) {
        let began = self.began;
        let named = self.named;
        let phases = [0..began, began..named, named..u128::MAX];
        let [ours, theirs] =
            [false, true].map(|is_jvm| phases.clone().map(|within| self.count(is_jvm, within)));
        let overlaps = overlaps(&mut self.turns);
        let pause = self.turns.windows(2).map(|two| two[1].begin - two[0].begin).max();
        println!(
            "{what}: turns before, during and after: ours {ours:?}, the JVM's {theirs:?}; refused \
             {:?} ({:?}); two at once {}; named after {} ms, longest time without a grant {} ms",
            self.refused,
            self.said,
            overlaps.len(),
            (named - began) / 1_000_000,
            pause.unwrap_or(0) / 1_000_000,
        );
        for counts in [ours, theirs] {
            assert!(counts[0] > 0, "turns before the failover");
            assert!(counts[2] > 0, "turns after the failover");
        }
        let settled = named + LEASE.as_nanos();
        for [first, second] in overlaps {
            let is_lost = second.begin >= began && second.begin < settled;
            assert!(is_lost, "two at once, without a failover: {first:?} {second:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn turns_of_threads_and_tasks_go_on_after_the_death_of_the_primary() {
    run(false).await.judge("killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn turns_of_threads_and_tasks_go_on_after_a_planned_failover() {
    run(true).await.judge("planned");
}
