//! The timers of callers: their time passes whatever polls them, even if the node's own runtime is
//! not driven.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

use super::clock::later;
use super::driver::Driver;
use super::flight::Request;
use super::timer::Timer;
use crate::error::{LockError, LockErrorKind, StoreError};
use crate::store::protocol::Answer;

/// How long a caller waits for an answer after the store's own time-outs, which come first if its
/// runtime runs.
const GRACE: Duration = Duration::from_millis(100);

/// Whether the node's runtime polls: then it is driven, and the time-outs of requests come in time.
pub(crate) fn is_driven(driver: &Driver) -> bool {
    Handle::try_current().is_ok_and(|polling| polling.id() == driver.runtime.id())
}

/// Wakes the task that polls it at its time.
#[pin_project(project = Projected)]
#[derive(Debug)]
pub(crate) enum Alarm {
    /// The node's runtime polls.
    Driven(#[pin] Sleep),
    Other(Timer),
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.project() {
            Projected::Driven(sleep) => sleep.poll(cx),
            Projected::Other(timer) => Pin::new(timer).poll(cx),
        }
    }
}

/// One that goes off at `at`.
pub(crate) fn alarm(driver: &Driver, at: Instant) -> Alarm {
    if is_driven(driver) {
        return Alarm::Driven(tokio::time::sleep_until(at));
    }
    let left = at.saturating_duration_since(Instant::now());
    Alarm::Other(Timer::new(std::time::Instant::now() + left))
}

/// A request with the time that its caller gives it.
#[derive(Debug)]
pub(crate) struct Bounded {
    driver: Arc<Driver>,
    request: Request,
    at: Instant,
    alarm: Option<Pin<Box<Alarm>>>,
}

impl Bounded {
    /// Twice the request timeout: a request may first wait for the connection.
    pub(crate) fn new(driver: &Arc<Driver>, request: Request) -> Self {
        let at = later(Instant::now(), 2 * driver.settings.request_timeout + GRACE);
        Self { driver: Arc::clone(driver), request, at, alarm: None }
    }
}

impl Future for Bounded {
    type Output = Result<Answer, LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.request).poll(cx) {
            return Poll::Ready(match answer {
                Some(answer) => answer.map_err(|error| self.driver.error(error)),
                None => Err(self.driver.closed()),
            });
        }
        if is_driven(&self.driver) {
            return Poll::Pending;
        }
        let Self { driver, at, alarm: slot, .. } = &mut *self;
        let alarm = slot.get_or_insert_with(|| Box::pin(alarm(driver, *at)));
        alarm
            .as_mut()
            .poll(cx)
            .map(|()| Err(LockError::with_detail(LockErrorKind::Unavailable, SILENT)))
    }
}

const SILENT: &str = "no answer in time: does the runtime of this Locks run?";

impl Driver {
    /// Whether the store answers.
    pub(crate) async fn ping(self: &Arc<Self>) -> Result<(), LockError> {
        if self.has_ended() {
            return Err(self.closed());
        }
        let store = Arc::clone(&self.store);
        let mut task = self.runtime.spawn(async move { store.ping().await });
        let at = later(Instant::now(), 2 * self.settings.request_timeout + GRACE);
        let mut alarm = pin!(alarm(self, at));
        let answer = poll_fn(|cx| match Pin::new(&mut task).poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => alarm.as_mut().poll(cx).map(|()| None),
        });
        match answer.await {
            Some(Ok(answer)) => answer.map_err(|error| self.error(error)),
            Some(Err(_)) => Err(self.closed()),
            None => Err(LockError::with_detail(LockErrorKind::Unavailable, SILENT)),
        }
    }

    /// An error of the store as the caller sees it.
    pub(crate) fn error(&self, error: StoreError) -> LockError {
        if error.kind == LockErrorKind::Closed && self.has_ended() {
            return self.closed();
        }
        error.into()
    }
}
