//! The locks of one request that are taken on its way, by whoever has read the key by then.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::Extensions;
use lockcore::LockGuard;
use tokio::time::Instant;

use crate::answers::Answers;
use crate::claim::Claim;
use crate::config::Config;
use crate::error::LockError;
use crate::handle::LockHandle;
use crate::hold::Hold;
use crate::journal::Journal;
use crate::keep::Keep;
use crate::key::Keys;
use crate::loss::Loss;
use crate::reject::Refusals;
use crate::request_body::PollAhead;

/// Takes locks for a request behind a [`LockScopeLayer`](crate::LockScopeLayer), which keeps them until the response.
///
/// For extractors and handlers that find out what to lock: from the parameters of a route, a session, the body.
/// lock-axum's extractors are made of it.
///
/// ```
/// use http::Request;
/// use lock_tower::{Keys, LockError, LockHandle, RequestLocks};
///
/// async fn lock_cart<B>(request: &Request<B>, user: u64) -> Result<LockHandle, LockError> {
///     let locks = RequestLocks::of(request.extensions())?;
///     let mut taken = locks.lock(Keys::one(format!("cart:{user}"))).await?;
///     Ok(taken.remove(0))
/// }
/// ```
#[derive(Clone)]
pub struct RequestLocks {
    scope: Arc<Scope>,
    /// What the request has from other layers.
    outer: Option<LockHandle>,
}

/// What a request and its layer share.
pub(crate) struct Scope {
    pub(crate) config: Arc<Config>,
    pub(crate) answers: Arc<Answers>,
    /// To be read while the request waits, where that is needed.
    body: Option<Arc<dyn PollAhead>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hold: Option<Hold>,
    /// How often locks were taken.
    taken: usize,
    /// From the first lock that was asked for.
    journal: Option<Journal>,
    /// The layer's future, which has to watch over a hold that another task takes.
    layer: Option<Waker>,
    is_over: bool,
}

impl RequestLocks {
    pub(crate) fn new(scope: Arc<Scope>) -> Self {
        Self { scope, outer: None }
    }

    /// Those of the request with these extensions.
    ///
    /// # Errors
    /// Of the cause [`Internal`](crate::Cause::Internal) if no [`LockScopeLayer`](crate::LockScopeLayer) is around
    /// the service.
    pub fn of(extensions: &Extensions) -> Result<Self, LockError> {
        let locks = extensions.get::<Self>().ok_or_else(|| {
            LockError::misuse(
                "A lock was asked for where no LockScopeLayer is. Add one to the router: \
                 `.layer(LockScopeLayer::new(locks))`.",
            )
        })?;
        Ok(Self { scope: Arc::clone(&locks.scope), outer: extensions.get().cloned() })
    }

    /// Waits for the locks and leaves them with the layer. A lock that the request has already is shared.
    ///
    /// The handles are in the order in which the locks were taken, which is that of their names; there is at least
    /// one. Put the last one into the request's extensions, so that layers further inside share it, too.
    ///
    /// Two locks that are taken one after the other can deadlock with a request that takes them the other way
    /// round, until somebody's wait ends: ask for both at once.
    ///
    /// # Errors
    /// What the layer would refuse the request for; also if the response is out already.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue.
    pub async fn lock(&self, keys: Keys) -> Result<Vec<LockHandle>, LockError> {
        let hold = self.claim(keys).await?;
        let mut handles: Vec<_> = hold.own().cloned().collect();
        handles.reverse();
        self.scope.keep(hold)?;
        Ok(handles)
    }

    /// Waits for the locks and gives them to the caller, for work that outlives the response. A lock that the layer has
    /// already is shared; what the caller has is not, since nobody here sees its end.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue.
    pub async fn guards(&self, keys: Keys) -> Result<Vec<LockGuard>, LockError> {
        let mut hold = self.claim(keys).await?;
        let mut guards: Vec<_> = hold.guards().collect();
        guards.reverse();
        Ok(guards)
    }

    /// How the layer answers what it refuses.
    pub fn refusals(&self) -> &Refusals {
        &self.scope.answers.refusals
    }

