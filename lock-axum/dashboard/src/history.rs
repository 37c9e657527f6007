//! The last ten minutes of this process: waits, holds and refusals by request class, sampled every
//! five seconds.
//!
//! # Implementation notes
//!
//! - A single task takes the samples, whether or not a page is open, because operators look for
//!   what happened before they opened a page. The task ends when the dashboard is dropped, or with
//!   its runtime. In the second case the next page view starts it again, in the current runtime.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::Locks;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The time between two samples of waits, holds and refusals.
const EVERY: Duration = Duration::from_secs(5);
/// The number of samples kept, which cover ten minutes.
pub(super) const KEPT: usize = 120;
/// The maximum number of request classes in a sample. The classes with the most waits, holds and
/// refusals in the sample are kept.
const MOST_SAMPLED: usize = 32;
/// The maximum number of request classes that the page `node` shows.
const MOST_SHOWN: usize = 8;

/// The waits, holds and refusals of the last ten minutes by request class, and the task that
/// samples them every five seconds.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: Arc<Mutex<Samples>>,
    sampler: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Samples {
    /// The last [`KEPT`] samples, oldest first. Each has the numbers of its busiest classes.
    kept: VecDeque<BTreeMap<Arc<str>, Sample>>,
    /// The number of refusals by class since the `Locks` was built, as of the last sample. The next
    /// sample contains only what was added since.
    refused: BTreeMap<Arc<str>, u64>,
}

/// The number of waits and holds in a class at one moment, and of refusals since the previous
/// sample.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    waiting: u64,
    holding: u64,
    refused: u64,
}

impl Sample {
    /// Returns the sum of waits, holds and refusals, by which classes are ranked.
    fn all(self) -> u64 {
        self.waiting + self.holding + self.refused
    }
}

/// The waits, holds and refusals of a request class in all samples, oldest first. The page `node`
/// shows each class as a row of graphs.
#[derive(Debug, Serialize)]
pub(super) struct Past {
    pub(super) class: String,
    pub(super) waiting: Vec<u64>,
    pub(super) holding: Vec<u64>,
    /// Refusals in each five-second interval.
    pub(super) refused: Vec<u64>,
}

impl History {
    /// Starts the task that takes the samples, unless it is already running. Does nothing outside a
    /// tokio runtime, so the first page view starts the task later.
    pub(super) fn begin(&self, locks: &Locks) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        if sampler.as_ref().is_none_or(JoinHandle::is_finished) {
            let (locks, samples) = (locks.clone(), Arc::clone(&self.samples));
            *sampler = Some(runtime.spawn(async move {
                loop {
                    read(&samples).take(&locks);
                    sleep(EVERY).await;
                }
            }));
        }
    }

    /// Returns the samples of the [`MOST_SHOWN`] classes with the most waits, holds and refusals,
    /// the busiest class first.
    pub(super) fn by_class(&self) -> Vec<Past> {
        let samples = read(&self.samples);
        let mut sums: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for (class, sample) in samples.kept.iter().flatten() {
            *sums.entry(class).or_default() += sample.all();
        }
        let mut classes: Vec<_> = sums.into_iter().filter(|(_, sum)| *sum > 0).collect();
        classes.sort_by_key(|(class, sum)| (std::cmp::Reverse(*sum), *class));
        let past = |(class, _): (&Arc<str>, u64)| {
            let of = |value: fn(Sample) -> u64| {
                let of_class = |sample: &BTreeMap<Arc<str>, Sample>| {
                    value(sample.get(class).copied().unwrap_or_default())
                };
                samples.kept.iter().map(of_class).collect()
            };
            Past {
                class: class.to_string(),
                waiting: of(|sample| sample.waiting),
                holding: of(|sample| sample.holding),
                refused: of(|sample| sample.refused),
            }
        };
        classes.into_iter().take(MOST_SHOWN).map(past).collect()
    }
}

impl Drop for History {
    fn drop(&mut self) {
        let sampler = self.sampler.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(sampler) = sampler {
            sampler.abort();
        }
    }
}

fn read(samples: &Mutex<Samples>) -> MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Samples {
    /// Takes a sample, and drops the oldest if there are [`KEPT`] already.
    fn take(&mut self, locks: &Locks) {
        let mut sample: BTreeMap<Arc<str>, Sample> = BTreeMap::new();
        for status in locks.status_by_class() {
            let (waiting, holding) = (status.waiting as u64, status.holding as u64);
            sample.insert(status.class, Sample { waiting, holding, refused: 0 });
        }
        let refused = locks.refused_by_class();
        for (class, now) in &refused {
            let new = now - self.refused.get(class).copied().unwrap_or_default();
            if new > 0 {
                sample.entry(Arc::clone(class)).or_default().refused = new;
            }
        }
        self.refused = refused;
        if sample.len() > MOST_SAMPLED {
            let mut most: Vec<_> = sample.into_iter().collect();
            most.sort_by_key(|(_, sample)| std::cmp::Reverse(sample.all()));
            most.truncate(MOST_SAMPLED);
            sample = most.into_iter().collect();
        }
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(sample);
    }
}
