//! Measures the error of predicted waits: with holds of equal length, with some long holds among
//! them, and with times when all holds are long.
#![allow(clippy::print_stdout, missing_docs)]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockcore::Locks;
use support::{Server, runtimes};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Number of callers. Each tries again after a random pause, so that the queue length varies.
const CALLERS: usize = 60;
const PAUSE_MS: u64 = 200;
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURED: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_millis(20);

/// Returns the next hold's length, from the time since the start.
type Holds = fn(Duration) -> Duration;

fn steady(_: Duration) -> Duration {
    SHORT
}

fn mixed(_: Duration) -> Duration {
    if rand::random_ratio(1, 10) { LONG } else { SHORT }
}

/// Returns a long hold in one of each five seconds, otherwise a short one.
fn bursty(since: Duration) -> Duration {
    if since.as_secs() % 5 == 4 { LONG } else { SHORT }
}

/// The measured waits in seconds, each with the error of its prediction in seconds.
type Waits = Arc<Mutex<Vec<(f64, f64)>>>;

async fn call(locks: Locks, holds: Holds, start: Instant, waits: Waits) {
    loop {
        sleep(Duration::from_millis(rand::random_range(0..=PAUSE_MS))).await;
        recorder::take();
        let request = locks.key("hot").class("hot").wait(Duration::from_secs(60));
        let guard = request.refuse_early(true).lock().await.expect("served within a minute");
        // The poll that has just ended has recorded the error, on this thread.
        if let Some(error) = recorder::take().filter(|_| start.elapsed() > WARM_UP) {
            waits.lock().expect("no panic").push((guard.waited().as_secs_f64(), error));
        }
        sleep(holds(start.elapsed())).await;
        guard.release().await.expect("held");
    }
}

/// Returns the value that `part` of ten values do not exceed: with 5, the median.
fn of_ten(sorted: &[f64], part: usize) -> f64 {
    sorted[(sorted.len() - 1) * part / 10]
}

async fn scene(url: &str, name: &str, holds: Holds) {
    let locks = Locks::connect(url).await.expect("the server is up");
    let waits = Waits::default();
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for _ in 0..CALLERS {
        calls.spawn(call(locks.clone(), holds, start, Arc::clone(&waits)));
    }
    sleep(WARM_UP + MEASURED).await;
    calls.shutdown().await;
    let waits = std::mem::take(&mut *waits.lock().expect("no panic"));
    let sorted = |of: fn(&(f64, f64)) -> f64| {
        let mut sorted: Vec<_> = waits.iter().map(of).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    };
    let (lasted, errors) = (sorted(|(wait, _)| wait * 1e3), sorted(|(_, error)| error * 1e3));
    let parts = sorted(|(wait, error)| 100.0 * error / wait);
    println!(
        "{name}: {} waits, median {:.0} ms; error: {:+.0} to {:+.0} ms (eight of ten), median {:+.0}; \
         of the wait: {:+.0} to {:+.0} %, median {:+.0} %",
        waits.len(),
        of_ten(&lasted, 5),
        of_ten(&errors, 1),
        of_ten(&errors, 9),
        of_ten(&errors, 5),
        of_ten(&parts, 1),
        of_ten(&parts, 9),
        of_ten(&parts, 5),
    );
}

fn main() {
    metrics::set_global_recorder(recorder::LastError).expect("the first");
    let server = Server::start();
    let url = server.url();
    let [(_, runtime), _] = runtimes();
    runtime.block_on(async {
        let scenes: [(&str, Holds); 3] = [("steady", steady), ("mixed", mixed), ("bursty", bursty)];
        for (name, holds) in scenes {
            scene(&url, name, holds).await;
        }
    });
}

mod recorder {
    use std::cell::Cell;
    use std::sync::Arc;

    use metrics::{
        Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit,
    };

    thread_local! {
        static LAST: Cell<Option<f64>> = const { Cell::new(None) };
    }

    /// Takes the last prediction error that was recorded on this thread.
    pub(super) fn take() -> Option<f64> {
        LAST.take()
    }

    /// A recorder that keeps the last prediction error of each thread.
    pub(super) struct LastError;

    impl HistogramFn for LastError {
        fn record(&self, value: f64) {
            LAST.set(Some(value));
        }
    }

    impl Recorder for LastError {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::noop()
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            match key.name() {
                "lockcore_wait_prediction_error_seconds" => Histogram::from_arc(Arc::new(Self)),
                _ => Histogram::noop(),
            }
        }
    }
}
