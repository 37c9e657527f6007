//! The values of the metrics, and the list of them all in the manual.

use std::collections::BTreeSet;
use std::time::Duration;

use lockcore::{LockErrorKind, Locks, MemoryStore};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::backend::{granted, ms, wait_as};

/// Runs `work` on one thread and in paused time, with two nodes on one store in memory. Returns the
/// metrics that it leaves.
fn measured(work: impl AsyncFnOnce(Locks, Locks)) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let store = MemoryStore::new();
            let [a, b] = [(); 2].map(|()| Locks::builder().on_memory(&store).expect("options"));
            work(a, b).await;
        });
    });
    recorder.handle().render()
}

/// The value of a counter, or the number of values of a histogram; 0 if there is none.
fn count(measured: &str, name: &str) -> u64 {
    let values = measured.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.map(|value| value.parse::<u64>().expect("a count")).sum()
}

#[test]
fn a_hand_over_counts_as_one_and_a_grant_of_a_free_lock_does_not() {
    let free = measured(async |a, _| a.lock("key").await.unwrap().release().await.unwrap());
    assert_eq!(count(&free, "lockcore_hand_offs_total"), 0);
    assert_eq!(count(&free, "lockcore_wait_seconds_count"), 1);
    assert_eq!(count(&free, "lockcore_queue_length_count"), 0);

    let handed_over = measured(async |a, b| {
        let guard = a.lock("key").await.expect("free");
        let waiting = wait_as(1, &b, "key").await;
        guard.release().await.expect("held");
        granted(waiting).await.release().await.expect("held");
    });
    assert_eq!(count(&handed_over, "lockcore_hand_offs_total"), 1);
    assert_eq!(count(&handed_over, "lockcore_wait_seconds_count"), 2);
    assert_eq!(count(&handed_over, "lockcore_hold_seconds_count"), 2);
    assert_eq!(count(&handed_over, "lockcore_queue_length_count"), 1);
}

#[test]
fn an_acquire_that_ends_without_the_lock_counts_by_its_cause() {
    let refused = measured(async |a, b| {
        let guard = a.lock("key").await.expect("free");
        assert!(b.try_lock("key").await.expect("an answer").is_none());
        for _ in 0..2 {
            let error = b.lock_timeout("key", ms(100)).await.expect_err("held");
            assert_eq!(error.kind(), LockErrorKind::Timeout);
        }
        let waiting = wait_as(1, &b, "key").await;
        let error = b.key("key").queue_limit(1).lock().await.expect_err("full");
        assert_eq!(error.kind(), LockErrorKind::QueueFull);
        // A caller that cancels was not refused.
        waiting.abort();
        drop(guard);
    });
    let of = |cause| count(&refused, &format!("lockcore_refused_total{{cause=\"{cause}\"}}"));
    assert_eq!([of("busy"), of("timeout"), of("queue_full")], [1, 2, 1], "{refused}");
    assert_eq!(refused.matches("lockcore_refused_total{").count(), 3, "{refused}");
}

#[test]
fn renewals_and_losses_are_counted() {
    let lost = measured(async |a, b| {
        let guard = a.lock("key").await.expect("free");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(b.force_release("key").await.expect("an answer"));
        guard.lost().await;
    });
    assert_eq!(count(&lost, "lockcore_lost_total"), 1);
    // Renewals are a third of 30 s apart, or up to a thirtieth less.
    let renewed = count(&lost, "lockcore_renewals_total{outcome=\"renewed\"}");
    assert!((5..=7).contains(&renewed), "{renewed}");
    assert_eq!(count(&lost, "lockcore_renewals_total{outcome=\"failed\"}"), 0);
}

#[test]
fn the_manual_names_every_metric_and_no_other() {
    fn names(text: &str) -> BTreeSet<&str> {
        let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
        let starts = text.match_indices("lockcore_").map(|(at, _)| &text[at..]);
        starts.map(|name| name.split(|c| !is_part(c)).next().unwrap_or(name)).collect()
    }
    let counted = names(include_str!("../../../lockcore/src/node/observe.rs"));
    assert_eq!(counted, names(include_str!("../../../lockcore/src/guide/observability.md")));
    assert!(counted.len() >= 10, "{counted:?}");
}
