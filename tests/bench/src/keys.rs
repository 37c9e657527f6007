//! The key file of a workload, and how its tasks walk through it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::workload::Keys;

/// The length of the sequence: a task does not return to its beginning in step with another task.
const SEQUENCE: usize = 65_536;

#[derive(Debug)]
pub(crate) struct KeyFile {
    pub(crate) path: PathBuf,
    /// The distance between the first keys of two consecutive tasks.
    pub(crate) stride: usize,
    /// How far a task advances each turn.
    pub(crate) step: usize,
    /// The lock named by each line.
    locks: Vec<usize>,
}

impl KeyFile {
    /// Writes the file for `tasks` tasks; the locks are `<prefix>:0` and so on.
    pub(crate) fn write(
        path: &Path,
        prefix: &str,
        keys: Keys,
        tasks: usize,
    ) -> Result<Self, String> {
        let (stride, step, locks) = match keys {
            Keys::Own => (1, 0, (0..tasks).collect()),
            // Of names that another task reaches much later.
            Keys::Fresh => (SEQUENCE / tasks.max(1), 1, (0..SEQUENCE).collect()),
            Keys::One => (0, 0, vec![0]),
            Keys::Shared(count) => (8_191, 1, sequence(&vec![1.0; count])),
            Keys::Zipf(count) => {
                let chances: Vec<f64> = (1..=count).map(|n| 1.0 / n as f64).collect();
                (8_191, 1, sequence(&chances))
            }
        };
        let text: String = locks.iter().map(|lock| format!("{prefix}:{lock}\n")).collect();
        fs::write(path, text).map_err(|error| format!("{path:?}: {error}"))?;
        Ok(Self { path: path.to_owned(), stride, step, locks })
    }

    /// The lock of a task's turn; see `tests/peers/README.md`.
    pub(crate) fn lock(&self, first: usize, task: usize, turn: usize) -> usize {
        self.locks[(first + task * self.stride + turn * self.step) % self.locks.len()]
    }
}

/// Draws numbers with these probabilities, the same in every run.
fn sequence(chances: &[f64]) -> Vec<usize> {
    let sum: f64 = chances.iter().sum();
    let sums: Vec<f64> = chances
        .iter()
        .scan(0.0, |so_far, chance| {
            *so_far += chance / sum;
            Some(*so_far)
        })
        .collect();
    let mut state = 1_u64;
    let draw = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        sums.partition_point(|sum| *sum <= drawn).min(chances.len() - 1)
    };
    std::iter::repeat_with(draw).take(SEQUENCE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_two_is_drawn_as_often_as_its_chance_says() {
        let drawn = sequence(&[3.0, 1.0]);
        let share = drawn.iter().filter(|lock| **lock == 0).count() as f64 / drawn.len() as f64;
        assert!((0.74..0.76).contains(&share), "{share}");
    }
}
