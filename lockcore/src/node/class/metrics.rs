//! Metric keys for a request class.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The metric keys of a class's histograms. They are created once per class, because each acquire
/// and release needs some of them.
#[derive(Debug)]
pub(crate) struct ClassMetrics {
    pub(crate) wait: metrics::Key,
    pub(crate) hold: metrics::Key,
    pub(crate) queue_length: metrics::Key,
    pub(crate) prediction_error: metrics::Key,
    has_begun: AtomicBool,
}

impl ClassMetrics {
    pub(super) fn new(class: &Arc<str>) -> Self {
        let key = |name: &'static str| {
            let label = metrics::Label::new("class", Arc::clone(class));
            metrics::Key::from_parts(name, vec![label])
        };
        Self {
            wait: key("lockcore_wait_seconds"),
            hold: key("lockcore_hold_seconds"),
            queue_length: key("lockcore_queue_length"),
            prediction_error: key("lockcore_wait_prediction_error_seconds"),
            has_begun: AtomicBool::new(false),
        }
    }

    /// Returns true on the first call only. The caller then registers the class's counters at 0.
    pub(crate) fn begins(&self) -> bool {
        !self.has_begun.load(Ordering::Relaxed) && !self.has_begun.swap(true, Ordering::Relaxed)
    }
}
