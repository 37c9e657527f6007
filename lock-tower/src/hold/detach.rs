//! Work that goes on under its locks although its request is dropped.

use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinError;

use crate::config::OnLost;
use crate::hold::handle::LockHandle;
use crate::hold::holds::Holds;
use crate::hold::loss::Loss;
use crate::refusal::LockError;

/// One more keeper of a hold, beside its layer. The lock is released with the last keeper, or when
/// the handler releases it early. Until then handles see it.
#[derive(Debug)]
struct Keep(LockHandle);

impl Drop for Keep {
    fn drop(&mut self) {
        drop(self.0.held().let_go());
    }
}

/// Keepers of several holds.
pub(crate) struct Keeps(Vec<Keep>);

impl Keeps {
    /// # Errors
    /// `Lost` if one of them has ended. Then none is kept.
    pub(crate) fn of(handles: impl Iterator<Item = LockHandle>) -> Result<Self, LockError> {
        let keeps = handles.map(|handle| handle.held().keep().map(|()| Keep(handle.clone())));
        keeps.collect::<Result<_, _>>().map(Self)
    }

    /// Those of a request, but for the holds that count no longer.
    pub(crate) fn all_of(holds: &Arc<Holds>) -> Result<Self, LockError> {
        Self::of(LockHandle::all(holds).filter(|handle| handle.held().counts()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is detached, with the holds that it keeps.
pub(crate) struct Kept<F> {
    /// Dropped first.
    future: F,
    keeps: Keeps,
}

impl<F> Kept<F> {
    pub(crate) fn new(future: F, keeps: Keeps) -> Self {
        Self { future, keeps }
    }
}

impl<F: Future> Kept<F> {
    /// None if it was stopped: a hold is lost whose layer says so.
    pub(crate) async fn finish(self) -> Option<F::Output> {
        let Self { future, keeps } = self;
        let stopping = keeps.0.iter().map(|keep| &keep.0);
        let stopping = stopping.filter(|handle| handle.held().on_lost == OnLost::Stop).cloned();
        tokio::select! {
            biased;
            () = Loss::new(stopping) => None,
            output = future => Some(output),
        }
    }
}

/// Runs `future` in a task of its own, under what is kept.
pub(crate) async fn detach<F>(future: F, keeps: Keeps) -> Result<F::Output, LockError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match ended(tokio::spawn(Kept::new(future, keeps).finish()).await) {
        Some(output) => output.ok_or_else(LockError::lost),
        None => std::future::pending().await, // the runtime is ending, and this future with it
    }
}

/// What the task returned; `None` if the runtime ended it.
pub(crate) fn ended<T>(task: Result<T, JoinError>) -> Option<T> {
    match task {
        Ok(output) => Some(output),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

impl LockHandle {
    /// Finishes `future` even if the client disconnects. It runs in a task of its own, under this
    /// lock and those that the request took before it.
    ///
    /// `DetachLayer` does so for whole handlers. This is for the part of a handler that must not be
    /// done by halves. Before it, the handler can still be dropped.
    /// [`Locks::shutdown`](lockcore::Locks::shutdown) waits for it.
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
    /// [`Lost`](lockcore::LockErrorKind::Lost) if the hold ended. If it ended before, `future` is
    /// not begun. If it ends meanwhile, `future` is dropped where it stands, unless the layer says
    /// [`Continue`](OnLost::Continue).
    ///
    /// # Panics
    /// With the panic of `future`; outside a tokio runtime.
    ///
    /// # Cancel safety
    /// Once polled, `future` runs to its end even if this is dropped.
    pub async fn detach<F>(&self, future: F) -> Result<F::Output, LockError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let before = self.before().filter(|handle| handle.held().counts());
        detach(future, Keeps::of(std::iter::once(self.clone()).chain(before))?).await
    }
}
