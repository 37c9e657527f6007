//! Limits the warnings that an outage can cause for each lock at once.
//!
//! # Implementation notes
//!
//! - Events run on the task that reads the server's replies, and a process may have many thousand
//!   holds. A line for each hold, again at each failed renewal, would delay the replies behind the
//!   log.
//! - The number of the warnings that were left out is logged at the end of their period, and not
//!   with the next warning, which may never come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::NodeId;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::warn;

use crate::foreign;

/// Maximum number of warnings of a kind that are logged in a period.
const LOGGED: u64 = 16;
/// The time from a first warning of a kind until the number of those left out is logged.
const PERIOD: Duration = Duration::from_secs(10);

/// The kinds of warnings that each lock of a node may cause.
#[derive(Debug, Clone, Copy)]
pub(super) enum Warning {
    PositionLost,
    Missed,
    RenewalFailed,
    Lost,
    LeaveFailed,
    Deaf,
}

impl Warning {
    const ALL: [Self; 6] = [
        Self::PositionLost,
        Self::Missed,
        Self::RenewalFailed,
        Self::Lost,
        Self::LeaveFailed,
        Self::Deaf,
    ];

    /// Returns the beginning of the warning's text.
    fn text(self) -> &'static str {
        match self {
            Self::PositionLost => "queue position lost",
            Self::Missed => "granted, but the future was not polled in time",
            Self::RenewalFailed => "the hold could not be renewed yet",
            Self::Lost => "the hold is lost",
            Self::LeaveFailed => "the server did not confirm the release",
            Self::Deaf => "the server lost this node's subscription",
        }
    }
}

/// Which warnings of a node or a quorum are logged, and how many are left out.
#[derive(Debug)]
pub(super) struct WarningPace {
    node: NodeId,
    primary: Option<usize>,
    runtime: Handle,
    periods: [Arc<Mutex<Period>>; Warning::ALL.len()],
}

/// The warnings of a kind since the first of the present period.
#[derive(Debug, Default)]
struct Period {
    /// When the period began; `None` before the first warning.
    began: Option<Instant>,
    warnings: u64,
}

/// What to do with a warning.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Log,
    /// Leave the warning out, as the first in this period, whose end is given.
    BeginToLeaveOut(Instant),
    LeaveOut,
}

impl Period {
    /// Counts a warning. A period in which warnings are left out lasts until [`end`](Self::end).
    fn count(&mut self, now: Instant) -> Verdict {
        let is_over = |began: Instant| now.duration_since(began) >= PERIOD;
        let began = match self.began {
            Some(began) if self.warnings > LOGGED || !is_over(began) => began,
            _ => {
                self.warnings = 0;
                *self.began.insert(now)
            }
        };
        self.warnings += 1;
        match self.warnings - 1 {
            ..LOGGED => Verdict::Log,
            LOGGED => Verdict::BeginToLeaveOut(began + PERIOD),
            _ => Verdict::LeaveOut,
        }
    }

    /// Ends the period. Returns the number of warnings that were left out.
    fn end(&mut self) -> u64 {
        std::mem::take(self).warnings.saturating_sub(LOGGED)
    }
}

fn locked(period: &Mutex<Period>) -> MutexGuard<'_, Period> {
    period.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WarningPace {
    pub(super) fn new(node: NodeId, primary: Option<usize>, runtime: &Handle) -> Self {
        let periods = Warning::ALL.map(|_| Arc::default());
        Self { node, primary, runtime: runtime.clone(), periods }
    }

    /// Counts a warning. Returns true if it is to be logged. Logs at the end of the period how many
    /// were left out.
    pub(super) fn admits(&self, warning: Warning) -> bool {
        let period = &self.periods[warning as usize];
        let verdict = locked(period).count(Instant::now());
        if let Verdict::BeginToLeaveOut(end) = verdict {
            let (node, primary, period) = (self.node.clone(), self.primary, Arc::clone(period));
            self.runtime.spawn(async move {
                tokio::time::sleep_until(end).await;
                let left_out = locked(&period).end();
                let warning = warning.text();
                foreign::log(|| {
                    warn!(
                        %node, primary, warning, left_out, within = ?PERIOD,
                        "many warnings of a kind: the others were left out"
                    );
                });
            });
        }
        verdict == Verdict::Log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_that_leaves_nothing_out_is_followed_by_the_next() {
        let (mut period, start) = (Period::default(), Instant::now());
        for second in 0..100 {
            assert_eq!(period.count(start + Duration::from_secs(second)), Verdict::Log, "{second}");
        }
    }

    #[test]
    fn what_is_left_out_is_counted_until_its_period_is_ended() {
        let (mut period, start) = (Period::default(), Instant::now());
        for _ in 0..LOGGED {
            assert_eq!(period.count(start), Verdict::Log);
        }
        let late = start + 2 * PERIOD;
        assert_eq!(period.count(start), Verdict::BeginToLeaveOut(start + PERIOD));
        assert_eq!(period.count(late), Verdict::LeaveOut, "the end is not counted twice");
        assert_eq!(period.end(), 2);
        assert_eq!(period.count(late), Verdict::Log);
    }
}
