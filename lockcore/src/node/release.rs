//! The future returned by a release on a single node.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use proto::{Answer, Left, LockErrorKind, Released, StoreError};
use tokio::task::coop::poll_proceed;
use tokio::time::Sleep;

use super::{Driver, HoldCell, silent};
use crate::types::error::LockError;

/// A release's future. The release proceeds even if the future is not polled.
pub(crate) enum NodeRelease {
    Done(Option<Result<(), LockError>>),
    Running(RunningRelease),
}

impl NodeRelease {
    /// Creates the future of a release that is already complete.
    pub(super) fn done(outcome: Result<(), LockError>) -> Self {
        Self::Done(Some(outcome))
    }

    pub(super) fn running(driver: Arc<Driver>, shared: HoldCell) -> Self {
        let (is_polled, timer) = (false, None);
        Self::Running(RunningRelease { driver, shared, is_polled, timer })
    }
}

impl Future for NodeRelease {
    type Output = Result<(), LockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // It may be ready at the first poll, but this task must still yield to other tasks.
        let budget = ready!(poll_proceed(cx));
        let polled = match &mut *self {
            Self::Done(outcome) => {
                Poll::Ready(outcome.take().expect("the Release was polled after completion"))
            }
            Self::Running(running) => running.poll(cx),
        };
        if polled.is_ready() {
            budget.made_progress();
        }
        polled
    }
}

impl fmt::Debug for NodeRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done(_) => "done",
            Self::Running(_) => "running",
        })
    }
}

/// A future for the outcome of a release that has been sent. The outcome is the reply to the
/// release request. If other waiters of this process share the hold in a batch, the hold passes to
/// them without a request, and the outcome is the reply to a later request for the batch.
pub(crate) struct RunningRelease {
    driver: Arc<Driver>,
    shared: HoldCell,
    is_polled: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Drop for RunningRelease {
    fn drop(&mut self) {
        self.shared.forget_caller();
    }
}

impl RunningRelease {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LockError>> {
        let Self { driver, shared, is_polled, timer } = self;
        // Creates the timer at the first poll in any case, so that a poll outside a runtime always
        // panics, and not only if the reply is late.
        if timer.is_none() && (!*is_polled || shared.outcome().is_none()) {
            *timer = driver.timer_elsewhere();
        }
        *is_polled = true;
        // Before the check, so that a later outcome wakes this task.
        shared.caller.register(cx.waker());
        match shared.outcome() {
            Some(Ok(outcome)) => Poll::Ready(ended(shared, *outcome == Released::Released)),
            // The release continues in the background.
            Some(Err(error)) if !shared.was_lost() => Poll::Ready(Err(driver.error(error.clone()))),
            Some(Err(_)) => Poll::Ready(ended(shared, false)),
            None if driver.has_ended() => Poll::Ready(Err(driver.closed())),
            None => match timer {
                Some(timer) => timer.as_mut().poll(cx).map(|()| Err(silent())),
                None => Poll::Pending,
            },
        }
    }
}

/// Stores the outcome of a release in the hold's cell, where the release's future finds it. If
/// dropped without a response, stores an error, because the runtime has ended.
pub(super) struct Returning(pub(super) HoldCell);

impl Returning {
    pub(super) fn complete(&self, answer: Result<Answer, StoreError>) {
        self.0.set_returned(answer.and_then(|answer| match answer {
            Answer::Released(reply) => Ok(reply.outcome),
            Answer::Left(reply) if reply.outcome.contains(&Left::Left) => Ok(Released::Released),
            Answer::Left(_) => Ok(Released::NotHeld),
            _ => Err(StoreError::refused(LockErrorKind::Protocol, "a reply to another request")),
        }));
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        // The runtime ended before the request completed.
        if self.0.outcome().is_none() {
            let ended = StoreError::refused(LockErrorKind::Closed, "the runtime has ended");
            self.0.set_returned(Err(ended));
        }
    }
}

/// Returns the result of a release for the caller. This is an error of kind
/// [`Lost`](LockErrorKind::Lost) if the server no longer had the hold, or the node has reported the
/// hold as lost.
fn ended(shared: &HoldCell, was_held: bool) -> Result<(), LockError> {
    if was_held && !shared.was_lost() {
        return Ok(());
    }
    shared.notify_lost();
    Err(LockError::new(LockErrorKind::Lost))
}
