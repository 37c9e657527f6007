//! The last minutes of this process by class: its waits, holds and refusals each five seconds.
//!
//! # Implementation notes
//!
//! - One task takes the samples, whether a page is open or not: what was before an operator looked
//!   is what they look for. It ends with the dashboard, whose drop aborts it, and with its runtime;
//!   the next look starts it again in the runtime of that look.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockcore::Locks;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The time between two samples.
const EVERY: Duration = Duration::from_secs(5);
/// The samples of ten minutes.
pub(super) const KEPT: usize = 120;
/// The most classes of a sample: those with the most waits, holds and refusals.
const MOST_SAMPLED: usize = 32;
/// The most classes that are shown.
const MOST_SHOWN: usize = 8;

/// Samples, and the task that takes them.
#[derive(Debug, Default)]
pub(super) struct History {
    samples: Arc<Mutex<Samples>>,
    sampler: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Samples {
    /// The newest is the last.
    kept: VecDeque<BTreeMap<Arc<str>, Sample>>,
    refused: BTreeMap<Arc<str>, u64>,
}

/// The waits and holds of a class at one time, and its refusals since the last sample.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    waiting: u64,
    holding: u64,
    refused: u64,
}

impl Sample {
    fn all(self) -> u64 {
        self.waiting + self.holding + self.refused
    }
}

/// The samples of one class, the newest last.
#[derive(Debug, Serialize)]
pub(super) struct Past {
    pub(super) class: String,
    pub(super) waiting: Vec<u64>,
    pub(super) holding: Vec<u64>,
    /// Those of each five seconds.
    pub(super) refused: Vec<u64>,
}

impl History {
    /// Begins to take samples, if that has not begun in a runtime that is still there. Outside of a
    /// runtime it begins with the first look.
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

    /// The samples of the classes that had the most waits, holds and refusals.
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
