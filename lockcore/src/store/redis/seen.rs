//! `Seen`: the latest time that this node has seen on a server. Every script gets it, and no token
//! is below it: after a failover the new primary may neither know the last tokens nor have a clock
//! that has passed them.
//!
//! Deadlines and leases are by the server's own clock alone. Were they held up with the tokens,
//! time would stand still for as long as that clock is behind, and a waiter that died would keep
//! its place.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::StoreError;
use crate::store::protocol::permits;
use crate::store::{Each, Inspection, Reply};

/// Microseconds since the epoch.
#[derive(Debug, Default)]
pub struct Seen(AtomicU64);

impl Seen {
    /// Remembers a time, if none later is known.
    pub(crate) fn note(&self, now_us: u64) {
        self.0.fetch_max(now_us, Ordering::Relaxed);
    }

    /// The latest one.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Puts another in its place, for tests.
    #[cfg(feature = "unstable-internals")]
    pub fn set(&self, now_us: u64) {
        self.0.store(now_us, Ordering::Relaxed);
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
            seen.note(noted);
            assert_eq!(seen.get(), latest);
        }
    }
}
