//! The requests of the background: renewals, touches and repetitions.
//!
//! # Implementation notes
//!
//! - There is one such task for each node. It sleeps until the next thing is due, for a second at
//!   most: timers stop while the machine is suspended, and leases do not. If nothing is due, it
//!   sleeps until it is woken.
//! - It writes the node's process down for operators: see [`Telling`].
//! - It sets the gauges, too, and comes once more for those that are not zero.
//! - A tick changes a bounded number of entries, and sends all its requests before the next tick
//!   sends its own. If there is more to do, the task yields first, so that callers get the mutex.
//! - The task ends, and closes the store, once no handle of the node is left and every hold is
//!   released. If the runtime drops it before, it ends every attempt: nothing could answer them.

use std::sync::Arc;
use std::time::Duration;

use proto::node::Moment;

use super::clock::until;
use super::driver::Driver;
#[cfg(feature = "metrics")]
use super::observe::gauges::Gauges;
use super::telling::Telling;
use crate::store::Links;

/// The longest time without a look whether the machine was suspended.
const LONGEST: Duration = Duration::from_secs(1);

/// The node while the task runs. If the runtime drops the task before its end, it ends every
/// attempt: nothing could ever answer them.
struct RunningNode {
    driver: Option<Arc<Driver>>,
    #[cfg(feature = "metrics")]
    gauges: Gauges,
}

impl RunningNode {
    /// Sets the gauges. Returns the moment at which they are to be set again.
    fn sample(&mut self) -> Option<Moment> {
        #[cfg(feature = "metrics")]
        if let Some(driver) = &self.driver {
            return self.gauges.sample(driver);
        }
        None
    }

    fn end(&mut self, of_runtime: bool) {
        let Some(driver) = self.driver.take() else { return };
        if of_runtime {
            driver.end();
        } else {
            driver.store.close();
        }
        #[cfg(feature = "metrics")]
        self.gauges.end(&driver);
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// Runs until no handle of the node is left, and every hold is released.
pub(super) fn run(driver: Arc<Driver>, links: Links) -> impl Future<Output = ()> + Send {
    // Made here, and not on the first poll: the runtime may drop the task before it polls it.
    let running = RunningNode {
        driver: Some(Arc::clone(&driver)),
        #[cfg(feature = "metrics")]
        gauges: Gauges::default(),
    };
    work(driver, links, running)
}

async fn work(driver: Arc<Driver>, mut links: Links, mut running: RunningNode) {
    let mut was_woken = true;
    let mut telling = Telling::new(&driver);
    loop {
        let (is_more, next) = driver.tick(LONGEST, was_woken);
        if is_more {
            // Others want the table, too.
            tokio::task::yield_now().await;
            continue;
        }
        if driver.is_over() {
            break;
        }
        telling.look(&driver);
        let next = [next, running.sample()].into_iter().flatten().min();
        tokio::select! {
            () = driver.wake.notified() => was_woken = true,
            () = until(next.map(|next| driver.clock.instant(next))) => was_woken = false,
            () = links.changed() => {}
        }
    }
    running.end(false);
}
