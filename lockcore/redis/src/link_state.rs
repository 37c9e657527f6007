//! Whether a connection is up or broken, since when, and why it broke.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{ClientError, ClientErrorKind};

/// A callback for each change of a connection's state. The argument is the error that broke the
/// connection or with which the last connection attempt failed; `None` while connected.
pub(crate) type OnChange = Box<dyn Fn(Option<&ClientError>) + Send + Sync>;

/// A period, not over yet, in which a server does not reply.
#[derive(Debug, Clone)]
pub struct Outage {
    /// When the outage began.
    pub since: Instant,
    /// The error to return for requests during the outage.
    pub error: ClientError,
}

/// The state of a connection: connected, or disconnected since some time because of an error. Tasks
/// can read the state, or wait until the connection is up. Clones share the state.
#[derive(Clone)]
pub(crate) struct LinkState(Arc<State>);

struct State {
    /// The error that broke the connection or with which the last connection attempt failed; `None`
    /// while connected.
    down: watch::Sender<Option<ClientError>>,
    changed: Mutex<Changed>,
    on_change: OnChange,
}

#[derive(Debug, Clone, Copy)]
struct Changed {
    /// When the connection was last established.
    up: Instant,
    /// When the connection broke; `None` while connected.
    down: Option<Instant>,
}

impl LinkState {
    /// Creates the state of an open connection. `on_change` is called at each later change.
    pub(crate) fn up(on_change: OnChange) -> Self {
        let changed = Mutex::new(Changed { up: Instant::now(), down: None });
        Self(Arc::new(State { down: watch::Sender::new(None), changed, on_change }))
    }

    /// Sets the state to connected, which wakes the tasks in [`until_up`](Self::until_up).
    pub(crate) fn set_up(&self) {
        self.set(None);
    }

    /// Sets the state to disconnected because of this error. If it is disconnected already, only
    /// the error is replaced: the outage still began with the first call.
    pub(crate) fn broke(&self, error: &ClientError) {
        self.set(Some(ClientError { may_have_run: false, ..error.clone() }));
    }

    /// Sets the state to disconnected, with a text as the reason, such as `closed`.
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
        (self.0.on_change)(down.as_ref());
        self.0.down.send_replace(down);
    }

    /// Calls `on_change` although the state has not changed. Tasks that watch the state then check
    /// again what else may have changed, such as the server's number.
    pub(crate) fn touch(&self) {
        let _changed = self.changed();
        (self.0.on_change)(self.0.down.borrow().as_ref());
    }

    pub(crate) fn is_up(&self) -> bool {
        self.0.down.borrow().is_none()
    }

    /// Returns a receiver that is notified of each change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Option<ClientError>> {
        self.0.down.subscribe()
    }

    pub(crate) async fn until_up(&self) {
        // Never closed: this type owns the sender.
        let _ = self.0.down.subscribe().wait_for(Option::is_none).await;
    }

    /// Returns when and why the connection broke, as an [`Outage`]; `None` while connected.
    pub(crate) fn outage(&self) -> Option<Outage> {
        let since = self.changed().down?;
        let error = self.why_down()?;
        Some(Outage { since, error })
    }

    /// Returns true if the connection is up, and has been since `then` at the latest.
    pub(crate) fn is_up_since(&self, then: Instant) -> bool {
        self.is_up() && self.up_since() <= then
    }

    /// Returns when the connection was last established.
    pub(crate) fn up_since(&self) -> Instant {
        self.changed().up
    }

    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.0.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for commands that cannot be sent; `None` while connected. A lasting error,
    /// such as a changed password, becomes `Unavailable`, because the next connection may succeed.
    /// `ReadOnly` is kept.
    pub(crate) fn why_down(&self) -> Option<ClientError> {
        let mut why = self.0.down.borrow().clone()?;
        if why.kind != ClientErrorKind::ReadOnly {
            why.kind = ClientErrorKind::Unavailable;
        }
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_came_back_was_not_up_before() {
        let state = LinkState::up(Box::new(|_| {}));
        let before = Instant::now();
        assert!(state.is_up_since(before));
        state.end("cut");
        assert!(!state.is_up_since(before));
        tokio::time::advance(Duration::from_secs(1)).await;
        state.set_up();
        assert!(!state.is_up_since(before) && state.is_up_since(Instant::now()));
    }
}
