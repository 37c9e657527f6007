//! Requests on their way: polled by the future that wants the answer, run to their end, also if it
//! is dropped.
//!
//! # Implementation notes
//!
//! - A request runs to its end: its reply may carry a grant for another attempt. If its future is
//!   dropped, or does not poll it for 50 ms, a task takes it over.
//! - The answer is fed to the node exactly once, by the one of these that finishes the request: the
//!   future, the task, or the call itself if the store answers within it.
//! - No mutex is held while an answer is fed in or a waker is called: both may run foreign code.
//! - The request's timers belong to the node's runtime, so that runtime is entered for each poll.
//!   After its end the request has no answer.
//! - A task of its own for each request would be simpler, but every request would then wake one
//!   task more on its way out and one more on its way back.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proto::node::Ask;
use tokio::time::Instant;

use super::driver::Driver;
use super::flights::{Answered, Shared, State, lock};
use super::foreign;
use crate::store::StoreFuture;

/// A request that is not done after this time is finished by a task: its future may not be polled
/// any more, and the answer may concern others.
const PATIENCE: Duration = Duration::from_millis(50);

/// A request and the right to its answer. Dropping it leaves the request to a task. The one
/// that finishes it feeds the answer to the node.
pub(crate) struct Request {
    shared: Arc<Shared>,
    driver: Arc<Driver>,
}

impl Future for Request {
    /// Nothing if the runtime ended before the request did.
    type Output = Option<Answered>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Answered>> {
        let mut state = lock(&self.shared);
        let answer = match &mut *state {
            // Its timers would panic.
            State::Here(..) if self.driver.has_ended() => None,
            State::Here(calling, _, waker) => {
                // Its timers belong to the node's runtime, whatever task polls.
                let _in_runtime = self.driver.runtime.enter();
                match Pin::new(calling).poll(cx) {
                    Poll::Ready(answer) => Some(answer),
                    Poll::Pending => {
                        remember(waker, cx.waker());
                        return Poll::Pending;
                    }
                }
            }
            State::TakenOver(waker) => {
                remember(waker, cx.waker());
                return Poll::Pending;
            }
            State::Done(answer) => {
                let answer = answer.take();
                *state = State::Over;
                return Poll::Ready(answer);
            }
            State::Over => panic!("a request is not polled after it is ready"),
        };
        let flight = mem::replace(&mut *state, State::Over);
        // What follows may run what is not ours.
        drop(state);
        if let (State::Here(_, ask, _), Some(answer)) = (&flight, &answer) {
            self.driver.answered([(ask, answer)]);
        }
        Poll::Ready(answer)
    }
}

impl Driver {
    /// Sends a request for the one that polls for its answer.
    pub(crate) fn send(self: &Arc<Self>, ask: Ask) -> Request {
        // A store in memory runs the command before this returns, and may call back.
        match self.store.run(&ask.lock, &ask.command) {
            StoreFuture::Ready(Some(answer)) => {
                self.answered([(&ask, &answer)]);
                Request::done(Arc::clone(self), answer)
            }
            calling => Request { shared: self.flights.add(calling, ask), driver: Arc::clone(self) },
        }
    }
}

impl Request {
    /// One that is done before it is polled.
    fn done(driver: Arc<Driver>, answer: Answered) -> Self {
        Self { shared: Arc::new(Mutex::new(State::Done(Some(answer)))), driver }
    }

    /// Polls it once, which sends it: no other is to wait for its owner to do so.
    pub(crate) fn send(&mut self) {
        let polled = Pin::new(&mut *self).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(answer) = polled {
            *lock(&self.shared) = State::Done(answer);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        take_over(&self.shared, &self.driver);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request")
    }
}

fn remember(last: &mut Option<Waker>, waker: &Waker) {
    match last {
        Some(last) => last.clone_from(waker),
        None => *last = Some(waker.clone()),
    }
}

/// Leaves the request to a task, unless it is done or one has it already.
fn take_over(shared: &Arc<Shared>, driver: &Arc<Driver>) {
    let mut state = lock(shared);
    let State::Here(_, _, waker) = &mut *state else { return };
    let waker = waker.take();
    let flight = mem::replace(&mut *state, State::TakenOver(waker.clone()));
    drop(state);
    let State::Here(calling, ask, _) = flight else { return };
    let end = End { shared: Arc::clone(shared), answer: None };
    let driver_of_task = Arc::clone(driver);
    driver.runtime.spawn(async move {
        // As a whole, so that it is dropped with the task.
        let mut end = end;
        let answer = calling.await;
        driver_of_task.answered([(&ask, &answer)]);
        end.answer = Some(answer);
    });
    if let Some(waker) = waker {
        // It has polled the store so far, and waits for the task from now on.
        foreign::call("a waker", || waker.wake());
    }
}

/// Tells the one that waits, also when the runtime drops the task before its end.
struct End {
    shared: Arc<Shared>,
    answer: Option<Answered>,
}

impl Drop for End {
    fn drop(&mut self) {
        let done = State::Done(self.answer.take());
        let before = mem::replace(&mut *lock(&self.shared), done);
        if let State::TakenOver(Some(waker)) = before {
            foreign::call("a waker", || waker.wake());
        }
    }
}

/// Takes over requests that are not polled. Ends with the background task, which owns it.
pub(super) async fn adopt(driver: Arc<Driver>) {
    let flights = &driver.flights;
    loop {
        flights.wake.notified().await;
        loop {
            tokio::time::sleep(PATIENCE).await;
            let (overdue, is_more) = flights.overdue(Instant::now() - PATIENCE);
            for shared in overdue {
                take_over(&shared, &driver);
            }
            if !is_more {
                break;
            }
        }
    }
}
