//! The office's counters, and `GET /metrics`: these and the counters of the locks, for Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::office::Office;

const SECONDS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];
const PLACES: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0];

/// The time between two rounds in which samples become buckets; they are kept until then.
const UPKEEP: Duration = Duration::from_secs(5);

pub(crate) struct Metrics {
    recorder: PrometheusHandle,
    sold: AtomicU64,
    fenced: AtomicU64,
}

impl Metrics {
    /// Counts everything from now on.
    pub(crate) fn install() -> Result<Arc<Self>, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Suffix("_length".into()), &PLACES)?
            .install_recorder()?;
        let upkeep = recorder.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        });
        Ok(Arc::new(Self { recorder, sold: AtomicU64::new(0), fenced: AtomicU64::new(0) }))
    }

    /// Counts a sold seat.
    pub(crate) fn sold(&self) {
        self.sold.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an old token that the database refused.
    pub(crate) fn fenced(&self) {
        self.fenced.fetch_add(1, Ordering::Relaxed);
    }

    fn render(&self, office: &Office) -> String {
        let mut text = self.recorder.render();
        let status = office.locks.status();
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
            ("waiting", "gauge", "Buyers that wait in this process.", count(status.waiting)),
            ("serving", "gauge", "Purchases that hold their seat.", count(status.holding)),
            (
                "connected",
                "gauge",
                "Whether the locks can be reached.",
                status.is_connected().into(),
            ),
        ];
        for (name, kind, help, value) in own {
            let _ = writeln!(text, "# HELP ticket_office_{name} {help}");
            let _ = writeln!(text, "# TYPE ticket_office_{name} {kind}");
            let _ = writeln!(text, "ticket_office_{name} {value}\n");
        }
        let name = "ticket_office_server_connected";
        let _ = writeln!(text, "# HELP {name} Whether a server of the locks can be reached.");
        let _ = writeln!(text, "# TYPE {name} gauge");
        for server in &status.servers {
            let connected = u64::from(server.is_connected());
            let _ = writeln!(text, "{name}{{server=\"{}\"}} {connected}", server.address);
        }
        text
    }
}

/// `GET /metrics`
pub(crate) async fn metrics(State(office): State<Office>) -> Response {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, office.metrics.render(&office)).into_response()
}
