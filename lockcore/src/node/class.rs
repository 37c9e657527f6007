//! Request classes. A class is a caller's name for a kind of requests. Metrics and predictions are
//! kept for each class, because there are too many lock names.

mod hold_times;
#[cfg(feature = "metrics")]
mod metrics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::Demand;

use self::hold_times::HoldTimes;
#[cfg(feature = "metrics")]
use self::metrics::ClassMetrics;

/// Maximum number of classes per `Locks`, besides [`DEFAULT`] and [`OTHER`].
const MAX_CLASSES: usize = 1_000;
/// Maximum class name length, in bytes. Longer names are cut.
const MAX_BYTES: usize = 64;
/// Name of the class for requests whose caller names no class.
const DEFAULT: &str = "default";
/// Name of the class for requests with a new class name, once there are [`MAX_CLASSES`] classes.
const OTHER: &str = "other";

/// A class of requests, with its metrics and past hold times.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: Arc<str>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: ClassMetrics,
    /// True once a prediction has been requested in this class. Hold times are recorded only from
    /// then on.
    is_predicted: AtomicBool,
    holds: Mutex<HoldTimes>,
}

impl Class {
    fn new(name: &str) -> Arc<Self> {
        let name = Arc::from(name);
        Arc::new(Self {
            #[cfg(feature = "metrics")]
            metrics: ClassMetrics::new(&name),
            name,
            is_predicted: AtomicBool::new(false),
            holds: Mutex::default(),
        })
    }
}

impl Class {
    /// Records how long a hold lasted, if waits in this class are predicted. Otherwise `time` is
    /// not called.
    pub(crate) fn held(&self, time: impl FnOnce() -> Duration) {
        if self.is_predicted.load(Ordering::Relaxed) {
            let time = time();
            self.holds.lock().unwrap_or_else(PoisonError::into_inner).add(time);
        }
    }

    /// Predicts the longest queue in which a request is granted the lock within `wait`. The queue
    /// is never longer than `limit`, the request's own queue limit. Returns `None` until enough
    /// holds are recorded; the first call starts the recording.
    pub(crate) fn predict(&self, wait: Duration, limit: u32, demand: Demand) -> Option<Prediction> {
        self.is_predicted.store(true, Ordering::Relaxed);
        let hold = self.holds.lock().unwrap_or_else(PoisonError::into_inner).estimate()?;
        let at_once = (demand.limit() / demand.weight()).max(1);
        let ahead = wait.as_secs_f64() / hold.low.as_secs_f64() * at_once as f64;
        // The cast saturates. Plus one: with nobody ahead, a request need not wait for a whole
        // hold.
        let queue_limit = (ahead as u32).saturating_add(1);
        let is_limit = queue_limit < limit;
        let queue_limit = queue_limit.min(limit);
        Some(Prediction { queue_limit, is_limit, mean: hold.mean, at_once })
    }
}

/// A request's predicted wait, based on the past hold times of its class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prediction {
    /// The longest queue, including the request, in which the predicted wait is within the caller's
    /// wait limit. Never above the request's own queue limit.
    pub(crate) queue_limit: u32,
    /// True if the prediction has lowered `queue_limit`; false if this is the request's own queue
    /// limit.
    pub(crate) is_limit: bool,
    mean: Duration,
    /// Number of requests with the same demand that can hold the lock at the same time.
    at_once: u64,
}

impl Prediction {
    /// Returns the expected wait in a queue, behind `ahead` other waiters.
    pub(crate) fn wait(&self, ahead: u64) -> Duration {
        let seconds = self.mean.as_secs_f64() * ahead as f64 / self.at_once as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// Returns the first [`MAX_BYTES`] bytes of a class name, cut at a character boundary.
fn cut(name: &str) -> &str {
    if name.len() <= MAX_BYTES {
        return name;
    }
    let end = (0..=MAX_BYTES).rfind(|end| name.is_char_boundary(*end)).unwrap_or(0);
    &name[..end]
}

/// All request classes of a `Locks`. Their number is limited, because a class is never removed.
#[derive(Debug)]
pub(crate) struct Classes {
    default: Arc<Class>,
    other: Arc<Class>,
    named: Mutex<BTreeMap<Arc<str>, Arc<Class>>>,
}

impl Default for Classes {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

impl Classes {
    /// Creates the two classes that always exist. `default` is the name of the class for requests
    /// whose caller names no class; if empty, the name is [`DEFAULT`].
    pub(crate) fn new(default: &str) -> Self {
        let default = match cut(default) {
            "" => DEFAULT,
            default => default,
        };
        Self { default: Class::new(default), other: Class::new(OTHER), named: Mutex::default() }
    }

    /// Returns the class for requests whose caller names no class.
    pub(crate) fn unnamed(&self) -> Arc<Class> {
        Arc::clone(&self.default)
    }

    /// Returns the class of this name, and creates it at first use. Returns the default class for
    /// an empty name, and [`OTHER`] for a new name once there are [`MAX_CLASSES`] classes.
    pub(crate) fn get(&self, name: &str) -> Arc<Class> {
        let class = match cut(name) {
            "" => &self.default,
            name if name == &*self.default.name => &self.default,
            OTHER => &self.other,
            name => {
                let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(class) = named.get(name) {
                    return Arc::clone(class);
                }
                if named.len() < MAX_CLASSES {
                    let class = Class::new(name);
                    named.insert(Arc::clone(&class.name), Arc::clone(&class));
                    return class;
                }
                &self.other
            }
        };
        Arc::clone(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_class_and_one_too_many_is_other() {
        let classes = Classes::default();
        for name in 0..MAX_CLASSES {
            assert_eq!(*classes.get(&name.to_string()).name, *name.to_string());
        }
        for one_more in ["one more", "and another"] {
            assert!(Arc::ptr_eq(&classes.get(one_more), &classes.get(OTHER)), "{one_more}");
        }
        assert!(Arc::ptr_eq(&classes.get("7"), &classes.get("7")));
        assert_eq!(*classes.get("7").name, *"7", "those of before stay");
        for unnamed in ["", DEFAULT] {
            assert!(Arc::ptr_eq(&classes.get(unnamed), &classes.unnamed()));
        }
    }

    #[test]
    fn the_class_of_those_that_name_none_can_be_chosen() {
        let classes = Classes::new("orders");
        assert_eq!(*classes.unnamed().name, *"orders");
        for unnamed in ["", "orders"] {
            assert!(Arc::ptr_eq(&classes.get(unnamed), &classes.unnamed()));
        }
        assert_eq!(*classes.get(DEFAULT).name, *DEFAULT);
        assert_eq!(*Classes::new("").unnamed().name, *DEFAULT);
        assert_eq!(*Classes::new(&"é".repeat(40)).unnamed().name, *"é".repeat(32));
    }

    #[test]
    fn a_long_name_is_cut_at_a_whole_character() {
        let classes = Classes::default();
        let class = classes.get(&"é".repeat(40));
        assert_eq!(*class.name, "é".repeat(32));
        assert_eq!(
            *classes.get(&format!("a{}", "é".repeat(40))).name,
            format!("a{}", "é".repeat(31))
        );
    }
}
