//! The plan of a run, its outcome, and the table row.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::form::Forms;
use super::kind::Kind;
use super::violation::Violation;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of fault.
    pub kind: Kind,
    /// The forms of the locks.
    pub forms: Forms,
    /// The seed of the schedule, and of each client's choices.
    pub seed: u64,
    /// The minimum number of grants.
    pub cycles: u64,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many grants were received by a client.
    pub cycles: u64,
    /// How many of these grants were reads, writes or permits.
    pub shared: u64,
    /// The number of attempts of all clients.
    pub attempts: u64,
    /// How many faults struck, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// How many waiters were skipped because their nodes were not connected.
    pub skipped: u64,
    /// How often the server recorded batch members.
    pub batches: u64,
    /// How many holds were reported as lost to their clients.
    pub lost_holds: u64,
    /// How many fenced writes were accepted, and how many were refused as stale.
    pub fenced: (u64, u64),
    /// How many writes went to the unfenced registers, and how many of them were lost.
    pub unfenced: (u64, u64),
    /// How many reads of the unfenced pair there were, and how many of them were torn.
    pub read: (u64, u64),
    /// How many counts of permits there were, and how many exceeded the limit with permits not yet
    /// left.
    pub counted: (u64, u64),
    /// The events that must not have happened.
    pub violations: Vec<Violation>,
    /// The duration of the run.
    pub took: Duration,
}

impl Outcome {
    /// The table header; [`row`](Self::row) makes the rows.
    pub const HEAD: &str = "fault          cycles  shared  attempts  faults      skipped batches  lost holds  fenced ok/stale  unfenced/lost     read/torn  permits/over  violations   s";

    /// Returns a row of the table.
    #[must_use]
    pub fn row(&self, kind: Kind) -> String {
        self.line(kind)
    }

    /// Returns the last row of the table, with the sums of all others.
    #[must_use]
    pub fn total(outcomes: &[Self]) -> String {
        let mut total = Self::default();
        for outcome in outcomes {
            total.cycles += outcome.cycles;
            total.shared += outcome.shared;
            total.attempts += outcome.attempts;
            for (fault, count) in &outcome.faults {
                *total.faults.entry(fault).or_default() += count;
            }
            total.skipped += outcome.skipped;
            total.batches += outcome.batches;
            total.lost_holds += outcome.lost_holds;
            total.fenced.0 += outcome.fenced.0;
            total.fenced.1 += outcome.fenced.1;
            total.unfenced.0 += outcome.unfenced.0;
            total.unfenced.1 += outcome.unfenced.1;
            total.read.0 += outcome.read.0;
            total.read.1 += outcome.read.1;
            total.counted.0 += outcome.counted.0;
            total.counted.1 += outcome.counted.1;
            total.violations.extend_from_slice(&outcome.violations);
            total.took += outcome.took;
        }
        total.line("total")
    }

    fn line(&self, name: impl fmt::Display) -> String {
        let faults: u64 = self.faults.values().sum();
        format!(
            "{name:<13} {:>7} {:>7} {:>9} {faults:>7} {:>12} {:>7} {:>11} {:>10}/{:<5} {:>8}/{:<5} {:>7}/{:<5} \
             {:>7}/{:<5} {:>10} {:>5.1}",
            self.cycles,
            self.shared,
            self.attempts,
            self.skipped,
            self.batches,
            self.lost_holds,
            self.fenced.0,
            self.fenced.1,
            self.unfenced.0,
            self.unfenced.1,
            self.read.0,
            self.read.1,
            self.counted.0,
            self.counted.1,
            self.violations.len(),
            self.took.as_secs_f64(),
        )
    }
}
