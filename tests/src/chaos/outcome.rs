//! What to run, how it went, and one line of the table about it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::form::Forms;
use super::kind::Kind;
use super::violation::Violation;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of fault.
    pub kind: Kind,
    /// What the locks are used as.
    pub forms: Forms,
    /// Of the schedule, and of what each client does.
    pub seed: u64,
    /// How many grants at least.
    pub cycles: u64,
}

/// How it went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Grants that a client was told of.
    pub cycles: u64,
    /// Those among them of what is read, written or held in permits.
    pub shared: u64,
    /// Attempts of all clients.
    pub attempts: u64,
    /// Faults that struck, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often a waiter was passed over by a grant because its node was not connected.
    pub passed_over: u64,
    /// Holds that their clients were told to have lost.
    pub lost_holds: u64,
    /// Fenced writes that were accepted, and that were refused as stale.
    pub fenced: (u64, u64),
    /// Writes to the unfenced registers, and how many of them were lost.
    pub unfenced: (u64, u64),
    /// How often the unfenced pair was read, and how often it was torn.
    pub read: (u64, u64),
    /// How often permits were counted, and how often those who had not left were too many.
    pub counted: (u64, u64),
    /// Everything that must not have happened.
    pub violations: Vec<Violation>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// The table's head; its rows are made by [`row`](Self::row).
    pub const HEAD: &str = "fault          cycles  shared  attempts  faults  passed over  lost holds  fenced ok/stale  unfenced/lost     read/torn  permits/over  violations   s";

    /// One line of the table.
    #[must_use]
    pub fn row(&self, kind: Kind) -> String {
        self.line(kind)
    }

    /// The last line of the table, under all the others; it took as long as all of them, one after
    /// the other.
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
            "{name:<13} {:>7} {:>7} {:>9} {faults:>7} {:>12} {:>11} {:>10}/{:<5} {:>8}/{:<5} {:>7}/{:<5} \
             {:>7}/{:<5} {:>10} {:>5.1}",
            self.cycles,
            self.shared,
            self.attempts,
            self.passed_over,
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
