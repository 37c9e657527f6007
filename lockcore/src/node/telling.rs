//! When a node records, for operators, in which process it runs: while it holds or waits. No
//! request waits for this.
//!
//! # Implementation notes
//!
//! - The task of a node that holds or waits wakes at least each second: see [`background`](super).
//!   So a hold of a few milliseconds costs no additional request.
//! - The response changes nothing. After a failed request the next is due as usual; the store
//!   forgets a node only after the third.

use std::time::Duration;

use futures_util::FutureExt as _;
use proto::node::{Core, Moment};

use super::driver::Driver;
use super::hold_cell::HoldCell;
use crate::store::begin;

/// The time from the node's start to the first request. A process that locks once and ends sends no
/// request.
const FIRST: Duration = Duration::from_secs(1);

/// The interval of requests.
const EVERY: Duration = Duration::from_secs(20);

/// When the next request is due.
pub(super) struct Telling(Moment);

impl Telling {
    pub(super) fn new(driver: &Driver) -> Self {
        Self(driver.clock.now() + FIRST)
    }

    /// Sends the request if it is due and anything is held or waiting.
    pub(super) fn look(&mut self, driver: &Driver) {
        let now = driver.clock.now();
        if now < self.0 || !driver.look(is_in_use) {
            return;
        }
        self.0 = now + EVERY;
        begin(&driver.runtime, Box::pin(driver.store.tell_process().map(drop)));
    }
}

fn is_in_use(core: &Core<HoldCell>) -> bool {
    let counts = core.counts();
    counts.attempts + counts.holds > 0
}
