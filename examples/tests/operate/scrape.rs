//! The series in a scrape, in Prometheus text format.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The label names and values of a series.
pub(crate) type Labels = BTreeMap<String, String>;

/// Metric names, with the labels of each series.
pub(crate) struct Scrape(BTreeMap<String, Vec<Labels>>);

impl Scrape {
    pub(crate) fn of(text: &str) -> Self {
        let mut series: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, _value) = line.rsplit_once(' ').expect("a series has a value");
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let labels = labels.trim_end_matches('}').split(',');
            let labels = labels.filter_map(|label| label.split_once('='));
            let labels = labels.map(|(name, value)| (name.into(), value.trim_matches('"').into()));
            series.entry(name.to_owned()).or_default().push(labels.collect());
        }
        Self(series)
    }

    /// Whether the metric has a series with all these labels; a label without a value may have any.
    pub(crate) fn has(&self, metric: &str, labels: &BTreeMap<String, Option<String>>) -> bool {
        let of_scraper = |name: &str| ["job", "instance"].contains(&name);
        self.0.get(metric).is_some_and(|all| {
            all.iter().any(|series| {
                labels.iter().all(|(name, value)| match value {
                    Some(value) => series.get(name) == Some(value),
                    None => of_scraper(name) || series.contains_key(name),
                })
            })
        })
    }

    pub(crate) fn labels(&self) -> BTreeSet<&String> {
        self.0.values().flatten().flat_map(BTreeMap::keys).collect()
    }
}

impl fmt::Display for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, series)| writeln!(f, "{name}: {series:?}"))
    }
}
