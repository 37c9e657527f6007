//! `Sample`: the values measured in a repetition, by name.

use std::collections::BTreeMap;

pub(crate) type Sample = BTreeMap<String, f64>;

/// Median, minimum and maximum of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// The spread of the values that are numbers; `None` without numbers.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let least = *values.first()?;
        let most = *values.last()?;
        Some(Self { median: quantile(&values, 0.5), least, most })
    }
}

/// The smallest of the sorted values that is not below this part of them. Not a number if there are
/// none.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Adds p50, p99 and p99.9, as `<name>_p50` and so on. A percentile is left out if there are too
/// few values for it.
pub(crate) fn percentiles(sample: &mut Sample, name: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    for (suffix, part, needed) in [("p50", 0.5, 1), ("p99", 0.99, 100), ("p999", 0.999, 1_000)] {
        if values.len() >= needed {
            sample.insert(format!("{name}_{suffix}"), quantile(&values, part));
        }
    }
}

/// The mean of the middle eight tenths: whole microseconds are too coarse for a median.
pub(crate) fn middle_mean(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 10;
    let middle = &values[cut..values.len() - cut];
    middle.iter().sum::<f64>() / middle.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_measured() {
        let values: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 500.0);
        assert_eq!(quantile(&values, 0.99), 990.0);
        assert_eq!(quantile(&values, 0.999), 999.0);
        assert_eq!(quantile(&values[..1], 0.999), 1.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn what_is_no_number_is_left_out_of_a_spread() {
        let spread = Spread::of([3.0, f64::NAN, 1.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
