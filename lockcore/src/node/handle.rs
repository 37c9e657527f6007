//! The node as held by handles, futures and guards. It ends after the last of them is dropped and
//! every hold is released.

use std::ops::Deref;
use std::sync::Arc;

use proto::NodeId;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::background;
use super::deadline::timer;
use super::driver::{Driver, Inbox};
use super::settings::Settings;
use crate::store::{Links, Store};

/// A running node. Handles, futures and guards hold it in an [`Arc`]; after the last of them is
/// dropped, the background task can end.
#[derive(Debug)]
pub(crate) struct Node(Arc<Driver>);

impl Node {
    /// Starts a node, and its background task on `runtime`, the current runtime. `store` must have
    /// been created with `inbox` as its listener.
    ///
    /// # Panics
    /// In a runtime without timers.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        id: NodeId,
        settings: Settings,
        runtime: Handle,
        inbox: &Inbox,
    ) -> Arc<Self> {
        // Otherwise the background task would panic, and each call would say that its runtime has
        // ended.
        drop(timer(Instant::now()));
        let links = Links::of(&*store);
        let driver = Arc::new(Driver::new(store, id, settings, runtime.clone()));
        inbox.open(&driver);
        runtime.spawn(background::run(Arc::clone(&driver), links));
        Arc::new(Self(driver))
    }
}

impl Deref for Node {
    type Target = Arc<Driver>;

    fn deref(&self) -> &Arc<Driver> {
        &self.0
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::api::locks::Locks;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_holds_a_node_whose_last_handle_and_last_guard_are_gone() {
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        for round in 0..20 {
            let locks = Locks::in_memory();
            let driver = Arc::downgrade(&locks.backend.node().0);
            let guard = locks.lock("key").await.expect("free");
            match round % 2 {
                0 => drop((guard, locks)),
                _ => drop((locks, guard)),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!((driver.strong_count(), tasks()), (0, before), "round {round}");
        }
    }
}
