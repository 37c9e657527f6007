//! Timeouts for callers. Their timers run on the runtime that polls the caller's future, because
//! the node's own runtime may not be running.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use proto::node::StoreRequest;
use proto::{Answer, Command, Link, LockErrorKind, LockName, Released, StoreError};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, Sleep, sleep_until};

use super::clock::later;
use super::driver::Driver;
use crate::foreign;
use crate::operate::inspection::LockInspection;
use crate::types::error::LockError;

/// How long a caller waits beyond the store's own timeouts. If the node's runtime is running, the
/// store's error arrives within this time, and the caller receives that error.
const GRACE: Duration = Duration::from_millis(100);

const OUTSIDE: &str =
    "futures of lockcore must be polled inside a tokio runtime with timers enabled";

/// Returns the current runtime, which polls the caller's future.
///
/// # Panics
/// Outside a tokio runtime.
fn polling() -> Handle {
    Handle::try_current().unwrap_or_else(|_| panic!("{OUTSIDE}"))
}

/// Creates a timer on the current runtime. Call this before a request is sent: if it panics, no
/// request is left behind.
///
/// # Panics
/// Outside a tokio runtime; tokio also panics in a runtime without timers.
pub(crate) fn timer(at: Instant) -> Sleep {
    let _ = polling();
    sleep_until(at)
}

/// Creates a timer like [`timer`], unless the current runtime is `own`, whose tasks wake the future
/// in time. On another runtime, these tasks may be blocked or not run at all.
///
/// # Panics
/// As [`timer`].
pub(crate) fn timer_outside(own: &Handle, at: impl FnOnce() -> Instant) -> Option<Sleep> {
    let is_own = Handle::try_current().is_ok_and(|polling| polling.id() == own.id());
    (!is_own).then(|| timer(at()))
}

/// The future of the answer to a request. It fails after a timeout.
#[derive(Debug)]
pub(crate) struct TimedRequest {
    driver: Arc<Driver>,
    request: oneshot::Receiver<Result<Answer, StoreError>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl TimedRequest {
    /// Sends the request immediately, and returns the future of the answer.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`timer`].
    pub(crate) fn send(driver: &Arc<Driver>, store_request: StoreRequest) -> Self {
        let timer = driver.timer_elsewhere();
        let (answer, request) = oneshot::channel();
        // If the receiver was dropped, the caller is gone.
        let wake = |result| foreign::call("a waker", || drop(answer.send(result)));
        driver.send_then(store_request, wake);
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

/// Returns the error for a request that got no response in time.
pub(crate) fn silent() -> LockError {
    let detail = "no response in time: is the runtime of this Locks running?";
    LockError::with_detail(LockErrorKind::Unavailable, detail)
}

impl Driver {
    /// Returns the longest time that a caller waits for a response. The request timeout is included
    /// twice, because a request may first have to wait for the connection.
    pub(crate) fn longest_answer(&self) -> Duration {
        2 * self.settings.request_timeout + GRACE
    }

    /// Returns when a caller stops waiting for the response to a request sent now.
    fn answer_deadline(&self) -> Instant {
        later(Instant::now(), self.longest_answer())
    }

    /// Creates the timer that ends the wait for the response to a request sent now. Returns `None`
    /// on the node's own runtime, because the store's timeouts fire there.
    pub(crate) fn timer_elsewhere(&self) -> Option<Pin<Box<Sleep>>> {
        timer_outside(&self.runtime, || self.answer_deadline()).map(Box::pin)
    }

    /// Sends a command that belongs to no attempt or hold of this node, such as an inspection, and
    /// returns the answer.
    pub(crate) async fn run_command(
        self: &Arc<Self>,
        lock: LockName,
        command: Command,
    ) -> Result<Answer, LockError> {
        if self.has_ended() {
            return Err(self.closed());
        }
        let sent = self.clock.now();
        let store_request = self.read(|core| core.untracked_request(lock, command, sent));
        TimedRequest::send(self, store_request).await
    }

    /// Releases all holds on a lock, in whichever process they are. Returns true if the lock was
    /// held.
    pub(crate) async fn force_release(self: &Arc<Self>, lock: LockName) -> Result<bool, LockError> {
        match self.run_command(lock, Command::ForceRelease { member: None }).await? {
            Answer::Released(reply) => Ok(reply.outcome == Released::Released),
            _ => Err(LockError::new(LockErrorKind::Protocol)),
        }
    }

    /// Reads a lock's holders and waiters. `command` is a [`Command::Inspect`].
    pub(crate) async fn inspect(
        self: &Arc<Self>,
        lock: LockName,
        command: Command,
    ) -> Result<LockInspection, LockError> {
        match self.run_command(lock, command).await? {
            Answer::Inspected(inspection) => Ok(LockInspection::new(inspection)),
            _ => Err(LockError::new(LockErrorKind::Protocol)),
        }
    }

    /// Checks that the store responds.
    pub(crate) async fn ping(self: &Arc<Self>) -> Result<(), LockError> {
        let store = Arc::clone(&self.store);
        self.in_time(async move { store.ping().await }).await
    }

    /// Runs a request to the store on the node's runtime. Fails if no result arrives before the
    /// caller's timeout.
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

    /// Converts a store error to an error for the caller. If the store is unreachable because the
    /// server refuses the login, the error becomes [`Denied`](LockErrorKind::Denied).
    pub(crate) fn error(&self, error: StoreError) -> LockError {
        if error.kind == LockErrorKind::Closed && self.has_ended() {
            return self.closed();
        }
        let store = &self.store;
        // Waiters wait until such an outage ends; a caller that receives the error must fix the
        // login.
        // Each borrow ends before the next, because both may be of the same channel: a second
        // borrow waits for a writer that waits for the end of the first.
        let is_denied = |link: watch::Receiver<Link>| {
            let link = link.borrow();
            link.is_denied()
        };
        if error.kind == LockErrorKind::Unavailable
            && (is_denied(store.commands()) || is_denied(store.subscription()))
        {
            return LockError::of_store(StoreError { kind: LockErrorKind::Denied, ..error })
                .of_outage();
        }
        LockError::of_store(error)
    }
}
