//! What handles, futures and guards have of a node: the node ends after the last of them is dropped
//! and every hold is released.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;

use super::driver::{Driver, Inbox, Settings};
use super::{background, flight};
use crate::member::NodeId;
use crate::store::Store;

/// A node that runs.
#[derive(Debug)]
pub(crate) struct Node(Arc<Driver>);

impl Node {
    /// Starts the background tasks on `runtime`. `inbox` is what the store was told to talk to.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        id: NodeId,
        settings: Settings,
        runtime: Handle,
        inbox: &Inbox,
    ) -> Arc<Self> {
        let links = (store.commands(), store.subscription());
        let driver = Arc::new(Driver::new(store, id, settings, runtime.clone()));
        inbox.open(&driver);
        runtime.spawn(background::run(Arc::clone(&driver), links));
        runtime.spawn(flight::adopt(Arc::downgrade(&driver)));
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
        self.0.is_abandoned.store(true, Ordering::Release);
        self.0.wake.notify_one();
        self.0.flights.stop();
    }
}
