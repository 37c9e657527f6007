//! The background task of a node, which sends renewals, touches and retries when they are due.
//!
//! # Implementation notes
//!
//! - Each node has one such task. It sleeps until the next timer, but for a second at most, because
//!   timers stop while the machine is suspended and leases do not. Without a timer, it sleeps until
//!   it is woken.
//! - It records the node's process for operators: see [`ProcessRecording`].
//! - It also sets the gauges, and wakes once a second while any gauge is not zero.
//! - A tick changes a bounded number of attempts and holds, and sends all requests before the next
//!   tick sends any. If there is more to do, the task yields first, so that callers can lock the
//!   mutex.
//! - The task ends, and closes the store, once no handle is left and every hold is released. If the
//!   runtime drops the task earlier, the drop ends all attempts, because no reply can arrive any
//!   more, and closes the store.

use std::sync::Arc;
use std::time::Duration;

use proto::node::Moment;

use super::clock::until;
use super::driver::Driver;
#[cfg(feature = "metrics")]
use super::observe::gauges::Gauges;
use super::process_recording::ProcessRecording;
use crate::store::Links;

/// The longest time that the background task sleeps while a timer is pending. Timers stop while the
/// machine is suspended, and the task can notice a suspension only when it runs.
const LONGEST: Duration = Duration::from_secs(1);

/// A node, owned by the background task. If the runtime drops the task early, the drop of this
/// value ends all attempts, because no reply can arrive any more.
struct RunningNode {
    driver: Option<Arc<Driver>>,
    #[cfg(feature = "metrics")]
    gauges: Gauges,
}

impl RunningNode {
    /// Updates the node's gauges if an update is due. Returns when the next update is due, or
    /// `None` if all gauges are zero or the feature `metrics` is off.
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
        }
        // At the end of the runtime, too: an in-memory store does not notice it by itself, and
        // would go on to grant locks to this node.
        driver.store.close();
        #[cfg(feature = "metrics")]
        self.gauges.end(&driver);
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        self.end(true);
    }
}

/// Returns the future of the background task. It runs until all handles are dropped and all holds
/// are released.
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
    let mut recording = ProcessRecording::new(&driver);
    loop {
        let (is_more, next) = driver.tick(LONGEST, was_woken);
        if is_more {
            // Let callers lock the mutex in between.
            tokio::task::yield_now().await;
            continue;
        }
        if driver.is_over() {
            break;
        }
        recording.record_if_due(&driver);
        let next = [next, running.sample()].into_iter().flatten().min();
        tokio::select! {
            () = driver.wake.notified() => was_woken = true,
            () = until(next.map(|next| driver.clock.instant(next))) => was_woken = false,
            () = links.changed() => {}
        }
    }
    running.end(false);
}
