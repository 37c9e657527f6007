//! The office's counters, and `GET /metrics`: the office and lock metrics, for Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::office::{self, Office};

/// The bucket limits for durations, such as waits, in seconds. They begin below a millisecond,
/// because a free lock takes only a round trip.
const SECONDS: [f64; 17] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 30.0,
];
/// The bucket limits for the error of a predicted wait, in seconds. An error below 0 means that the
/// request waited longer than predicted.
const ERRORS: [f64; 13] =
    [-10.0, -5.0, -1.0, -0.5, -0.1, -0.02, 0.0, 0.02, 0.1, 0.5, 1.0, 5.0, 10.0];
const PLACES: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];

/// How often the recorder moves its samples into buckets. Until then, each sample occupies memory.
const UPKEEP: Duration = Duration::from_secs(5);

pub(crate) struct Metrics {
    recorder: PrometheusHandle,
    sold: AtomicU64,
    fenced: AtomicU64,
}

impl Metrics {
    /// Installs the recorder for the metrics of this process, and creates the office's own
    /// counters.
    pub(crate) fn install() -> Result<Arc<Self>, BuildError> {
        let recorder = builder()?.install_recorder()?;
        let upkeep = recorder.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        });
        Ok(Arc::new(Self { recorder, sold: AtomicU64::new(0), fenced: AtomicU64::new(0) }))
    }

    pub(crate) fn sold(&self) {
        self.sold.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a purchase whose outdated token was refused by the database.
    pub(crate) fn fenced(&self) {
        self.fenced.fetch_add(1, Ordering::Relaxed);
    }

    fn render(&self, office: &Office) -> String {
        let mut text = self.recorder.render();
        let status = office.locks.status();
        // The locks for idempotency keys have a separate class.
        let classes = office.locks.status_by_class();
        let seats = classes.iter().find(|class| &*class.class == office::CLASS);
        let (waiting, serving) = seats.map_or((0, 0), |seats| (seats.waiting, seats.holding));
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let own = [
            (
                "sold_total",
                "counter",
                "Seats sold by this process.",
                self.sold.load(Ordering::Relaxed),
            ),
            (
                "fenced_total",
                "counter",
                "Purchases whose token the database refused.",
                self.fenced.load(Ordering::Relaxed),
            ),
            ("waiting", "gauge", "Waiting buyers in this process.", count(waiting)),
            ("serving", "gauge", "Purchases that hold their seat.", count(serving)),
            (
                "connected",
                "gauge",
                "Whether the lock servers are reachable.",
                status.is_connected().into(),
            ),
        ];
        for (name, kind, help, value) in own {
            let _ = writeln!(text, "# HELP ticket_office_{name} {help}");
            let _ = writeln!(text, "# TYPE ticket_office_{name} {kind}");
            let _ = writeln!(text, "ticket_office_{name} {value}\n");
        }
        let name = "ticket_office_server_connected";
        let _ = writeln!(text, "# HELP {name} Whether a lock server is reachable.");
        let _ = writeln!(text, "# TYPE {name} gauge");
        for server in &status.servers {
            let connected = u64::from(server.is_connected());
            let _ = writeln!(text, "{name}{{server=\"{}\"}} {connected}", server.address);
        }
        text
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let errors = Matcher::Full("lockcore_wait_prediction_error_seconds".into());
    PrometheusBuilder::new()
        .set_buckets_for_metric(errors, &ERRORS)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_length".into()), &PLACES)
}

/// `GET /metrics`: returns all metrics in Prometheus text format.
pub(crate) async fn metrics(State(office): State<Office>) -> Response {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, office.metrics.render(&office)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    // U7: all errors below 0 were in one bucket, and all waits below a millisecond in another.
    #[test]
    fn predictions_have_buckets_below_zero_and_waits_below_a_millisecond() {
        let recorder = builder().expect("buckets").build_recorder();
        ::metrics::with_local_recorder(&recorder, || {
            for value in [-3.0, -0.05, 0.05] {
                ::metrics::histogram!("lockcore_wait_prediction_error_seconds").record(value);
            }
            for value in [0.000_15, 0.000_4, 0.000_9] {
                ::metrics::histogram!("lockcore_wait_seconds").record(value);
            }
        });
        let handle = recorder.handle();
        handle.run_upkeep();
        let text = handle.render();
        for (name, bounds) in [
            ("lockcore_wait_prediction_error_seconds", ["-1", "-0.02", "0.1"]),
            ("lockcore_wait_seconds", ["0.0002", "0.0005", "0.001"]),
        ] {
            for (count, bound) in (1..).zip(bounds) {
                let line = format!("{name}_bucket{{le=\"{bound}\"}} {count}");
                assert!(text.contains(&line), "no {line} in:\n{text}");
            }
        }
    }
}
