//! `View`: which primaries are reachable and count, and `Leads`: at which primary to queue first.

use std::collections::HashMap;

use proto::LockName;
use tokio::time::Instant;

/// The *lead* of each lock that has one: the index of the primary at which this process queues
/// first, in place of the lowest reachable primary. A primary becomes the lead when this process
/// finds a crowd of waiters there, as when other processes cannot reach a lower primary. Then all
/// requests wait in a single queue.
pub(super) type Leads = HashMap<LockName, usize>;

/// The maximum number of locks with a lead. Once it is reached, setting a lead removes all others.
pub(super) const MOST_LEADS: usize = 1_000;

/// The primaries that are reachable and count towards a majority, and whether they are enough for a
/// guard.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The server number of each primary, in list order; `None` if the primary is unreachable or
    /// does not count towards a majority. After a restart or a loss of data, a primary has another
    /// number.
    pub(super) servers: Vec<Option<u64>>,
    /// The number of primaries a new guard needs: a majority plus `spare`.
    pub(super) wanted: usize,
    /// Since when fewer than `wanted` primaries are reachable; `None` while enough are.
    pub(super) lacking: Option<Instant>,
    /// True after a shutdown, or once the runtime has ended: acquisitions then fail with `Closed`.
    pub(super) is_closed: bool,
}

impl View {
    pub(super) fn new(n: usize, wanted: usize) -> Self {
        let lacking = Some(Instant::now());
        Self { servers: vec![None; n], wanted, lacking, is_closed: false }
    }

    /// Sets the server number of the primary at index `at`; `None` if it is unreachable or does not
    /// count towards a majority.
    pub(super) fn set(&mut self, at: usize, server: Option<u64>) {
        self.servers[at] = server;
        self.lacking = match self.reached() >= self.wanted {
            true => None,
            false => self.lacking.or_else(|| Some(Instant::now())),
        };
    }

    pub(super) fn reached(&self) -> usize {
        self.servers.iter().flatten().count()
    }
}
