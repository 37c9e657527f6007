//! Detects waiters that hand-offs skip for longer than a dead process would explain, because their
//! node is not connected.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long waiters must have been skipped before a warning is logged. A waiter is skipped if its
/// node is not connected when the lock is granted. A dead process stays in queues for half this
/// time only, so it alone causes no warning.
const WARN_AFTER: Duration = Duration::from_secs(30);

/// Detects that waiters are skipped for long. Contains the current series of hand-offs, grants to
/// the next waiter, that skipped others, over all locks of a node; `None` before the first such
/// hand-off.
#[derive(Debug, Default)]
pub(crate) struct UnreachableWaiters(Mutex<Option<Streak>>);

/// A series of hand-offs that skipped waiters, without a pause longer than [`WARN_AFTER`].
#[derive(Debug)]
struct Streak {
    since: Instant,
    last: Instant,
    warned: Option<Instant>,
}

impl UnreachableWaiters {
    /// Records a hand-off, a grant to the next waiter, that skipped waiters whose nodes are not
    /// connected. If a warning is due, returns how long hand-offs have skipped waiters, without a
    /// pause longer than [`WARN_AFTER`]; otherwise `None`. At most one warning is due per
    /// [`WARN_AFTER`].
    pub(crate) fn note(&self, now: Instant) -> Option<Duration> {
        let mut streak = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let current = streak.get_or_insert(Streak { since: now, last: now, warned: None });
        if now - current.last > WARN_AFTER {
            *current = Streak { since: now, last: now, warned: None };
        }
        current.last = now;
        let is_due = current.warned.is_none_or(|warned| now - warned >= WARN_AFTER);
        let lasted = now - current.since;
        (lasted >= WARN_AFTER && is_due).then(|| {
            current.warned = Some(now);
            lasted
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned_at(seconds: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let waiters = UnreachableWaiters::default();
        let start = Instant::now();
        let at = |second: &u64| waiters.note(start + Duration::from_secs(*second)).is_some();
        seconds.into_iter().filter(at).collect()
    }

    #[test]
    fn what_goes_on_is_warned_of_once_a_period() {
        assert_eq!(warned_at((0..=100).step_by(5)), [30, 60, 90]);
    }

    #[test]
    fn processes_that_die_now_and_then_are_no_reason() {
        let dying = (0..10).flat_map(|minute| (0..16).map(move |second| minute * 60 + second));
        assert_eq!(warned_at(dying), Vec::<u64>::new());
    }
}
