//! Requests on their way: polled by the future that wants the answer, run to their end whatever becomes of it.
//!
//! A task of its own for each request would be simpler, but every request would then wake one task more on its way
//! out and one more on its way back.

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
    /// Polled by whoever wants the answer, and who is to be told if a task takes it over.
    Here(Pin<Box<dyn Future<Output = T> + Send>>, Option<Waker>),
    /// Finished by a task, which wakes this one.
    TakenOver(Option<Waker>),
    Done(Option<T>),
    /// The answer was taken, or nobody wants it.
    Over,
}

impl<T: Send + 'static> Future for Request<T> {
    /// Nothing if the runtime ended before the request did.
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        // Its timers belong to the engine's runtime, whoever polls.
        let _in_runtime = self.runtime.enter();
        let mut state = lock(&self.shared);
        match &mut *state {
            State::Here(request, waker) => match request.as_mut().poll(cx) {
                Poll::Ready(answer) => {
                    *state = State::Over;
                    Poll::Ready(Some(answer))
                }
                Poll::Pending => {
                    remember(waker, cx.waker());
                    Poll::Pending
                }
            },
            State::TakenOver(waker) => {
                remember(waker, cx.waker());
                Poll::Pending
            }
            State::Done(answer) => {
                let answer = answer.take();
                *state = State::Over;
                Poll::Ready(answer)
            }
            State::Over => panic!("a request is not polled after it is ready"),
        }
    }
}

impl<T: Send + 'static> Request<T> {
    /// Whether it is up to the owner to poll it; otherwise a task does, or it is done.
    pub(crate) fn is_here(&self) -> bool {
        matches!(*lock(&self.shared), State::Here(..))
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

fn remember(last: &mut Option<Waker>, waker: &Waker) {
    match last {
        Some(last) => last.clone_from(waker),
        None => *last = Some(waker.clone()),
    }
}

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, State<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves the request to a task, unless it is done or one has it already.
fn take_over<T: Send + 'static>(shared: &Arc<Shared<T>>, runtime: &Handle) {
    let mut state = lock(shared);
    let State::Here(_, waker) = &mut *state else {
        return;
    };
    let waker = waker.take();
    if let Some(waker) = &waker {
        // From now on there is something else to wait for, too; see `Request::is_here`.
        waker.wake_by_ref();
    }
    let State::Here(request, _) = mem::replace(&mut *state, State::TakenOver(waker)) else {
        return;
    };
    drop(state);
    let end = End { shared: Arc::clone(shared), answer: None };
    runtime.spawn(async move {
        let mut end = end;
        end.answer = Some(request.await);
        drop(end);
    });
}

/// Tells whoever waits, also when the runtime drops the task before its end.
struct End<T> {
    shared: Arc<Shared<T>>,
    answer: Option<T>,
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        let done = State::Done(self.answer.take());
        let before = mem::replace(&mut *lock(&self.shared), done);
        if let State::TakenOver(Some(waker)) = before {
            waker.wake();
        }
    }
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
        let shared: Arc<Shared<T>> = Arc::new(Mutex::new(State::Here(Box::pin(request), None)));
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
            let Some(strong) = engine.upgrade() else {
                return;
            };
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
        assert_eq!(request.await, Some(7));
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
        assert_eq!(request.await, Some(7));
    }

    #[tokio::test]
    async fn a_future_that_waits_is_woken_although_a_task_took_its_request_over() {
        let in_flight = InFlight::new();
        let (answer, asked) = oneshot::channel();
        let request =
            in_flight.add(async { asked.await.expect("it is answered") }, &Handle::current());
        let waiting = tokio::spawn(request);
        tokio::task::yield_now().await; // polled once, and not again until it is woken
        assert!(!in_flight.take_over(Instant::now(), &Handle::current()));
        tokio::task::yield_now().await;
        answer.send(7).expect("the task waits");
        let woken = tokio::time::timeout(Duration::from_secs(5), waiting).await;
        assert_eq!(woken.expect("it is woken").expect("no panic"), Some(7));
    }

    #[test]
    fn a_request_whose_runtime_ended_has_no_answer() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (in_flight, doomed) = (InFlight::new(), runtime());
        let request = in_flight.add(std::future::pending::<u8>(), doomed.handle());
        assert!(!in_flight.take_over(Instant::now(), doomed.handle()));
        drop(doomed);
        assert_eq!(runtime().block_on(request), None);
    }
}
