//! The work whose instructions `scripts/instructions --pairs` counts: acquires and releases of free
//! locks, by many tasks at once, on one thread.
//!
//!     pairs URL TASKS PAIRS [all]
//!
//! With `all`, each acquire names a class and may be refused early. With the feature `metrics`, a
//! recorder receives the metrics.
#![allow(missing_docs)]

use std::time::Duration;

use lockcore::Locks;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tasks, pairs, rest @ ..] = arguments.as_slice() else {
        // Cargo starts every bench without arguments.
        return;
    };
    let is_all_on = rest == ["all"];
    #[cfg(feature = "metrics")]
    if is_all_on {
        metrics::set_global_recorder(recorder::Sums::default()).expect("the first");
    }
    let [tasks, pairs]: [u32; 2] = [tasks, pairs].map(|number| number.parse().expect("a number"));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let locks = Locks::connect(url.as_str()).await.expect("the server is up");
        let mut working = JoinSet::new();
        for task in 0..tasks {
            let locks = locks.clone();
            working.spawn(async move {
                let key = format!("shop:order:{task:04}");
                for _ in 0..pairs {
                    let guard = match is_all_on {
                        true => {
                            let request = locks.key(&*key).class("orders").refuse_early(true);
                            request.wait(Duration::from_secs(10)).lock().await
                        }
                        false => locks.lock(&*key).await,
                    };
                    let guard = guard.expect("it is free");
                    guard.release().await.expect("it was held");
                }
            });
        }
        while let Some(done) = working.join_next().await {
            done.expect("no task panics");
        }
    });
}

#[cfg(feature = "metrics")]
mod recorder {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use metrics::{
        Counter, CounterFn as _, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
        SharedString, Unit,
    };

    /// A recorder that finds each metric without a search, and only adds the value to a sum.
    #[derive(Default)]
    pub(super) struct Sums {
        counter: Arc<AtomicU64>,
        gauge: Arc<AtomicU64>,
        histogram: Arc<Sum>,
    }

    #[derive(Default)]
    struct Sum(AtomicU64);

    impl HistogramFn for Sum {
        fn record(&self, value: f64) {
            self.0.increment(value.to_bits());
        }
    }

    impl Recorder for Sums {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::clone(&self.counter))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::clone(&self.gauge))
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::clone(&self.histogram))
        }
    }
}
