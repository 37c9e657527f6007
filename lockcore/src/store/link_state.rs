//! The state of one connection, with the moment at which it broke.

use std::sync::{Arc, Mutex, PoisonError};

use proto::Link;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Outage;

/// The state of one connection; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct LinkState(Arc<State>);

#[derive(Debug)]
struct State {
    link: watch::Sender<Link>,
    /// The moment at which it broke; nothing while it is up.
    down: Mutex<Option<Instant>>,
}

impl LinkState {
    /// A connection that stands.
    pub(crate) fn up() -> Self {
        Self(Arc::new(State { link: watch::Sender::new(Link::Up), down: Mutex::new(None) }))
    }

    pub(crate) fn set(&self, link: Link) {
        let mut down = self.0.down.lock().unwrap_or_else(PoisonError::into_inner);
        *down = if link.is_up() { None } else { down.or_else(|| Some(Instant::now())) };
        drop(down);
        self.0.link.send_replace(link);
    }

    /// Tells all watchers to look again, although the state stays as it is.
    pub(crate) fn touch(&self) {
        self.0.link.send_modify(|_| {});
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Link> {
        self.0.link.subscribe()
    }

    /// The outage, while it is down.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let since = (*self.0.down.lock().unwrap_or_else(PoisonError::into_inner))?;
        let error = self.0.link.borrow().why_down()?;
        Some(Outage { since, error })
    }

    /// The error of a command that cannot be sent meanwhile.
    pub(crate) fn why_down(&self) -> Option<proto::StoreError> {
        self.0.link.borrow().why_down()
    }
}
