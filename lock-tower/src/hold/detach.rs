//! Detached work: it continues under its locks after the request is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::config::OnLost;
use crate::hold::handle::LockHandle;
use crate::hold::loss::Loss;
use crate::hold::registry::HoldRegistry;
use crate::refusal::LockError;

/// Keeps a lock held for detached work: a future in a separate task, which may outlive the request.
/// The lock is released once the layer and all keepers have let go of it, or when the handler
/// releases it early.
#[derive(Debug)]
struct Keeper(LockHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.held().remove_keeper());
    }
}

/// The keepers of all locks under which detached work runs: one for each lock.
pub(crate) struct Keepers(Vec<Keeper>);

impl Keepers {
    /// Keeps the lock of each handle held until the returned value is dropped.
    ///
    /// # Errors
    /// `Lost` if one of these locks was lost or released. Then no lock is kept.
    pub(crate) fn of(handles: impl Iterator<Item = LockHandle>) -> Result<Self, LockError> {
        let keepers =
            handles.map(|handle| handle.held().add_keeper().map(|()| Keeper(handle.clone())));
        keepers.collect::<Result<_, _>>().map(Self)
    }

    /// Keeps all locks of the request held until the returned value is dropped. Skips locks without
    /// which the work may run: released locks, and lost locks under [`OnLost::Continue`].
    ///
    /// # Errors
    /// `Lost` if a lock under [`OnLost::Stop`] was lost. Then no lock is kept.
    pub(crate) fn all_of(holds: &Arc<HoldRegistry>) -> Result<Self, LockError> {
        Self::of(LockHandle::all(holds).filter(|handle| handle.held().allows_work()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A future to be run in a separate task, and the keepers of its locks.
pub(crate) struct Detached<F> {
    /// Declared first, so that it is dropped before the locks are released.
    future: F,
    keepers: Keepers,
}

impl<F> Detached<F> {
    pub(crate) fn new(future: F, keepers: Keepers) -> Self {
        Self { future, keepers }
    }
}

impl<F> Detached<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Starts the task that runs the future, in the current span.
    pub(crate) fn spawn(self) -> Running<F::Output> {
        let (sender, output) = oneshot::channel();
        Running { task: tokio::spawn(self.finish(sender).in_current_span()), output }
    }

    /// Runs the future to completion, and sends the output. If a lock under [`OnLost::Stop`] is
    /// lost first, drops the future and sends nothing.
    async fn finish(self, output: oneshot::Sender<F::Output>) {
        let Self { future, keepers } = self;
        let stopping = keepers.0.iter().map(|keeper| &keeper.0);
        let stopping = stopping.filter(|handle| handle.held().on_lost == OnLost::Stop).cloned();
        let finished = tokio::select! {
            biased;
            () = Loss::new(stopping) => None,
            finished = future => Some(finished),
        };
        // If nobody takes the output any more, it is dropped here, before the locks are released.
        drop(finished.map(|finished| output.send(finished)));
        drop(keepers);
    }
}

/// The task of a [`Detached`]. Returns the output once the task has let go of its locks: the layer
/// then releases them before it responds. Returns `Some(None)` if the future was stopped because a
/// lock was lost, and `None` if the runtime cancelled the task at shutdown. Resumes a panic of the
/// future.
///
/// The output is not the result of the task itself: tokio would drop that result after the keepers,
/// so a transaction in it would end beside the next holder.
pub(crate) struct Running<T> {
    task: JoinHandle<()>,
    output: oneshot::Receiver<T>,
}

impl<T> Future for Running<T> {
    type Output = Option<Option<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.task).poll(cx)) {
            Ok(()) => Some(self.output.try_recv().ok()),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => None,
            },
        })
    }
}

/// Runs `future` in a separate task under the locks of `keepers`, and returns the output. Never
/// completes if the runtime shuts down first.
///
/// # Errors
/// `Lost` if `future` was stopped because a lock was lost.
pub(crate) async fn detach<F>(future: F, keepers: Keepers) -> Result<F::Output, LockError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match Detached::new(future, keepers).spawn().await {
        Some(output) => output.ok_or_else(LockError::lost),
        None => std::future::pending().await, // the runtime is ending, and so is this future
    }
}

impl LockHandle {
    /// Runs `future` to completion even if the client disconnects, in a separate task, under this
    /// lock and the locks [before](Self::outer) it.
    ///
    /// This method is for the part of a handler that must not stop half way; before that part, the
    /// handler can still be dropped. `DetachLayer` does the same for whole handlers.
    /// [`Locks::shutdown`](lockcore::Locks::shutdown) waits for `future`.
    ///
    /// ```
    /// # async fn charge() {}
    /// # async fn mark_as_paid(token: lockcore::FencingToken) {}
    /// # async fn pay(lock: lock_tower::LockHandle) -> Result<(), lock_tower::LockError> {
    /// let token = lock.fencing_token();
    /// lock.detach(async move {
    ///     charge().await;
    ///     mark_as_paid(token).await;
    /// })
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if this lock was lost or released, or an earlier
    /// lock was lost. If that was before the call, `future` is not started. If a lock is lost
    /// during the call, `future` is dropped at the current await point, unless the layer is set to
    /// [`Continue`](OnLost::Continue).
    ///
    /// # Panics
    /// Propagates a panic of `future`. Panics outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Once polled, `future` runs to completion even if the returned future is dropped.
    pub async fn detach<F>(&self, future: F) -> Result<F::Output, LockError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let before = self.before().filter(|handle| handle.held().allows_work());
        detach(future, Keepers::of(std::iter::once(self.clone()).chain(before))?).await
    }
}
