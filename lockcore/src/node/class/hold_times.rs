//! The hold times of a request class, as a histogram in which older holds count less.
//!
//! # Implementation notes
//!
//! - Each power of two has four buckets, so a quantile is at most a quarter too low, and never too
//!   high. Quantiles are rarely read, by a scan of all buckets.
//! - Once there are many holds, all buckets are halved. So the last few hundred holds count most,
//!   and a rarely used class keeps its estimate.

use std::time::Duration;

/// Minimum number of recorded holds for an estimate.
const FEWEST: u32 = 100;
/// Number of further holds after which the estimate is calculated again.
const RENEWED_EACH: u32 = 50;
/// Number of recorded holds at which the counts of all buckets are halved, so that older holds
/// count less.
const MOST: u32 = 1_024;
/// The low estimate is the duration that all but one in `LOW_PART` holds exceed.
const LOW_PART: u32 = 10;
/// Number of buckets in the histogram: four for each power of two, from 1 µs to nine hours.
const BUCKETS: usize = 140;

/// An estimate of how long the holds of a class last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct HoldEstimate {
    /// The duration that about nine of ten holds exceed.
    pub(crate) low: Duration,
    pub(crate) mean: Duration,
}

/// The hold times of a class so far, and the estimate calculated from them.
#[derive(Debug)]
pub(crate) struct HoldTimes {
    buckets: [u32; BUCKETS],
    count: u32,
    /// The sum of all counted hold times, in µs.
    sum: f64,
    /// The last calculated estimate; `None` with too few holds. It is kept because each request
    /// that may be refused early reads it.
    estimate: Option<HoldEstimate>,
}

impl Default for HoldTimes {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, sum: 0.0, estimate: None }
    }
}

impl HoldTimes {
    /// Adds the duration of a hold, and calculates the estimate again if this is due.
    pub(crate) fn add(&mut self, hold: Duration) {
        if self.count >= MOST {
            self.halve();
        }
        let micros =
            hold.as_secs().saturating_mul(1_000_000).saturating_add(hold.subsec_micros().into());
        self.buckets[bucket(micros)] += 1;
        self.count += 1;
        self.sum += micros as f64;
        if self.count.is_multiple_of(RENEWED_EACH) {
            self.estimate = self.calculate();
        }
    }

    fn halve(&mut self) {
        let before = f64::from(self.count);
        self.buckets.iter_mut().for_each(|bucket| *bucket /= 2);
        self.count = self.buckets.iter().sum();
        self.sum *= f64::from(self.count) / before;
    }

    /// Returns the last calculated estimate; `None` until [`FEWEST`] holds are recorded.
    pub(crate) fn estimate(&self) -> Option<HoldEstimate> {
        self.estimate
    }

    fn calculate(&self) -> Option<HoldEstimate> {
        if self.count < FEWEST {
            return None;
        }
        let mut above = self.count / LOW_PART;
        let is_low = |(_, count): &(usize, &u32)| {
            let is_low = **count > above;
            above = above.saturating_sub(**count);
            is_low
        };
        let (low, _) = self.buckets.iter().enumerate().find(is_low)?;
        let mean = Duration::from_secs_f64(self.sum / f64::from(self.count) / 1e6);
        Some(HoldEstimate { low: Duration::from_micros(lowest(low)).min(mean), mean })
    }
}

/// Returns the bucket index for a hold time in µs.
fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let power = micros.ilog2();
    let quarter = if power < 2 { micros << (2 - power) } else { micros >> (power - 2) } & 3;
    (4 * power as usize + quarter as usize).min(BUCKETS - 1)
}

/// Returns the shortest hold time that belongs to a bucket, in µs.
fn lowest(bucket: usize) -> u64 {
    let (power, quarter) = (bucket / 4, bucket as u64 % 4);
    ((4 + quarter) << power) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(holds: impl IntoIterator<Item = u64>) -> HoldTimes {
        let mut times = HoldTimes::default();
        holds.into_iter().for_each(|micros| times.add(Duration::from_micros(micros)));
        times
    }

    fn estimate(times: &HoldTimes) -> (u64, u64) {
        let HoldEstimate { low, mean } = times.estimate().expect("enough holds");
        (low.as_micros() as u64, mean.as_micros() as u64)
    }

    #[test]
    fn there_is_no_estimate_before_a_hundred_holds() {
        assert_eq!(of(vec![2_000; 99]).estimate(), None);
        assert!(of(vec![2_000; 100]).estimate().is_some());
    }

    #[test]
    fn a_bucket_has_the_lengths_from_its_lowest_to_that_of_the_next() {
        for micros in (1..5_000).chain([1 << 20, (1 << 34) - 1]) {
            let bucket = bucket(micros);
            assert!(lowest(bucket) <= micros, "{micros}");
            assert!(micros < lowest(bucket + 1) || micros < 4, "{micros}");
            assert!(micros - lowest(bucket) <= lowest(bucket) / 4, "{micros}");
        }
        assert_eq!([bucket(0), bucket(1)], [0, 0]);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_low_estimate_is_not_above_nine_of_ten_holds_and_not_far_below() {
        let (low, mean) = estimate(&of((1..=1_000).map(|number| number * 10)));
        assert!((750..=1_010).contains(&low), "{low}");
        assert!((5_000..=5_010).contains(&mean), "{mean}");
        // A few long holds raise the mean, and a few short holds lower nothing.
        let (low, mean) = estimate(&of((0..500).map(|number| match number % 20 {
            0 => 10,
            1 => 1_000_000,
            _ => 2_000,
        })));
        assert!((1_600..=2_000).contains(&low), "{low}");
        assert!(mean > 50_000, "{mean}");
    }

    #[test]
    fn equal_holds_have_a_low_estimate_of_at_most_their_length() {
        for micros in [1, 2, 3, 5, 1_000, 1_999, 2_000, 123_456] {
            let (low, mean) = estimate(&of(vec![micros; 200]));
            assert!(low <= micros && low >= micros - micros / 5, "{micros}: {low}");
            assert_eq!(mean, micros);
        }
    }

    #[test]
    fn the_past_decays() {
        let mut times = of(vec![100_000; 5_000]);
        for _ in 0..3_000 {
            times.add(Duration::from_millis(1));
        }
        let (low, mean) = estimate(&times);
        assert!(low <= 1_000 && mean < 8_000, "{low} {mean}");
        assert!(times.count <= MOST);
        // And back: soon, nine of ten holds are longer.
        for _ in 0..3_000 {
            times.add(Duration::from_millis(100));
        }
        assert!(estimate(&times).0 > 80_000);
    }
}
