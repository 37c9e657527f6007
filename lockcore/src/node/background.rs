//! Background requests: renewals, touches and retries.
//!
//! # Implementation notes
//!
//! - Each node has one such task. It sleeps until the next timer, for a second at most: timers stop
//!   while the machine is suspended, and leases do not. If nothing is due, it sleeps until woken.
//! - It records the node's process for operators: see [`Telling`].
//! - It also sets the gauges, and runs once more while any gauge is not zero.
//! - A tick changes a bounded number of entries, and sends all requests before the next tick sends
//!   any. If there is more to do, the task yields first, so that callers get the mutex.
//! - The task ends, and closes the store, once no handle is left and every hold is released. If the
//!   runtime drops the task earlier, it ends every attempt, because none could ever get a reply.

use std::sync::Arc;
use std::time::Duration;

use proto::node::Moment;

use super::clock::until;
use super::driver::Driver;
#[cfg(feature = "metrics")]
use super::observe::gauges::Gauges;
use super::telling::Telling;
use crate::store::Links;

/// The longest time without a check whether the machine was suspended.
const LONGEST: Duration = Duration::from_secs(1);

/// The node while the task runs. If the runtime drops the task early, every attempt is ended,
/// because none could ever get a reply.
struct RunningNode {
    driver: Option<Arc<Driver>>,
    #[cfg(feature = "metrics")]
    gauges: Gauges,
}

impl RunningNode {
    /// Sets the gauges. Returns when to set them again.
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

/// Runs until no handle is left and every hold is released.
pub(super) fn run(driver: Arc<Driver>, links: Links) -> impl Future<Output = ()> + Send {
    // Created here, and not in the first poll: the runtime may drop the task before polling it.
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
            // Let callers use the table, too.
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
