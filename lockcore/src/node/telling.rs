//! When a node tells operators in which process it runs: while it holds or waits, beside all that
//! it does then, and never as a part of it.
//!
//! # Implementation notes
//!
//! - A node that holds or waits is due each second at the latest: see [`background`](super). So a
//!   hold that lasts is told, and one of some milliseconds costs no request of its own.
//! - The answer changes nothing. One that fails is repeated when the next is due, twice before the
//!   store forgets the last one.

use std::time::Duration;

use proto::node::{Core, Moment};

use super::driver::Driver;
use super::hold_cell::HoldCell;

/// The time from the start of a node to the first: a process that locks once and ends tells
/// nothing.
const FIRST: Duration = Duration::from_secs(1);

/// The time from one to the next.
const EVERY: Duration = Duration::from_secs(20);

/// The moment at which it is due.
pub(super) struct Telling(Moment);

impl Telling {
    pub(super) fn new(driver: &Driver) -> Self {
        Self(driver.clock.now() + FIRST)
    }

    /// Tells it if it is due, and anything is held or waited for.
    pub(super) fn look(&mut self, driver: &Driver) {
        let now = driver.clock.now();
        if now < self.0 || !driver.look(is_in_use) {
            return;
        }
        self.0 = now + EVERY;
        driver.store.tell_process().give(&driver.runtime, drop);
    }
}

fn is_in_use(core: &Core<HoldCell>) -> bool {
    let counts = core.counts();
    counts.attempts + counts.holds > 0
}
