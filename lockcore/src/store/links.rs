//! Watches a store's connections.

use proto::Link;
use tokio::sync::watch;

use super::Store;

/// A store's connections, for commands and for grants.
pub(crate) struct Links {
    commands: watch::Receiver<Link>,
    subscription: watch::Receiver<Link>,
}

impl Links {
    pub(crate) fn of(store: &dyn Store) -> Self {
        Self { commands: store.commands(), subscription: store.subscription() }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.commands.borrow().is_up() && self.subscription.borrow().is_up()
    }

    /// Completes when a connection's state changes.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            biased;
            Ok(()) = self.commands.changed() => {}
            Ok(()) = self.subscription.changed() => {}
            // The store has been dropped.
            else => std::future::pending().await,
        }
    }

    pub(crate) async fn until(&mut self, is_up: bool) {
        while self.is_up() != is_up {
            self.changed().await;
        }
    }
}
