//! Requests on their way: polled by the future that wants the answer, run to their end whatever becomes of it.
//!
//! A task of its own for each request would be simpler, and costs half of an uncontended lock's time.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::engine::Engine;

/// A request that is not done after this time is finished by a task: its future may not be polled
/// any more, and the answer may concern others.
const PATIENCE: Duration = Duration::from_millis(50);

/// A request and the right to its answer. Dropping it leaves the request to a task.
pub(crate) struct Request<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    runtime: Handle,
}

type Shared<T> = Mutex<State<T>>;

enum State<T> {
    /// Polled by whoever wants the answer.
    Here(Pin<Box<dyn Future<Output = T> + Send>>),
    /// Finished by a task, which wakes this one.
    TakenOver(Option<Waker>),
    Done(T),
    /// The answer was taken, or nobody wants it.
    Over,
}

impl<T: Send + 'static> Future for Request<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = lock(&self.shared);
        match &mut *state {
            State::Here(request) => {
                let answer = std::task::ready!(request.as_mut().poll(cx));
                *state = State::Over;
                Poll::Ready(answer)
            }
            State::TakenOver(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            State::Done(_) => match mem::replace(&mut *state, State::Over) {
                State::Done(answer) => Poll::Ready(answer),
                _ => Poll::Pending,
            },
            State::Over => panic!("a request is not polled after it is ready"),
        }
    }
}

impl<T: Send + 'static> Drop for Request<T> {
    fn drop(&mut self) {
        take_over(&self.shared, &self.runtime);
    }
}

impl<T: Send + 'static> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Request")
    }
}

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, State<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves the request to a task, unless it is done or one has it already.
fn take_over<T: Send + 'static>(shared: &Arc<Shared<T>>, runtime: &Handle) {
    let mut state = lock(shared);
    if !matches!(*state, State::Here(_)) {
        return;
    }
    let State::Here(request) = mem::replace(&mut *state, State::TakenOver(None)) else { return };
    drop(state);
    let shared = Arc::clone(shared);
    runtime.spawn(async move {
        let answer = request.await;
        if let State::TakenOver(Some(waker)) =
            mem::replace(&mut *lock(&shared), State::Done(answer))
        {
            waker.wake();
        }
    });
}

trait TakeOver: Send + Sync {
    fn take_over(self: Arc<Self>, runtime: &Handle);
}

impl<T: Send + 'static> TakeOver for Shared<T> {
    fn take_over(self: Arc<Self>, runtime: &Handle) {
        take_over(&self, runtime);
    }
}

/// The requests that were sent lately, oldest first.
pub(crate) struct InFlight {
    recent: Mutex<VecDeque<(Instant, Weak<dyn TakeOver>)>>,
    wake: Arc<Notify>,
}

impl InFlight {
    pub(crate) fn new() -> Self {
        Self { recent: Mutex::new(VecDeque::new()), wake: Arc::new(Notify::new()) }
    }

    /// Takes charge of a request.
    pub(crate) fn add<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
        runtime: &Handle,
    ) -> Request<T> {
        let shared: Arc<Shared<T>> = Arc::new(Mutex::new(State::Here(Box::pin(request))));
        let entry: Weak<dyn TakeOver> = Arc::downgrade(&shared) as Weak<dyn TakeOver>;
        let mut recent = self.recent();
        let was_idle = recent.is_empty();
        recent.push_back((Instant::now(), entry));
        drop(recent);
        if was_idle {
            self.wake.notify_one();
        }
        Request { shared, runtime: runtime.clone() }
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<(Instant, Weak<dyn TakeOver>)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what was sent before `limit`. Returns whether anything is left.
    fn take_over(&self, limit: Instant, runtime: &Handle) -> bool {
        let mut recent = self.recent();
        while recent.front().is_some_and(|(sent, _)| *sent <= limit) {
            if let Some(request) = recent.pop_front().and_then(|(_, entry)| entry.upgrade()) {
                request.take_over(runtime);
            }
        }
        !recent.is_empty()
    }
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("recent", &self.recent().len()).finish()
    }
}

/// Runs until the engine is gone.
pub(crate) async fn run(engine: Weak<Engine>) {
    let Some(wake) = engine.upgrade().map(|engine| Arc::clone(&engine.in_flight.wake)) else {
        return;
    };
    loop {
        wake.notified().await;
        loop {
            tokio::time::sleep(PATIENCE).await;
            let Some(strong) = engine.upgrade() else { return };
            let limit = Instant::now() - PATIENCE;
            if !strong.in_flight.take_over(limit, &strong.runtime) {
                break;
            }
        }
        if engine.strong_count() == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn an_answer_goes_to_whoever_polls_the_request() {
        let in_flight = InFlight::new();
        let request = in_flight.add(async { 7 }, &Handle::current());
        assert_eq!(request.await, 7);
    }

    #[tokio::test]
    async fn a_dropped_request_runs_to_its_end() {
        let in_flight = InFlight::new();
        let (done, end) = oneshot::channel();
        let request = async move {
            tokio::task::yield_now().await;
            done.send(()).expect("the test waits");
        };
        drop(in_flight.add(request, &Handle::current()));
        end.await.expect("the request ran");
    }

    #[tokio::test]
    async fn a_request_that_is_not_polled_runs_to_its_end_and_keeps_its_answer() {
        let in_flight = InFlight::new();
        let (done, end) = oneshot::channel();
        let request = in_flight.add(
            async move {
                done.send(()).expect("the test waits");
                7
            },
            &Handle::current(),
        );
        assert!(!in_flight.take_over(Instant::now(), &Handle::current()));
        end.await.expect("the request ran");
        assert_eq!(request.await, 7);
    }
}