    /// What was taken here and what the request had before, each with one more keeper.
    pub(crate) fn keep_all(&self) -> Result<Vec<Keep>, LockError> {
        let taken = self.scope.tops();
        let all = taken.iter().chain(&self.outer);
        let all = all.flat_map(|top| std::iter::successors(Some(top), |handle| handle.outer()));
        all.filter(|handle| handle.counts()).map(LockHandle::keep).collect()
    }

    async fn claim(&self, keys: Keys) -> Result<Hold, LockError> {
        let (asked, config) = (keys.resolve()?, &self.scope.config);
        self.scope.ask()?;
        let claim = Claim::new(asked, config.options, self.outer.clone());
        let mut claim = pin!(claim.beside(self.scope.tops()));
        let began = Instant::now();
        let reader = Reader(self.scope.body.as_deref());
        let hold = poll_fn(|cx| match claim.as_mut().poll(config, cx) {
            Poll::Ready(hold) => Poll::Ready(hold),
            Poll::Pending => reader.poll(cx).map(Err),
        })
        .await;
        drop(reader);
        if let Some(journal) = &mut self.scope.lock().journal {
            journal.add_wait(began.elapsed());
            if let Ok(hold) = &hold {
                journal.granted(hold.handle().fencing_token().get());
            }
        }
        hold
    }
}

/// Reads the request's body, if it has to be read, while its wait lasts.
struct Reader<'a>(Option<&'a dyn PollAhead>);

impl Reader<'_> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<LockError> {
        self.0.map_or(Poll::Pending, |body| body.poll_ahead(cx))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.0.into_iter().for_each(PollAhead::leave);
    }
}

impl Scope {
    pub(crate) fn new(
        config: &Arc<Config>,
        answers: Arc<Answers>,
        body: Option<Arc<dyn PollAhead>>,
    ) -> Arc<Self> {
        Arc::new(Self { config: Arc::clone(config), answers, body, state: Mutex::default() })
    }

    /// Somebody wants a lock.
    fn ask(&self) -> Result<(), LockError> {
        let mut state = self.lock();
        if state.is_over {
            return Err(too_late());
        }
        state.journal.get_or_insert_with(Journal::begin);
        Ok(())
    }

    fn keep(&self, hold: Hold) -> Result<(), LockError> {
        let mut state = self.lock();
        if state.is_over {
            drop(state);
            return Err(too_late());
        }
        match &mut state.hold {
            Some(first) => first.join(hold),
            None => state.hold = Some(hold),
        }
        state.taken += 1;
        let layer = state.layer.take();
        drop(state); // whatever a waker does, it may ask here
        layer.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The loss of any of the locks, if more were taken than `seen`; wakes the caller when there are.
    pub(crate) fn watch(&self, seen: &mut usize, cx: &Context<'_>) -> Option<Loss> {
        let waker = cx.waker().clone();
        let mut state = self.lock();
        let before = state.layer.replace(waker);
        let is_more = std::mem::replace(seen, state.taken) < state.taken;
        let loss = state.hold.as_ref().filter(|_| is_more).map(Hold::loss);
        drop(state);
        drop(before);
        loss
    }

    /// What is held, to be given back: nothing can be taken from now on.
    pub(crate) fn close(&self) -> (Option<Hold>, Option<Journal>) {
        let mut state = self.lock();
        state.is_over = true;
        let layer = state.layer.take();
        let taken = (state.hold.take(), state.journal.take());
        drop(state);
        drop(layer);
        taken
    }

    /// What is held: all handles are in reach of these.
    fn tops(&self) -> Vec<LockHandle> {
        self.lock().hold.iter().flat_map(Hold::tops).cloned().collect()
    }

    /// How long the request has waited for its locks; `None` if it took none.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.lock().journal.as_ref().map(Journal::waited)
    }

    /// Nothing in here panics half way.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_late() -> LockError {
    LockError::misuse("A lock was asked for after the response.")
}

impl fmt::Debug for RequestLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.scope.lock().hold.as_ref().map_or(0, |hold| hold.own().count());
        f.debug_struct("RequestLocks").field("held", &held).finish_non_exhaustive()
    }
}
