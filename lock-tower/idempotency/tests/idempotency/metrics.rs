//! The metrics of the layer, which reveal no user and no key.

use metrics_exporter_prometheus::PrometheusBuilder;

use lockcore::Locks;

use crate::support::{Spy, counted, layer, payment, payment_of, send, serve, spawn};

#[test]
fn counters_tell_ends_and_causes_and_no_user_and_no_key() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    ::metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let (service, _) = counted(&layer(&Locks::in_memory(), &Spy::default()));
            for _ in 0..3 {
                send(&service, payment_of("ada", "secret", "500 cents")).await;
            }
            send(&service, payment_of("ada", "secret", "900 cents")).await;
            send(&service, payment("")).await;
        });
    });
    let text = recorder.handle().render();
    for line in [
        "lock_idempotency_served_total{outcome=\"stored\"} 1",
        "lock_idempotency_served_total{outcome=\"replayed\"} 2",
        "lock_idempotency_refused_total{cause=\"idempotency-key-reused\"} 1",
        "lock_idempotency_refused_total{cause=\"idempotency-key-invalid\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in {text}");
    }
    assert!(!text.contains("ada") && !text.contains("secret"), "{text}");
}

#[test]
fn each_counter_starts_at_zero_when_the_layer_is_added_and_a_panic_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let count = |metric: &str| {
        let text = recorder.handle().render();
        let lines = text.lines().filter(|line| line.starts_with(metric));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    ::metrics::with_local_recorder(&recorder, || {
        let service = runtime.block_on(async {
            serve(&layer(&Locks::in_memory(), &Spy::default()), async |_| panic!("no answer"))
        });
        assert_eq!(count("lock_idempotency_served_total{"), [0; 7]);
        assert_eq!(count("lock_idempotency_refused_total{"), [0; 17]);
        let panicked = runtime.block_on(async { spawn(&service, payment("a1")).await });
        assert!(panicked.unwrap_err().is_panic());
        assert_eq!(count("lock_idempotency_served_total{outcome=\"no_answer\"}"), [1]);
    });
}
