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
    changed: Mutex<Changed>,
}

/// The moments of the last changes.
#[derive(Debug, Clone, Copy)]
struct Changed {
    /// The moment at which it last came up.
    up: Instant,
    /// The moment at which it broke; nothing while it is up.
    down: Option<Instant>,
}

impl LinkState {
    /// A connection that stands.
    pub(crate) fn up() -> Self {
        let changed = Mutex::new(Changed { up: Instant::now(), down: None });
        Self(Arc::new(State { link: watch::Sender::new(Link::Up), changed }))
    }

    pub(crate) fn set(&self, link: Link) {
        let now = Instant::now();
        let mut changed = self.0.changed.lock().unwrap_or_else(PoisonError::into_inner);
        match (link.is_up(), changed.down) {
            (true, Some(_)) => *changed = Changed { up: now, down: None },
            (false, None) => changed.down = Some(now),
            _ => {}
        }
        drop(changed);
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
        let since = self.changed().down?;
        let error = self.0.link.borrow().why_down()?;
        Some(Outage { since, error })
    }

    /// The moment at which it last came up.
    pub(crate) fn up_since(&self) -> Instant {
        self.changed().up
    }

    fn changed(&self) -> Changed {
        *self.0.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a command that cannot be sent meanwhile.
    pub(crate) fn why_down(&self) -> Option<proto::StoreError> {
        self.0.link.borrow().why_down()
    }
}
