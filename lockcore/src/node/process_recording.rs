//! Records on the server, for operators, in which process a node runs, while the node holds or
//! waits. No request waits for this.
//!
//! # Implementation notes
//!
//! - The background task wakes at least each second while the node holds or waits. So a hold of a
//!   few milliseconds costs no additional request.
//! - The response changes nothing. After a failed request, the next request is sent at the usual
//!   time; the store forgets a node only after three failures.

use std::time::Duration;

use futures_util::FutureExt as _;
use proto::node::{Core, Moment};

use super::driver::Driver;
use super::hold_cell::HoldCell;
use crate::store::begin;

/// Time from the node's start until its process is first recorded. A process that locks once and
/// ends is not recorded, and sends no request for it.
const FIRST: Duration = Duration::from_secs(1);

/// Time between two recordings of the process.
const EVERY: Duration = Duration::from_secs(20);

/// Writes the node's host and process id to the server every 20 seconds, while the node holds or
/// waits. Operators can look them up there by the node id. Contains the moment at which the next
/// recording is due.
pub(super) struct ProcessRecording(Moment);

impl ProcessRecording {
    pub(super) fn new(driver: &Driver) -> Self {
        Self(driver.clock.now() + FIRST)
    }

    /// Records the node's process if the moment for the next recording has come, and the node holds
    /// a lock or waits for one. Called by the background task each time it wakes.
    pub(super) fn record_if_due(&mut self, driver: &Driver) {
        let now = driver.clock.now();
        if now < self.0 || !driver.read(is_in_use) {
            return;
        }
        self.0 = now + EVERY;
        begin(&driver.runtime, Box::pin(driver.store.record_process().map(drop)));
    }
}

fn is_in_use(core: &Core<HoldCell>) -> bool {
    let counts = core.counts();
    counts.attempts + counts.holds > 0
}
