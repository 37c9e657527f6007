//! `Results`: all measured values of a run, as stored in a file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sample::{Sample, Spread};

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) date: String,
    pub(crate) revision: String,
    pub(crate) against: Option<String>,
    pub(crate) machine: String,
    pub(crate) server: String,
    pub(crate) repetitions: usize,
    pub(crate) quick: bool,
    pub(crate) before: Condition,
    pub(crate) after: Condition,
    /// The name reported by each program.
    pub(crate) names: BTreeMap<String, String>,
    /// The unavailable programs, and why.
    pub(crate) missing: BTreeMap<String, String>,
    pub(crate) workloads: BTreeMap<String, BTreeMap<String, Measured>>,
}

/// The state of the machine before or after the run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Condition {
    pub(crate) load: f64,
    pub(crate) busy: bool,
    pub(crate) ping_us: f64,
}

/// The values of a lock in a workload.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// A sample per repetition.
    pub(crate) samples: Vec<Sample>,
    /// Why there are fewer samples than expected.
    pub(crate) failed: Option<String>,
}

impl Measured {
    pub(crate) fn spread(&self, value: &str) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(|sample| sample.get(value).copied()))
    }

    /// The median of the ratios, each within a repetition.
    pub(crate) fn ratio(&self, base: &Self, value: &str) -> Option<f64> {
        let ratios = self
            .samples
            .iter()
            .zip(&base.samples)
            .filter_map(|(ours, theirs)| Some(ours.get(value)? / theirs.get(value)?));
        Spread::of(ratios).map(|spread| spread.median)
    }
}
