//! Caller deadlines, on the runtime that polls: the node's own runtime may not be driven.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use proto::node::Ask;
use proto::{Answer, Command, LockErrorKind, LockName, Released, StoreError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::clock::later;
use super::driver::Driver;
use crate::operate::inspection::LockInspection;
use crate::types::error::LockError;

/// How long a caller waits for a response after the store's timeouts, which fire first if the
/// node's runtime runs.
const GRACE: Duration = Duration::from_millis(100);

const OUTSIDE: &str =
    "futures of lockcore must be polled inside a tokio runtime with timers enabled";

/// Returns the runtime that polls.
///
/// # Panics
/// Outside a tokio runtime.
fn polling() -> Handle {
    Handle::try_current().unwrap_or_else(|_| panic!("{OUTSIDE}"))
}

/// Returns a timer that wakes the polling task. Created before anything is sent, so that a panic
/// leaves nothing behind.
///
/// # Panics
/// Outside a tokio runtime; tokio also panics in a runtime without timers.
pub(crate) fn timer(at: Instant) -> Sleep {
    let _ = polling();
    sleep_until(at)
}

/// A request with a timeout for the caller.
#[derive(Debug)]
pub(crate) struct TimedRequest {
    driver: Arc<Driver>,
    request: oneshot::Receiver<Result<Answer, StoreError>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedRequest {
    /// Sends a request for the polling caller.
    ///
    /// # Panics
    /// As [`timer`].
    pub(crate) fn ask(driver: &Arc<Driver>, ask: Ask) -> Self {
        let timer = driver.timer_elsewhere();
        let (answer, request) = oneshot::channel();
        // If the receiver was dropped, the caller is gone.
        driver.send_then(ask, |told| drop(answer.send(told)));
        Self { driver: Arc::clone(driver), request, timer }
    }
}

impl Future for TimedRequest {
    type Output = Result<Answer, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { driver, request, timer } = &mut *self;
        if let Poll::Ready(answer) = Pin::new(request).poll(cx) {
            return Poll::Ready(match answer {
                Ok(answer) => answer.map_err(|error| driver.error(error)),
                // The runtime ended before the request completed.
                Err(_) => Err(driver.closed()),
            });
        }
        let Some(timer) = timer else { return Poll::Pending };
        timer.as_mut().poll(cx).map(|()| Err(silent()))
    }
}

/// Returns the error for a request without a response.
pub(crate) fn silent() -> LockError {
    let detail = "no response in time: is the runtime of this Locks running?";
    LockError::with_detail(LockErrorKind::Unavailable, detail)
}

impl Driver {
    /// Returns the longest time a caller waits for a response. Twice the request timeout: a request
    /// may first wait for the connection.
    pub(crate) fn longest_answer(&self) -> Duration {
        2 * self.settings.request_timeout + GRACE
    }

    /// Returns when a caller stops waiting for the response to a request sent now.
    fn answer_deadline(&self) -> Instant {
        later(Instant::now(), self.longest_answer())
    }

    /// Whether the node's own runtime polls.
    pub(crate) fn is_own_runtime(&self) -> bool {
        Handle::try_current().is_ok_and(|polling| polling.id() == self.runtime.id())
    }

    /// Returns a timer for the response to a request sent now, if another runtime than the node's
    /// polls. On the node's own runtime, the store's timeouts fire first.
    pub(crate) fn timer_elsewhere(&self) -> Option<Pin<Box<Sleep>>> {
        (!self.is_own_runtime()).then(|| Box::pin(timer(self.answer_deadline())))
    }

    /// Runs a command for a caller.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        lock: LockName,
        command: Command,
    ) -> Result<Answer, LockError> {
        if self.has_ended() {
            return Err(self.closed());
        }
        let sent = self.clock.now();
        let ask = self.look(|core| core.aside(lock, command, sent));
        TimedRequest::ask(self, ask).await
    }

    /// Releases all holds under a name. Returns whether there was any.
    pub(crate) async fn force_release(self: &Arc<Self>, lock: LockName) -> Result<bool, LockError> {
        match self.ask(lock, Command::ForceRelease { member: None }).await? {
            Answer::Released(reply) => Ok(reply.outcome == Released::Released),
            _ => Err(LockError::new(LockErrorKind::Protocol)),
        }
    }

    /// Inspects a name.
    pub(crate) async fn inspect(
        self: &Arc<Self>,
        lock: LockName,
        command: Command,
    ) -> Result<LockInspection, LockError> {
        match self.ask(lock, command).await? {
            Answer::Inspected(inspection) => Ok(LockInspection::new(inspection)),
            _ => Err(LockError::new(LockErrorKind::Protocol)),
        }
    }

    /// Checks that the store responds.
    pub(crate) async fn ping(self: &Arc<Self>) -> Result<(), LockError> {
        let store = Arc::clone(&self.store);
        self.in_time(async move { store.ping().await }).await
    }

    /// Runs a store request without the core.
    pub(crate) async fn in_time<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, LockError> {
        if self.has_ended() {
            return Err(self.closed());
        }
        let timer = timer(self.answer_deadline());
        let task = self.runtime.spawn(request);
        tokio::select! {
            biased;
            answer = task => match answer {
                Ok(answer) => answer.map_err(|error| self.error(error)),
                Err(_) => Err(self.closed()),
            },
            () = timer => Err(silent()),
        }
    }

    /// Converts a store error for the caller.
    pub(crate) fn error(&self, error: StoreError) -> LockError {
        if error.kind == LockErrorKind::Closed && self.has_ended() {
            return self.closed();
        }
        let store = &self.store;
        // Waiters wait until such an outage ends; a caller that receives the error must fix the
        // login.
        let is_denied =
            || store.commands().borrow().is_denied() || store.subscription().borrow().is_denied();
        if error.kind == LockErrorKind::Unavailable && is_denied() {
            return LockError::of_store(StoreError { kind: LockErrorKind::Denied, ..error })
                .of_outage();
        }
        LockError::of_store(error)
    }
}
