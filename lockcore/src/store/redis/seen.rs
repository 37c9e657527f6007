//! `Seen`: the latest time that this node has seen on a server. Every script gets it, and no new
//! token is below it: after a failover the new primary may neither know the last tokens nor have a
//! clock that has passed them.
//!
//! A read shares a token that was issued before. So the scripts of permits also get the latest time
//! of the servers before the present one, and share no token that is not above it: such a token may
//! be below that of a write which the failover lost.
//!
//! Deadlines and leases are by the server's own clock alone. Were they held up with the tokens,
//! time would stand still for as long as that clock is behind, and a waiter that died would keep
//! its place.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::store::protocol::permits;
use crate::store::{Each, Inspection, Reply};

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
        times.latest = times.latest.max(now_us);
        // An answer may be read after the next server was found.
        if server < times.server {
            times.elsewhere = times.elsewhere.max(now_us);
        }
    }

    /// The latest one.
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

/// An answer, which tells the time.
pub(crate) trait Dated {
    /// The server's time, µs since the epoch; 0 if it was not told.
    fn now_us(&self) -> u64;
}

impl<T> Dated for Reply<T> {
    fn now_us(&self) -> u64 {
        self.now_us
    }
}

/// One script has answered them all.
impl<T> Dated for Each<T> {
    fn now_us(&self) -> u64 {
        let of = |one: &Result<Reply<T>, StoreError>| one.as_ref().map_or(0, |reply| reply.now_us);
        self.iter().map(of).max().unwrap_or(0)
    }
}

impl Dated for Inspection {
    fn now_us(&self) -> u64 {
        self.now_us
    }
}

impl Dated for permits::Answer {
    fn now_us(&self) -> u64 {
        let told = match self {
            Self::Acquired(reply) => reply.now_us,
            Self::Released(reply) => reply.now_us,
            Self::Renewed(reply) => reply.now_us,
            Self::Touched(reply) => reply.now_us,
            Self::Left(reply) => reply.now_us,
            Self::Inspected(inspection) => Some(inspection.now_us),
        };
        told.unwrap_or(0)
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
