//! The state of one connection, with the moment at which it broke.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{ClientError, ClientErrorKind};

/// Is told of each change of the state of a connection: the error that broke it, or that of the
/// last attempt to connect; nothing while it is up.
pub(crate) type Tell = Box<dyn Fn(Option<&ClientError>) + Send + Sync>;

/// A time in which a server cannot answer.
#[derive(Debug, Clone)]
pub struct Outage {
    /// Its beginning.
    pub since: Instant,
    /// The error of requests meanwhile.
    pub error: ClientError,
}

/// The state of one connection; clones are the same one.
#[derive(Clone)]
pub(crate) struct LinkState(Arc<State>);

struct State {
    /// The error that broke it; nothing while it is up.
    down: watch::Sender<Option<ClientError>>,
    changed: Mutex<Changed>,
    tell: Tell,
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
    pub(crate) fn up(tell: Tell) -> Self {
        let changed = Mutex::new(Changed { up: Instant::now(), down: None });
        Self(Arc::new(State { down: watch::Sender::new(None), changed, tell }))
    }

    pub(crate) fn set_up(&self) {
        self.set(None);
    }

    /// Disconnected by this error.
    pub(crate) fn broke(&self, error: &ClientError) {
        self.set(Some(ClientError { may_have_run: false, ..error.clone() }));
    }

    /// Disconnected, and no error of a server says why.
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
        // With the mutex: all are told of two changes in one order.
        (self.0.tell)(down.as_ref());
        self.0.down.send_replace(down);
    }

    /// Tells its state again: who follows it is to look.
    pub(crate) fn touch(&self) {
        let _changed = self.changed();
        (self.0.tell)(self.0.down.borrow().as_ref());
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0.down.borrow().is_none()
    }

    /// Completes when it is up.
    pub(crate) async fn until_up(&self) {
        // Never closed: the sender is ours.
        let _ = self.0.down.subscribe().wait_for(Option::is_none).await;
    }

    /// The outage, while it is down.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let since = self.changed().down?;
        let error = self.why_down()?;
        Some(Outage { since, error })
    }

    /// The moment at which it last came up.
    pub(crate) fn up_since(&self) -> Instant {
        self.changed().up
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.0.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a command that cannot be sent meanwhile. A lasting error, such as a password
    /// that was replaced, is `Unavailable`: the next connection may be accepted.
    pub(crate) fn why_down(&self) -> Option<ClientError> {
        let mut why = self.0.down.borrow().clone()?;
        if why.kind != ClientErrorKind::ReadOnly {
            why.kind = ClientErrorKind::Unavailable;
        }
        Some(why)
    }
}
