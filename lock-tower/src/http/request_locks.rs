//! `RequestLocks`: locks acquired by extractors and handlers, where the key is known.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use http::Extensions;
use http::request::Parts;
use lockcore::LockGuard;
use tokio::time::Instant;

use crate::config::Config;
use crate::hold::acquire::{AcquireKeys, AcquiredKeys};
use crate::hold::detach::{Keepers, detach};
use crate::hold::handle::LockHandle;
use crate::hold::layer_holds::LayerHolds;
use crate::hold::registry::HoldRegistry;
use crate::http::caller::Caller;
use crate::http::connection::Connection;
use crate::http::request_body::PollAhead;
use crate::http::response_options::ResponseOptions;
use crate::key::Keys;
use crate::refusal::LockError;
use crate::refusal::http::Refusals;

/// Acquires locks for a request behind a [`LockScopeLayer`](crate::LockScopeLayer), which keeps
/// them until the response.
///
/// For extractors and handlers that find out the key themselves: from path parameters, a session,
/// the body. The extractors of lock-axum are built on this type.
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

/// The state of one request behind a [`LockScopeLayer`](crate::LockScopeLayer), shared by the
/// clones of its [`RequestLocks`]: the layer's options, and the caller, body and locks of the
/// request.
pub(crate) struct Scope {
    config: Arc<Config>,
    response_options: Arc<ResponseOptions>,
    caller: Caller,
    /// The request's connection, on which the number of waiting requests is limited; `None` if the
    /// connection is not shared, or unknown.
    connection: Option<Connection>,
    /// The request body, to be read during a wait; `None` if it is empty. The handler and the
    /// layer's future keep it: a clone of the [`RequestLocks`] does not.
    body: Option<Weak<dyn PollAhead>>,
    /// The registry of all locks of the request.
    holds: Arc<HoldRegistry>,
    /// The number of this layer among the layers of the request. Each lock in `holds` is marked
    /// with the number of the layer that releases it.
    layer: usize,
}

impl RequestLocks {
    /// Returns the `RequestLocks` that a [`LockScopeLayer`](crate::LockScopeLayer) has put into
    /// these request extensions.
    ///
    /// # Errors
    /// [`Misconfigured`](crate::Cause::Misconfigured) if no
    /// [`LockScopeLayer`](crate::LockScopeLayer) is around the service.
    pub fn of(extensions: &Extensions) -> Result<Self, LockError> {
        extensions.get::<Self>().cloned().ok_or_else(|| {
            LockError::misuse(
                "A lock was requested outside a LockScopeLayer. Add the layer to the router: \
                 `.layer(LockScopeLayer::new(locks))`, after the routes and outside `lock_by`: a \
                 router's last layer is the outermost. Behind an IdempotencyLayer, which hides an \
                 outer scope, add the layer to the route, inside the IdempotencyLayer.",
            )
        })
    }

    /// Waits for the locks of `keys`. The layer then holds them until the response. A lock that the
    /// request holds already, or acquires during the wait, is shared.
    ///
    /// Returns the handles: first of permits, then of reads, then of exclusive locks, each sorted
    /// by lock name. There is at least one handle. Put the last handle into the request's
    /// extensions for handlers that look for a [`LockHandle`] there: its fencing token protects
    /// writes.
    ///
    /// Two locks acquired in two calls can deadlock with a request that acquires them in the
    /// opposite order, until one of the waits times out. Request both in one call.
    ///
    /// # Errors
    /// The errors with which the layer refuses a request: see [`Cause`](crate::Cause).
    /// [`Misconfigured`](crate::Cause::Misconfigured) after the response, or after a client
    /// disconnect, because the layer is then gone. [Detached](Self::detach) work sees this: acquire
    /// the lock before the work is detached, or from the [`Locks`](lockcore::Locks). In a
    /// [`DetachLayer`](crate::DetachLayer), add a [`LockScopeLayer`](crate::LockScopeLayer) inside.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, and releases the locks acquired so far.
    pub async fn lock(&self, keys: Keys) -> Result<Vec<LockHandle>, LockError> {
        let Scope { config, holds, layer, .. } = &*self.scope;
        let acquired = tokio::select! {
            biased;
            acquired = self.acquire(keys) => acquired?,
            // The layer could no longer hold the locks.
            () = holds.closed(*layer) => return Err(self.refused(too_late())),
        };
        let locations =
            holds.add_all(*layer, acquired, config).ok_or_else(|| self.refused(too_late()))?;
        Ok(locations.into_iter().map(|location| LockHandle::new(holds, location)).collect())
    }

    /// Waits for the locks of `keys` and returns their guards, in the order of
    /// [`lock`](Self::lock), for work that outlives the response. A lock that the request holds
    /// already is shared. A lock from an earlier call of this method is not shared, because only
    /// the caller knows when it ends: a second call waits for it.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock). But a wait that has begun goes on after the response and
    /// after a client disconnect, because the layer does not hold these locks.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with timers.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, and releases the locks acquired so far.
    pub async fn guards(&self, keys: Keys) -> Result<Vec<LockGuard>, LockError> {
        let acquired = self.acquire(keys).await?;
        Ok(acquired.map(|granted| granted.guard).collect())
    }

