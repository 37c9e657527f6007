//! The sort order of locks: busiest first.

use std::cmp::Reverse;
use std::time::Duration;

use clap::ValueEnum;
use lockcore::operate::{BusyLock, Participant};

/// The measure by which `lockctl top` sorts locks, the highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// The longest queue
    Queue,
    /// The oldest wait
    Wait,
    /// The oldest holder
    Holder,
}

impl Order {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Queue => Self::Wait,
            Self::Wait => Self::Holder,
            Self::Holder => Self::Queue,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Queue => "longest queue",
            Self::Wait => "oldest wait",
            Self::Holder => "oldest holder",
        }
    }

    pub(super) fn sort(self, locks: &mut [BusyLock]) {
        locks.sort_by_cached_key(|lock| {
            let found = &lock.inspection;
            let [wait, holder] = [&found.waiters, &found.holders].map(|of| age(of.first()));
            let name = lock.lock.clone();
            Reverse(match self {
                Self::Queue => (u128::from(found.waiting), wait, Reverse(name)),
                Self::Wait => (wait.as_nanos(), Duration::ZERO, Reverse(name)),
                Self::Holder => (holder.as_nanos(), Duration::ZERO, Reverse(name)),
            })
        });
    }
}

fn age(participant: Option<&Participant>) -> Duration {
    participant.and_then(|participant| participant.age).unwrap_or_default()
}
