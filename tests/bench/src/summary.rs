//! `Summary`: the medians of a run, stored beside the page and drawn.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::results::Results;

/// The figures for comparing two runs; all repetitions are in `Results`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) date: String,
    pub(crate) revision: String,
    pub(crate) machine: String,
    pub(crate) server: String,
    pub(crate) repetitions: usize,
    /// The figures by workload, lock and value.
    pub(crate) workloads: BTreeMap<String, BTreeMap<String, BTreeMap<String, Figure>>>,
}

/// The median of all repetitions, with minimum and maximum where they are stored.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) least: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) most: Option<f64>,
}

impl Summary {
    pub(crate) fn of(results: &Results) -> Self {
        let mut workloads = BTreeMap::<_, BTreeMap<_, BTreeMap<_, _>>>::new();
        for (workload, measured) in &results.workloads {
            for (lock, measured) in measured {
                let values = measured.samples.iter().flat_map(|sample| sample.keys());
                let figure = |value: &String| {
                    let spread = measured.spread(value)?;
                    let least = Some(spread.least);
                    let most = Some(spread.most);
                    Some((value.clone(), Figure { median: spread.median, least, most }))
                };
                let figures = values.filter_map(figure).collect();
                workloads.entry(workload.clone()).or_default().insert(lock.clone(), figures);
            }
        }
        Self {
            date: results.date.clone(),
            revision: results.revision.clone(),
            machine: results.machine.clone(),
            server: results.server.clone(),
            repetitions: results.repetitions,
            workloads,
        }
    }

    pub(crate) fn figure(&self, workload: &str, lock: &str, value: &str) -> Option<Figure> {
        self.workloads.get(workload)?.get(lock)?.get(value).copied()
    }
}