    /// Runs `future` to completion even if the client disconnects, in a separate task, under all
    /// locks of the request. Like [`LockHandle::detach`]. After a disconnect, `future` can acquire
    /// no more locks with [`lock`](Self::lock).
    ///
    /// # Errors
    /// [`Lost`](lockcore::LockErrorKind::Lost) if a lock was lost. If it was lost before the call,
    /// `future` is not started. If it is lost during the call, `future` is dropped at the current
    /// await point, unless the layer is set to [`Continue`](crate::OnLost::Continue).
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
        let detached = match Keepers::all_of(&self.scope.holds) {
            Ok(keepers) => detach(future, keepers).await,
            Err(error) => Err(error),
        };
        detached.map_err(|error| self.refused(error))
    }

    /// Returns the layer's [`Refusals`], to turn errors into responses.
    pub fn refusals(&self) -> &Refusals {
        &self.scope.response_options.refusals
    }

    /// Converts `error` to a [`LockError`] whose response is made by the layer's [`Refusals`].
    pub fn refused(&self, error: impl Into<LockError>) -> LockError {
        error.into().answered_by(&self.scope.response_options)
    }

    async fn acquire(&self, keys: Keys) -> Result<AcquiredKeys, LockError> {
        self.wait_for(keys).await.map_err(|error| self.refused(error))
    }

    async fn wait_for(&self, keys: Keys) -> Result<AcquiredKeys, LockError> {
        let scope = &*self.scope;
        let asked = scope.caller.apply(keys).resolve(&scope.config.locks)?;
        scope.holds.log(scope.layer, |_| ()).ok_or_else(too_late)?;
        let limit = scope.response_options.waiting_per_connection;
        let place = scope.connection.as_ref().map(|connection| connection.place(limit));
        let holds = Some(Arc::clone(&scope.holds));
        let acquire = pin!(AcquireKeys::new(asked, &scope.config, holds, place));
        let mut waiting = Waiting { scope, acquire, began: Instant::now(), token: None };
        let reader = Reader::enter(scope.body.as_ref());
        let acquired = poll_fn(|cx| match waiting.acquire.as_mut().poll(cx) {
            Poll::Ready(acquired) => Poll::Ready(acquired),
            Poll::Pending => reader.poll(cx).map(Err),
        })
        .await;
        waiting.token = acquired.as_ref().ok().and_then(AcquiredKeys::last_token);
        acquired
    }
}

/// A request's wait for its locks. Dropping this value records the wait in the request's log, so
/// that a wait is recorded even if the handler gives it up.
struct Waiting<'a> {
    scope: &'a Scope,
    acquire: Pin<&'a mut AcquireKeys>,
    began: Instant,
    /// The fencing token of the last lock; `None` if the locks are not granted.
    token: Option<u64>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Self { scope, acquire, began, token } = self;
        scope.holds.log(scope.layer, |log| {
            log.add_wait(began.elapsed());
            log.queued(acquire.position());
            if let Some(token) = *token {
                log.granted(token);
            }
        });
    }
}

/// Reads the request body while the request waits for a lock; does nothing if there is no body.
/// Dropping the reader ends reading ahead, and wakes the handler's tasks that wait for the body.
struct Reader<'a>(Option<&'a Weak<dyn PollAhead>>);

impl<'a> Reader<'a> {
    fn enter(body: Option<&'a Weak<dyn PollAhead>>) -> Self {
        let reader = Self(body);
        reader.body().inspect(|body| body.enter());
        reader
    }

    fn body(&self) -> Option<Arc<dyn PollAhead>> {
        self.0.and_then(Weak::upgrade)
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<LockError> {
        self.body().map_or(Poll::Pending, |body| body.poll_ahead(cx))
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        if let Some(body) = self.body() {
            body.leave();
        }
    }
}

impl Scope {
    /// Opens the scope of a `LockScopeLayer` for a request: puts [`RequestLocks`] into the
    /// extensions of `parts`. Returns the value through which the layer releases the locks.
    pub(crate) fn enter(
        config: &Arc<Config>,
        response_options: Arc<ResponseOptions>,
        body: Option<&Arc<dyn PollAhead>>,
        parts: &mut Parts,
    ) -> LayerHolds {
        let body = body.map(Arc::downgrade);
        let caller = response_options.caller(parts);
        let connection = Connection::of(parts.version, &parts.extensions).cloned();
        let extensions = &mut parts.extensions;
        let holds = holds(extensions).cloned().unwrap_or_default();
        let config = Arc::clone(config);
        let layer = holds.open_scope();
        let layer_holds = LayerHolds::new(&config, &holds, layer);
        let scope =
            Arc::new(Self { config, response_options, caller, connection, body, holds, layer });
        extensions.insert(RequestLocks { scope });
        layer_holds
    }
}

/// Marks a request that `fail_open` serves without a lock. Contains the registry of the request's
/// locks, in place of the handle that [`InExtensions`](crate::http::InExtensions) removes: inner
/// layers still share these locks, and keep them for detached work.
#[derive(Debug, Clone)]
pub(crate) struct Unlocked(pub(crate) Arc<HoldRegistry>);

/// Returns the registry of the request's locks from these extensions; `None` if no outer layer has
/// made one.
pub(crate) fn holds(extensions: &Extensions) -> Option<&Arc<HoldRegistry>> {
    let of_scope = extensions.get::<RequestLocks>().map(|locks| &locks.scope.holds);
    let of_handle = || extensions.get().map(LockHandle::request);
    of_scope.or_else(of_handle).or_else(|| extensions.get().map(|Unlocked(holds)| holds))
}

fn too_late() -> LockError {
    LockError::misuse(
        "A LockScopeLayer was asked for a lock that it cannot hold: the response is already made, or \
         the client has disconnected while the work was detached. Acquire the lock before the work \
         is detached, add a LockScopeLayer inside the DetachLayer, or acquire it from the `Locks`.",
    )
}

impl fmt::Debug for RequestLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.scope.holds.count(self.scope.layer, |_| true);
        f.debug_struct("RequestLocks").field("held", &held).finish_non_exhaustive()
    }
}
