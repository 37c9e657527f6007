//! The plan of a run, its outcome, and its line of the table.

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
    /// The forms in which the locks are used.
    pub forms: Forms,
    /// The seed of the schedule, and of each client's choices.
    pub seed: u64,
    /// The least number of grants.
    pub cycles: u64,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of grants that a client was told of.
    pub cycles: u64,
    /// The number of these grants for reads, writes or permits.
    pub shared: u64,
    /// The number of attempts of all clients.
    pub attempts: u64,
    /// The number of faults that struck, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// The number of waiters that a grant passed over because their nodes were not connected.
    pub passed_over: u64,
    /// The number of times that the server named the members of a run.
    pub runs: u64,
    /// The number of holds that their clients were told to have lost.
    pub lost_holds: u64,
    /// The numbers of fenced writes that were accepted, and that were refused as stale.
    pub fenced: (u64, u64),
    /// The numbers of writes to the unfenced registers, and of lost ones among them.
    pub unfenced: (u64, u64),
    /// The numbers of reads of the unfenced pair, and of torn ones among them.
    pub read: (u64, u64),
    /// The numbers of counts of permits, and of those with too many that had not left.
    pub counted: (u64, u64),
    /// The events that must not have happened.
    pub violations: Vec<Violation>,
    /// The time that the run took.
    pub took: Duration,
}

impl Outcome {
    /// The table's head; its rows are made by [`row`](Self::row).
    pub const HEAD: &str = "fault          cycles  shared  attempts  faults  passed over    runs  lost holds  fenced ok/stale  unfenced/lost     read/torn  permits/over  violations   s";

    /// A line of the table.
    #[must_use]
    pub fn row(&self, kind: Kind) -> String {
        self.line(kind)
    }

    /// The last line of the table, under all the others; its time is the sum of theirs.
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
            total.passed_over += outcome.passed_over;
            total.runs += outcome.runs;
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
            self.passed_over,
            self.runs,
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
