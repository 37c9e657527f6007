//! `Results`: everything that a run has measured, as it is kept in a file.

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
    /// What each program says of itself.
    pub(crate) names: BTreeMap<String, String>,
    /// Those that could not be had, and why.
    pub(crate) missing: BTreeMap<String, String>,
    pub(crate) workloads: BTreeMap<String, BTreeMap<String, Measured>>,
}

/// How the machine was before or after.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Condition {
    pub(crate) load: f64,
    pub(crate) busy: bool,
    pub(crate) ping_us: f64,
}

/// What one lock did in one workload.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// One a repetition.
    pub(crate) samples: Vec<Sample>,
    /// Why there are fewer than there should be.
    pub(crate) failed: Option<String>,
}

impl Measured {
    pub(crate) fn spread(&self, value: &str) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(|sample| sample.get(value).copied()))
    }

    /// The median of the ratios, each within one repetition.
    pub(crate) fn ratio(&self, base: &Self, value: &str) -> Option<f64> {
        let ratios = self
            .samples
            .iter()
            .zip(&base.samples)
            .filter_map(|(ours, theirs)| Some(ours.get(value)? / theirs.get(value)?));
        Spread::of(ratios).map(|spread| spread.median)
    }
}
