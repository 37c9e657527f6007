//! `Watcher`: a tool that subscribes to everything, like an APM agent or a graphical client.

use std::fmt;

use redis::Client;
use redis::aio::PubSub;

/// Subscribes to every channel until dropped. `PUBLISH` counts it as a receiver of each message.
pub struct Watcher {
    _subscription: PubSub,
}

impl Watcher {
    /// Starts a watcher, whose subscription is active when this returns.
    ///
    /// # Panics
    ///
    /// If the server at `url` cannot be reached.
    pub async fn start(url: &str) -> Self {
        let client = Client::open(url).expect("the URL of a test is well formed");
        let mut subscription = client.get_async_pubsub().await.expect("the server accepts it");
        subscription.psubscribe("*").await.expect("the server takes the pattern");
        Self { _subscription: subscription }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}
