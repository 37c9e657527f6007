//! Measures how many holds a second a lock serves under overload, when many callers try again at
//! once after each refusal, compared with few callers.
//!
//! Target: at least 0.95 of the holds with few callers, if requests are refused early.
#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockcore::{LockErrorKind, Locks};
use support::{Server, runtimes};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const HOLD: Duration = Duration::from_millis(2);
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(5);

/// Queue limit that no measurement reaches.
const NO_LIMIT: u32 = 100_000;

/// The limits of each request.
#[derive(Clone, Copy, Debug)]
struct Limits {
    wait: Duration,
    queue: u32,
    is_early: bool,
}

/// Numbers of attempts, by outcome.
#[derive(Debug, Default)]
struct Outcomes {
    served: AtomicU64,
    timed_out: AtomicU64,
    refused: AtomicU64,
}

impl Outcomes {
    fn now(&self) -> [u64; 3] {
        [&self.served, &self.timed_out, &self.refused].map(|count| count.load(Ordering::Relaxed))
    }
}

async fn call(locks: Locks, limits: Limits, outcomes: Arc<Outcomes>) {
    let Limits { wait, queue, is_early } = limits;
    loop {
        let request = locks.key("hot").class("hot").queue_limit(queue).wait(wait);
        match request.refuse_early(is_early).lock().await {
            Ok(guard) => {
                sleep(HOLD).await;
                drop(guard);
                outcomes.served.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.kind() == LockErrorKind::Timeout => {
                outcomes.timed_out.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => drop(outcomes.refused.fetch_add(1, Ordering::Relaxed)),
        }
        // Tries again at once, but lets other tasks run first.
        tokio::task::yield_now().await;
    }
}

/// Returns how many attempts of this number of callers are served, time out and are refused in a
/// second.
async fn scene(url: &str, callers: usize, limits: Limits) -> [f64; 3] {
    let locks = Locks::connect(url).await.expect("the server is up");
    let outcomes = Arc::new(Outcomes::default());
    let mut calls = JoinSet::new();
    for _ in 0..callers {
        calls.spawn(call(locks.clone(), limits, Arc::clone(&outcomes)));
    }
    sleep(WARM_UP).await;
    let (before, began) = (outcomes.now(), Instant::now());
    sleep(MEASURED).await;
    let (after, seconds) = (outcomes.now(), began.elapsed().as_secs_f64());
    calls.shutdown().await;
    locks.shutdown(Duration::ZERO).await;
    std::array::from_fn(|index| (after[index] - before[index]) as f64 / seconds)
}

fn main() {
    let server = Server::start();
    let url = server.url();
    let [(_, runtime), _] = runtimes();
    runtime.block_on(async {
        for _ in 0..2 {
            let calm = Limits { wait: Duration::from_secs(60), queue: NO_LIMIT, is_early: false };
            let [calm, ..] = scene(&url, 8, calm).await;
            println!("calm: {calm:.0} a second");
            for wait in [100, 300].map(Duration::from_millis) {
                // As many waiters as are served within the wait.
                let queue = (wait.as_millis() / HOLD.as_millis()) as u32;
                for (queue, is_early) in [(NO_LIMIT, false), (queue, false), (NO_LIMIT, true)] {
                    let limits = Limits { wait, queue, is_early };
                    let [served, timed_out, refused] = scene(&url, 1_000, limits).await;
                    let ratio = served / calm;
                    println!(
                        "wait {wait:?}, queue limit {queue}, refuses early: {is_early:<5} {ratio:.2} \
                         of calm, a second: {served:.0} served, {timed_out:.0} timed out, \
                         {refused:.0} refused"
                    );
                }
            }
        }
    });
}
