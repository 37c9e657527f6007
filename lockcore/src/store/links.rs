//! Waits until a store's connection states change.

use proto::Link;
use tokio::sync::watch;

use super::Store;

/// The states of a store's two connections: for commands, and for messages such as grants.
pub(crate) struct Links {
    commands: watch::Receiver<Link>,
    subscription: watch::Receiver<Link>,
    /// The states of single servers of a Redis Cluster.
    servers: watch::Receiver<()>,
}

impl Links {
    pub(crate) fn of(store: &dyn Store) -> Self {
        let (commands, subscription) = (store.commands(), store.subscription());
        Self { commands, subscription, servers: store.server_links() }
    }

    /// Returns true if both connections are up.
    pub(crate) fn is_up(&self) -> bool {
        self.commands.borrow().is_up() && self.subscription.borrow().is_up()
    }

    /// Waits until the state of a connection changes, or of a connection to one of several servers.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            biased;
            Ok(()) = self.commands.changed() => {}
            Ok(()) = self.subscription.changed() => {}
            Ok(()) = self.servers.changed() => {}
            // The store has been dropped.
            else => std::future::pending().await,
        }
    }

    /// Waits until both connections are up. If `is_up` is false, waits until one of them is down.
    pub(crate) async fn until(&mut self, is_up: bool) {
        while self.is_up() != is_up {
            self.changed().await;
        }
    }
}
