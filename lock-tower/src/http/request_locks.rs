//! The locks of one request that are acquired on its way, where the key is known by then.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Extensions;
use lockcore::LockGuard;
use tokio::time::Instant;

use crate::config::Config;
use crate::hold::claim::{Claim, Taken};
use crate::hold::detach::{Keeps, detach};
use crate::hold::handle::LockHandle;
use crate::hold::holds::Holds;
use crate::hold::share::Share;
use crate::http::answers::Answers;
use crate::http::request_body::PollAhead;
use crate::key::Keys;
use crate::refusal::LockError;
use crate::refusal::http::Refusals;

/// Takes locks for a request behind a [`LockScopeLayer`](crate::LockScopeLayer), which keeps them
/// until the response.
///
/// For extractors and handlers that find out what to lock: from the parameters of a route, a
/// session, the body. lock-axum's extractors are made of it.
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
}

/// A [`LockScopeLayer`](crate::LockScopeLayer) around one request.
pub(crate) struct Scope {
    config: Arc<Config>,
    answers: Arc<Answers>,
    /// What is read while the request waits, if it has to be.
    body: Option<Arc<dyn PollAhead>>,
    holds: Arc<Holds>,
    /// The layer's number among those of the request.
    layer: usize,
}

impl RequestLocks {
    /// Those of the request with these extensions.
    ///
    /// # Errors
    /// Of the cause [`Internal`](crate::Cause::Internal) if no
    /// [`LockScopeLayer`](crate::LockScopeLayer) is around the service.
    pub fn of(extensions: &Extensions) -> Result<Self, LockError> {
        extensions.get::<Self>().cloned().ok_or_else(|| {
            LockError::misuse(
                "A lock was asked for where no LockScopeLayer is. Add one to the router: \
                 `.layer(LockScopeLayer::new(locks))`.",
            )
        })
    }

    /// Waits for the locks and leaves them with the layer. A lock that the request has already is
    /// shared.
    ///
    /// The handles are in the order in which the locks are acquired, which is that of their names.
    /// There is at least one. Put the last one into the request's extensions for handlers that look
    /// for a [`LockHandle`] there.
    ///
    /// Two locks that are acquired one after the other can deadlock with a request that acquires
    /// them the other way round, until one of the waits times out. Ask for both at once.
    ///
    /// # Errors
    /// What the layer refuses a request for: see [`Cause`](crate::Cause).
    /// [`Internal`](crate::Cause::Internal) after the response.
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue, and releases what it has acquired.
    pub async fn lock(&self, keys: Keys) -> Result<Vec<LockHandle>, LockError> {
        let Scope { config, holds, layer, .. } = &*self.scope;
        let taken = self.claim(keys).await?;
        let places = holds.grow(*layer, taken, config).ok_or_else(|| self.refused(too_late()))?;
        Ok(places.into_iter().map(|place| LockHandle::new(holds, place)).collect())
    }

    /// Waits for the locks and gives their guards to the caller, for work that outlives the
    /// response. A lock that the request has already is shared. A lock that the caller has from
    /// here is not: only the caller sees its end.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Panics
    /// Outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping it leaves the queue, and releases what it has acquired.
    pub async fn guards(&self, keys: Keys) -> Result<Vec<LockGuard>, LockError> {
        let taken = self.claim(keys).await?;
        Ok(taken.map(|granted| granted.guard).collect())
    }

    /// Finishes `future` even if the client disconnects, as [`LockHandle::detach`] does, under all
    /// locks that the request has.
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a hold was lost. If it was lost before, `future`
    /// is not begun. If it is lost meanwhile, `future` is dropped where it stands, unless the layer
    /// says [`Continue`](crate::OnLost::Continue).
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
        let detached = match Keeps::all_of(&self.scope.holds) {
            Ok(keeps) => detach(future, keeps).await,
            Err(error) => Err(error),
        };
        detached.map_err(|error| self.refused(error))
    }

    /// How the layer answers what it refuses.
    pub fn refusals(&self) -> &Refusals {
        &self.scope.answers.refusals
    }

    /// The same error, with the layer's refusals as its response.
    pub fn refused(&self, error: impl Into<LockError>) -> LockError {
        error.into().answered_by(&self.scope.answers)
    }

    async fn claim(&self, keys: Keys) -> Result<Taken, LockError> {
        self.acquire(keys).await.map_err(|error| self.refused(error))
    }

    async fn acquire(&self, keys: Keys) -> Result<Taken, LockError> {
        let scope = &*self.scope;
        let asked = keys.resolve()?;
        scope.holds.journal(scope.layer, |_| ()).ok_or_else(too_late)?;
        let mut claim = pin!(Claim::new(asked, &scope.config, Some(Arc::clone(&scope.holds))));
        let began = Instant::now();
        let reader = Reader(scope.body.as_deref());
        let taken = poll_fn(|cx| match claim.as_mut().poll(cx) {
            Poll::Ready(taken) => Poll::Ready(taken),
            Poll::Pending => reader.poll(cx).map(Err),
        })
        .await;
        drop(reader);
        scope.holds.journal(scope.layer, |journal| {
            journal.add_wait(began.elapsed());
            if let Some(token) = taken.as_ref().ok().and_then(Taken::last_token) {
                journal.granted(token);
            }
        });
        taken
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
    /// Puts the locks of a request into its extensions. The layer's share, and how the layer
    /// answers.
    pub(crate) fn enter(
        config: &Arc<Config>,
        answers: Arc<Answers>,
        body: Option<Arc<dyn PollAhead>>,
        extensions: &mut Extensions,
    ) -> Share {
        let holds = holds(extensions).cloned().unwrap_or_default();
        let (config, layer) = (Arc::clone(config), holds.open());
        let share = Share::new(&config, &holds, layer);
        let scope = Arc::new(Self { config, answers, body, holds, layer });
        extensions.insert(RequestLocks { scope });
        share
    }
}

/// The holds of the request with these extensions, if a layer outside has made a list of them.
pub(crate) fn holds(extensions: &Extensions) -> Option<&Arc<Holds>> {
    let of_scope = extensions.get::<RequestLocks>().map(|locks| &locks.scope.holds);
    of_scope.or_else(|| extensions.get().map(LockHandle::request))
}

fn too_late() -> LockError {
    LockError::misuse("A lock was asked for after the response.")
}

impl fmt::Debug for RequestLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.scope.holds.count(self.scope.layer, |_| true);
        f.debug_struct("RequestLocks").field("held", &held).finish_non_exhaustive()
    }
}
