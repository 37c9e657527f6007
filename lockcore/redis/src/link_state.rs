//! A connection's state, and when it broke.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{ClientError, ClientErrorKind};

/// Receives each state change of a connection: the error that broke the connection or that the last
/// connection attempt failed with; `None` while connected.
pub(crate) type Tell = Box<dyn Fn(Option<&ClientError>) + Send + Sync>;

/// A period in which a server cannot reply.
#[derive(Debug, Clone)]
pub struct Outage {
    /// When the outage began.
    pub since: Instant,
    /// The error of requests during the outage.
    pub error: ClientError,
}

/// A connection's state, shared by all clones.
#[derive(Clone)]
pub(crate) struct LinkState(Arc<State>);

struct State {
    /// The error that broke the connection; `None` while connected.
    down: watch::Sender<Option<ClientError>>,
    changed: Mutex<Changed>,
    tell: Tell,
}

/// When the state last changed.
#[derive(Debug, Clone, Copy)]
struct Changed {
    /// When the connection was last established.
    up: Instant,
    /// When the connection broke; `None` while connected.
    down: Option<Instant>,
}

impl LinkState {
    /// Creates the state for an open connection.
    pub(crate) fn up(tell: Tell) -> Self {
        let changed = Mutex::new(Changed { up: Instant::now(), down: None });
        Self(Arc::new(State { down: watch::Sender::new(None), changed, tell }))
    }

    pub(crate) fn set_up(&self) {
        self.set(None);
    }

    /// Sets the state to disconnected, with this error.
    pub(crate) fn broke(&self, error: &ClientError) {
        self.set(Some(ClientError { may_have_run: false, ..error.clone() }));
    }

    /// Sets the state to disconnected, for a reason other than a server error.
    pub(crate) fn end(&self, reason: impl Into<Arc<str>>) {
        self.set(Some(ClientError::refused(ClientErrorKind::Unavailable, reason)));
    }

    fn set(&self, down: Option<ClientError>) {
        let now = Instant::now();
        let mut changed = self.changed();
        match (&down, changed.down) {
            (None, Some(_)) => *changed = Changed { up: now, down: None },
            (Some(_), None) => changed.down = Some(now),
            _ => {}
        }
        // Under the mutex: all watchers see changes in the same order.
        (self.0.tell)(down.as_ref());
        self.0.down.send_replace(down);
    }

    /// Publishes the state again, to wake the watchers.
    pub(crate) fn touch(&self) {
        let _changed = self.changed();
        (self.0.tell)(self.0.down.borrow().as_ref());
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0.down.borrow().is_none()
    }

    /// Completes when connected.
    pub(crate) async fn until_up(&self) {
        // Never closed: this type owns the sender.
        let _ = self.0.down.subscribe().wait_for(Option::is_none).await;
    }

    /// Returns the outage, while disconnected.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let since = self.changed().down?;
        let error = self.why_down()?;
        Some(Outage { since, error })
    }

    /// Returns when the connection was last established.
    pub(crate) fn up_since(&self) -> Instant {
        self.changed().up
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.0.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error of commands that cannot be sent during an outage. A lasting error, such as
    /// a replaced password, becomes `Unavailable`: the next connection may be accepted.
    pub(crate) fn why_down(&self) -> Option<ClientError> {
        let mut why = self.0.down.borrow().clone()?;
        if why.kind != ClientErrorKind::ReadOnly {
            why.kind = ClientErrorKind::Unavailable;
        }
        Some(why)
    }
}
