//! `Seen`: the latest time that this node has seen on a server. Every script gets it, and no new
//! token is below it: after a failover the new primary may neither know the last tokens nor have a
//! clock that has passed them.
//!
//! A read shares a token that was issued before. So the scripts of permits also get the latest time
//! of the servers before the present one, and share no token that is not above it: such a token may
//! be below that of a write which the failover lost.
//!
//! A clock may have been wrong by years. Its times would raise the tokens of every lock of this
//! process, and the keys that remember them would stay for those years. So a time that is more than
//! a day ahead of two later answers is forgotten.
//!
//! Deadlines and leases are by the server's own clock alone. Were they held up with the tokens,
//! time would stand still for as long as that clock is behind, and a waiter that died would keep
//! its place.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

/// A day in µs. Clocks that are kept at all differ by less.
const WRONG_BY: u64 = 24 * 60 * 60 * 1_000_000;

/// Microseconds since the epoch.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    latest: u64,
    /// The latest one of the servers before the present one.
    elsewhere: u64,
    /// The number of the present server.
    server: u64,
    /// Whether the answer before was a day behind the latest time.
    was_behind: bool,
}

impl Seen {
    /// The latest time, and the latest time of the servers before this one.
    pub(crate) fn by(&self, server: u64) -> (u64, u64) {
        let mut times = self.times();
        if server > times.server {
            (times.elsewhere, times.server) = (times.latest, server);
        }
        (times.latest, times.elsewhere)
    }

    /// Remembers a time of the server with this number, if none later is known.
    pub(crate) fn note(&self, now_us: u64, server: u64) {
        let mut times = self.times();
        let is_behind = now_us.saturating_add(WRONG_BY) < times.latest;
        if is_behind && times.was_behind {
            warn!(
                wrong_us = times.latest,
                now_us,
                "a server's clock was more than a day ahead: its time is forgotten, and tokens go by \
                 the present clock"
            );
            (times.latest, times.elsewhere) = (now_us, times.elsewhere.min(now_us));
        }
        times.was_behind = is_behind && times.latest > now_us;
        times.latest = times.latest.max(now_us);
        // An answer may be read after the next server was found.
        if server < times.server {
            times.elsewhere = times.elsewhere.max(now_us);
        }
    }

    /// The latest one, for tests.
    #[cfg(any(test, feature = "unstable-internals"))]
    pub fn get(&self) -> u64 {
        self.times().latest
    }

    /// Puts another in its place, for tests.
    #[cfg(feature = "unstable-internals")]
    pub fn set(&self, now_us: u64) {
        self.times().latest = now_us;
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_falls() {
        let seen = Seen::default();
        for (noted, latest) in [(0, 0), (7, 7), (3, 7), (0, 7), (8, 8)] {
            seen.note(noted, 0);
            assert_eq!(seen.get(), latest);
        }
    }

    // L9: a clock that was years ahead raised all tokens of the process until its end.
    #[test]
    fn a_time_that_two_later_answers_contradict_by_a_day_is_forgotten() {
        let (now, years) = (1_795_000_000_000_000, 4_000_000_000_000_000);
        let seen = Seen::default();
        seen.note(now, 0);
        seen.note(years, 0);
        assert_eq!(seen.by(1), (years, years));
        seen.note(now + 1, 1);
        assert_eq!(seen.get(), years, "one answer may itself be wrong");
        seen.note(now + 2, 1);
        assert_eq!(seen.by(1), (now + 2, now + 2));
        seen.note(now + 1, 1);
        assert_eq!(seen.get(), now + 2, "as before");
    }

    #[test]
    fn a_clock_that_is_less_than_a_day_behind_changes_nothing() {
        let seen = Seen::default();
        seen.note(2 * WRONG_BY, 0);
        for _ in 0..9 {
            seen.note(WRONG_BY, 1);
        }
        assert_eq!(seen.get(), 2 * WRONG_BY);
        // Two that are too far behind, but not one after the other.
        for now in [WRONG_BY - 1, 2 * WRONG_BY, WRONG_BY - 1] {
            seen.note(now, 1);
        }
        assert_eq!(seen.get(), 2 * WRONG_BY);
    }

    #[test]
    fn times_of_earlier_servers_are_elsewhere() {
        let seen = Seen::default();
        seen.note(5, 0);
        assert_eq!(seen.by(0), (5, 0));
        assert_eq!(seen.by(1), (5, 5));
        seen.note(9, 1);
        assert_eq!(seen.by(1), (9, 5));
        // An answer of the first server that is read late.
        seen.note(7, 0);
        assert_eq!(seen.by(1), (9, 7));
        assert_eq!(seen.by(2), (9, 9));
    }
}
