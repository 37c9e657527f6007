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

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proto::node::Ask;
use proto::{Answer, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::driver::Driver;
use super::foreign;
use crate::store::StoreFuture;

/// A request that is not done after this time is finished by a task: its future may not be polled
/// any more, and the answer may concern others.
const TAKE_OVER_AFTER: Duration = Duration::from_millis(50);

/// The answer of the store.
type StoreAnswer = Result<Answer, StoreError>;

/// A command that the store runs.
type StoreCall = StoreFuture<Answer>;

/// A call, shared by its future and the task that may take it over.
type SharedCall = Mutex<CallState>;

/// The way of a request to its answer.
enum CallState {
    /// Polled by the one that wants the answer, and the waker to be called if a task takes it over.
    Polled(StoreCall, Ask, Option<Waker>),
    /// Finished by a task, which wakes this one.
    TakenOver(Option<Waker>),
    /// Nothing if the runtime ended before the request did.
    Done(Option<StoreAnswer>),
    /// The answer was taken, or is not wanted.
    Over,
}

fn lock(shared: &SharedCall) -> MutexGuard<'_, CallState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request and the right to its answer. Dropping it leaves the request to a task. The one that
/// finishes it feeds the answer to the node.
pub(crate) struct InFlight {
    shared: Arc<SharedCall>,
    driver: Arc<Driver>,
}

impl Future for InFlight {
    /// Nothing if the runtime ended before the request did.
    type Output = Option<StoreAnswer>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StoreAnswer>> {
        let mut state = lock(&self.shared);
        let answer = match &mut *state {
            // Its timers would panic.
            CallState::Polled(..) if self.driver.has_ended() => None,
            CallState::Polled(calling, _, waker) => {
                // Its timers belong to the node's runtime, whatever task polls.
                let runtime = &self.driver.runtime;
                let _in_runtime = (!self.driver.is_own_runtime()).then(|| runtime.enter());
                match Pin::new(calling).poll(cx) {
                    Poll::Ready(answer) => Some(answer),
                    Poll::Pending => {
                        remember(waker, cx.waker());
                        return Poll::Pending;
                    }
                }
            }
            CallState::TakenOver(waker) => {
                remember(waker, cx.waker());
                return Poll::Pending;
            }
            CallState::Done(answer) => {
                let answer = answer.take();
                *state = CallState::Over;
                return Poll::Ready(answer);
            }
            CallState::Over => panic!("a request is not polled after it is ready"),
        };
        let before = mem::replace(&mut *state, CallState::Over);
        // The lines that follow may run foreign code.
        drop(state);
        if let (CallState::Polled(_, ask, _), Some(answer)) = (&before, &answer) {
            self.driver.answered([(ask, answer)]);
        }
        Poll::Ready(answer)
    }
}

impl Driver {
    /// Sends a request for the one that polls for its answer.
    pub(crate) fn send(self: &Arc<Self>, ask: Ask) -> InFlight {
        // A store in memory runs the command before this returns, and may call back.
        match self.store.run(&ask.lock, &ask.command) {
            StoreFuture::Ready(Some(answer)) => {
                self.answered([(&ask, &answer)]);
                InFlight::done(Arc::clone(self), answer)
            }
            calling => InFlight {
                shared: self.recent_requests.add(calling, ask),
                driver: Arc::clone(self),
            },
        }
    }
}

impl InFlight {
    /// A request that is done before it is polled.
    fn done(driver: Arc<Driver>, answer: StoreAnswer) -> Self {
        Self { shared: Arc::new(Mutex::new(CallState::Done(Some(answer)))), driver }
    }

    /// Polls it once, which sends it: no other is to wait for its owner to do so.
    pub(crate) fn send(&mut self) {
        let polled = Pin::new(&mut *self).poll(&mut Context::from_waker(Waker::noop()));
        if let Poll::Ready(answer) = polled {
            *lock(&self.shared) = CallState::Done(answer);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        take_over(&self.shared, &self.driver);
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InFlight")
    }
}

fn remember(last: &mut Option<Waker>, waker: &Waker) {
    match last {
        Some(last) => last.clone_from(waker),
        None => *last = Some(waker.clone()),
    }
}

/// Leaves the request to a task, unless it is done or one has it already.
fn take_over(shared: &Arc<SharedCall>, driver: &Arc<Driver>) {
    let mut state = lock(shared);
    let CallState::Polled(_, _, waker) = &mut *state else { return };
    let waker = waker.take();
    let before = mem::replace(&mut *state, CallState::TakenOver(waker.clone()));
    drop(state);
    let CallState::Polled(calling, ask, _) = before else { return };
    let end = EndOfTask { shared: Arc::clone(shared), answer: None };
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
struct EndOfTask {
    shared: Arc<SharedCall>,
    answer: Option<StoreAnswer>,
}

impl Drop for EndOfTask {
    fn drop(&mut self) {
        let done = CallState::Done(self.answer.take());
        let before = mem::replace(&mut *lock(&self.shared), done);
        if let CallState::TakenOver(Some(waker)) = before {
            foreign::call("a waker", || waker.wake());
        }
    }
}

/// The requests that were sent lately, oldest first.
pub(super) struct RecentRequests {
    recent: Mutex<VecDeque<(Instant, Weak<SharedCall>)>>,
    /// Notified when the list becomes non-empty.
    wake: Notify,
}

impl RecentRequests {
    pub(super) fn new() -> Self {
        Self { recent: Mutex::new(VecDeque::new()), wake: Notify::new() }
    }

    /// Takes charge of a request.
    fn add(&self, calling: StoreCall, ask: Ask) -> Arc<SharedCall> {
        let shared = Arc::new(Mutex::new(CallState::Polled(calling, ask, None)));
        let mut recent = self.recent();
        // Most are over in the order in which they were sent. Without them the next ones use the
        // same memory again, which the processor still has at hand.
        while recent.front().is_some_and(|(_, shared)| shared.strong_count() == 0) {
            recent.pop_front();
        }
        let was_idle = recent.is_empty();
        recent.push_back((Instant::now(), Arc::downgrade(&shared)));
        drop(recent);
        if was_idle {
            self.wake.notify_one();
        }
        shared
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<(Instant, Weak<SharedCall>)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests that were sent before `limit`, and whether any are left.
    fn overdue(&self, limit: Instant) -> (Vec<Arc<SharedCall>>, bool) {
        let mut recent = self.recent();
        let mut overdue = Vec::new();
        while recent.front().is_some_and(|(sent, _)| *sent <= limit) {
            overdue.extend(recent.pop_front().and_then(|(_, shared)| shared.upgrade()));
        }
        (overdue, !recent.is_empty())
    }
}

/// Takes over requests that are not polled. Ends with the background task, which owns it.
pub(super) async fn take_over_unpolled(driver: Arc<Driver>) {
    let recent = &driver.recent_requests;
    loop {
        recent.wake.notified().await;
        loop {
            tokio::time::sleep(TAKE_OVER_AFTER).await;
            let (overdue, is_more) = recent.overdue(Instant::now() - TAKE_OVER_AFTER);
            for shared in overdue {
                take_over(&shared, &driver);
            }
            if !is_more {
                break;
            }
        }
    }
}
