//! `IdempotencyLayer`: the Tower layer, and the methods that set its options.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Response, request, response};
use lock_tower::LockScopeLayer;
use lockcore::Locks;
use lockcore::operate::Connection;
use tower::Layer;

use crate::board::Board;
use crate::collect::CollectBounds;
use crate::config::Config;
use crate::meaning::Meaning;
use crate::observe;
use crate::read::{ReadBounds, Room};
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::service::Idempotency;
use crate::store::ReplayStore;
use crate::unanswered::{DecisionFuture, OnUnanswered, Unanswered};

/// The highest allowed `keep_limit`, in bytes. It is half of `MAX_OUTCOME_BYTES`, which leaves room
/// for the headers in the stored form.
const MAX_KEEP: usize = 4 << 20;

/// A Tower layer that runs the handler once for each `Idempotency-Key` of a client. A duplicate
/// request waits for the first request, and receives the same response.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), std::convert::Infallible> {
/// use std::convert::Infallible;
///
/// use http::{Request, Response, StatusCode};
/// use http_body_util::{BodyExt, Full};
/// use lock_idempotency::{IdempotencyLayer, MemoryReplays, ReadBody, Refusal, Scope};
/// use lockcore::Locks;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// #[derive(Clone)]
/// struct User(String); // set by your authentication outside the layer, as a request extension
///
/// let layer = IdempotencyLayer::new(Locks::in_memory(), MemoryReplays::new(), |parts| {
///     let user = parts.extensions.get::<User>();
///     let user = user.ok_or_else(|| Refusal::scope(StatusCode::UNAUTHORIZED, "Log in first."))?;
///     Ok(Scope::new(&user.0))
/// });
/// let service = ServiceBuilder::new().layer(layer).service(service_fn(
///     async |_: Request<ReadBody<String>>| {
///         Ok::<_, Infallible>(Response::new(Full::new(bytes::Bytes::from("paid"))))
///     },
/// ));
///
/// let request = || {
///     let request = Request::post("/payments").header("idempotency-key", "a1");
///     request.extension(User("ada".into())).body("500 cents".to_owned()).unwrap()
/// };
/// let first = service.clone().oneshot(request()).await?;
/// assert!(!first.headers().contains_key("idempotency-replayed"));
/// let second = service.oneshot(request()).await?;
/// assert_eq!(second.headers()["idempotency-replayed"], "true");
/// assert_eq!(second.into_body().collect().await.unwrap().to_bytes(), "paid");
/// # Ok(())
/// # }
/// ```
///
/// The [crate documentation](crate) describes the position among other layers, and how each
/// response is handled.
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct IdempotencyLayer {
    config: Config,
}

impl IdempotencyLayer {
    /// Creates a layer that runs the handler once for each key of a client. Requests with the same
    /// key wait for the same lock, which is acquired from `locks` with the class `idempotency`.
    /// Responses are stored in `store`.
    ///
    /// `scope` returns the owner of a request's key, such as the user: see [`Scope`]. It is called
    /// for each request with a key. If it returns a [`Refusal`], the request is refused.
    ///
    /// # Panics
    /// Panics if either `store` or `locks` is in memory and the other is not. In-memory locks
    /// exclude only requests of this process: another process that shares the store could run the
    /// handler for the same record at the same time. Conversely, other processes would share the
    /// locks, but not see the responses in this process's memory, and run their handlers again.
    #[track_caller]
    pub fn new(
        locks: Locks,
        store: impl ReplayStore,
        scope: impl Fn(&request::Parts) -> Result<Scope, Refusal> + Send + Sync + 'static,
    ) -> Self {
        match (are_in_memory(&locks), store.is_in_memory()) {
            (true, false) => panic!(
                "in-memory locks need an in-memory store, such as MemoryReplays: the locks do not \
                 exclude the other processes that share the store"
            ),
            (false, true) => panic!(
                "an in-memory store needs in-memory locks: other processes that share these locks \
                 do not see the responses of this process"
            ),
            _ => {}
        }
        Self {
            config: Config {
                namespace: locks.namespace().map(Arc::from),
                locking: LockScopeLayer::new(locks).class("idempotency"),
                store: Arc::new(store),
                board: Arc::new(Board::default()),
                scope: Arc::new(scope),
                methods: vec![Method::POST, Method::PATCH],
                header: HeaderName::from_static("idempotency-key"),
                is_required: false,
                is_strict: false,
                read: ReadBounds {
                    each: 1 << 20,
                    room: Room::new(64 << 20),
                    within: Duration::from_secs(10),
                },
                collect: CollectBounds { bytes: 256 << 10, within: Duration::from_secs(1) },
                meaning: Arc::new(|parts| Meaning::of(parts.status)),
                expiry: Duration::from_secs(24 * 60 * 60),
                max_run: Duration::from_secs(5 * 60),
                store_within: Duration::from_secs(2),
                on_unanswered: OnUnanswered::Run,
                responds: Arc::new(Refusal::to_response),
            },
        }
    }

    /// Sets how requests wait for their lock, with the options of lock-tower's [`LockScopeLayer`].
    /// `set` receives the current options and returns the new ones. By default a request waits as
    /// long as the `Locks` sets, or at most 10 s.
    ///
    /// A request holds its lock while the handler runs, at most for [`max_run`](Self::max_run).
    /// Other limits of the hold do not apply, neither set here nor as a default of the `Locks`:
    /// [`max_hold`](LockScopeLayer::max_hold) has no effect, and a
    /// [`fixed_lease`](LockScopeLayer::fixed_lease) is renewed. Otherwise the next request with the
    /// key could run the handler beside the first.
    ///
    /// [`on_lost`](LockScopeLayer::on_lost),
    /// [`hold_until_body_end`](LockScopeLayer::hold_until_body_end) and
    /// [`release_in_background`](LockScopeLayer::release_in_background) do not stop a running
    /// handler. Only [`max_run`](Self::max_run) does.
    ///
    /// ```
    /// # fn example(layer: lock_idempotency::IdempotencyLayer) -> lock_idempotency::IdempotencyLayer {
    /// use std::time::Duration;
    ///
    /// layer.locking(|locks| locks.wait(Duration::from_secs(5)).queue_limit(20).refuse_early(true))
    /// # }
    /// ```
    pub fn locking(mut self, set: impl FnOnce(LockScopeLayer) -> LockScopeLayer) -> Self {
        self.config.locking = set(self.config.locking);
        self
    }

    /// Sets the HTTP methods for which the layer handles keys; POST and PATCH by default. Requests
    /// with other methods pass to the handler unchanged, even with a key.
    ///
    /// # Panics
    /// Panics if a method is safe (GET, HEAD, OPTIONS, TRACE), because a repeated safe request does
    /// no harm.
    #[track_caller]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = methods.into_iter().collect();
        let safe = self.config.methods.iter().find(|method| method.is_safe());
        assert!(safe.is_none(), "a safe method needs no idempotency key: {safe:?}");
        self
    }

    /// Sets which request header contains the key; `Idempotency-Key` by default.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.config.header = name;
        self
    }

    /// Refuses requests without a key (400, `idempotency-key-missing`) if `required` is true. By
    /// default they pass to the handler unchanged.
    pub fn required(mut self, required: bool) -> Self {
        self.config.is_required = required;
        self
    }

    /// Sets the maximum request body size in bytes; 1 MiB by default. A request with a larger body
    /// is refused with 413. The layer reads the whole body before the wait, because only the body
    /// shows whether the request equals the first request with the key.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.config.read.each = bytes;
        self
    }

    /// Sets the maximum memory in bytes for request bodies; 64 MiB by default. This layer and its
    /// clones share the memory. A body occupies it until the handler drops the body. A request
    /// whose body does not fit is refused with 503.
    pub fn body_total(mut self, bytes: usize) -> Self {
        self.config.read.room = Room::new(bytes);
        self
    }

    /// Sets the maximum time for a request body to arrive; 10 s by default. A slower request is
    /// refused with 408.
    pub fn body_within(mut self, within: Duration) -> Self {
        self.config.read.within = within;
        self
    }

    /// Sets the maximum size in bytes for a stored response body; 256 KiB by default. A larger
    /// response is sent but not stored. Later requests with the same key are refused with 409, and
    /// do not run the handler.
    ///
    /// # Panics
    /// Panics if `bytes` is more than 4 MiB.
    #[track_caller]
    pub fn keep_limit(mut self, bytes: usize) -> Self {
        assert!(bytes <= MAX_KEEP, "keep_limit is {bytes} bytes: it must be at most 4 MiB");
        self.config.collect.bytes = bytes;
        self
    }

    /// Sets how long the layer collects a response body of unknown size, which must be complete to
    /// be stored; 1 s by default. If the body has not ended by then, it is streamed to the client,
    /// and the response is not stored.
    pub fn collect_within(mut self, within: Duration) -> Self {
        self.config.collect.within = within;
        self
    }

    /// Sets the function that decides from the head of a response whether the work was done. The
    /// layer stores the response only if it was. By default the function is [`Meaning::of`] the
    /// status.
    ///
    /// An upgrade (101), an event stream and a compressed response are never stored. If their
    /// meaning is [`Meaning::Done`], as it always is for an upgrade, later requests are refused
    /// with 409, and the handler does not run again.
    ///
    /// ```
    /// use lock_idempotency::{IdempotencyLayer, Meaning};
    ///
    /// # fn example(layer: IdempotencyLayer) -> IdempotencyLayer {
    /// // This handler responds with 500 only before it calls the payment provider.
    /// layer.meaning(|response| match response.status.as_u16() {
    ///     500 => Meaning::NothingDone,
    ///     _ => Meaning::of(response.status),
    /// })
    /// # }
    /// ```
    pub fn meaning(
        mut self,
        meaning: impl Fn(&response::Parts) -> Meaning + Send + Sync + 'static,
    ) -> Self {
        self.config.meaning = Arc::new(meaning);
        self
    }

    /// Sets how long the store keeps the record of a key; 24 h by default. The time starts when the
    /// handler starts, and again when the response is stored. A value below
    /// [`max_run`](Self::max_run) is raised to `max_run`, so that no handler outlives the record.
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.config.expiry = expiry;
        self
    }

    /// Sets the maximum time from the lock's grant until the handler has responded and the body is
    /// collected; 5 min by default. A handler that has not responded by then is dropped, and the
    /// request is refused with 500. The effects are unknown, so the record stays [without a
    /// response](Self::remember_starts). The time includes the decision of
    /// [`when_unanswered`](Self::when_unanswered), and the wait until the inner service is ready.
    /// If the service does not become ready, the request is refused with 503, and leaves no record.
    pub fn max_run(mut self, max_run: Duration) -> Self {
        self.config.max_run = max_run;
        self
    }

    /// Sets the maximum time for a store operation; 2 s by default. A slower operation is dropped,
    /// and the layer responds as to a failed store: before the handler starts, the request is
    /// refused with 503.
    pub fn store_within(mut self, within: Duration) -> Self {
        self.config.store_within = within;
        self
    }

    /// Sets what happens to a request if an earlier attempt with its key began and left no
    /// response. If `remember` is true, the request is refused (409, `idempotency-outcome-unknown`)
    /// until the record expires. By default the handler runs again. Of this method and
    /// [`when_unanswered`](Self::when_unanswered), the last call counts.
    ///
    /// An attempt leaves no response if the process dies, if the handler panics, fails with an
    /// error or takes longer than [`max_run`](Self::max_run), if the response has
    /// [`Meaning::Unknown`], such as 500, or if it cannot be stored.
    ///
    /// If the store does not confirm that an attempt begins, the attempt is refused with 503, and
    /// its record is removed. The record stays if this fails too, or if the store executes the
    /// start later: then the next request is refused, although the handler never ran.
    pub fn remember_starts(mut self, remember: bool) -> Self {
        self.config.on_unanswered = if remember { OnUnanswered::Refuse } else { OnUnanswered::Run };
        self
    }

    /// Calls `decides`, under the lock, for a request if an earlier attempt with its key began and
    /// left no response. The function can ask the payment provider whether it knows the charge. The
    /// returned [`Decision`](crate::Decision) is to run the handler, to refuse the request, or to
    /// send a given response. The request waits for the inner service to become ready only if the
    /// handler runs. A future that has not decided within [`max_run`](Self::max_run) is dropped,
    /// and the request is refused.
    ///
    /// ```
    /// # fn example(layer: lock_idempotency::IdempotencyLayer) -> lock_idempotency::IdempotencyLayer {
    /// # use lock_idempotency::RecordKey;
    /// # async fn is_charged(_key: &RecordKey) -> Result<bool, std::io::Error> { Ok(true) }
    /// use http::Response;
    /// use lock_idempotency::Decision;
    ///
    /// layer.when_unanswered(|attempt| Box::pin(async move {
    ///     match is_charged(attempt.record_key).await {
    ///         Ok(true) => Decision::Answer(Response::new("paid".into())),
    ///         Ok(false) => Decision::Run,
    ///         Err(_) => Decision::Refuse,
    ///     }
    /// }))
    /// # }
    /// ```
    pub fn when_unanswered<F>(mut self, decides: F) -> Self
    where
        F: for<'a> Fn(Unanswered<'a>) -> DecisionFuture<'a> + Send + Sync + 'static,
    {
        self.config.on_unanswered = OnUnanswered::Ask(Arc::new(decides));
        self
    }

    /// Sends a refusal (500, `idempotency-not-stored`) instead of the response if the work was done
    /// but the response could not be stored, and `strict` is true. By default the response is sent,
    /// with `Idempotency-Stored: no`.
    pub fn strict(mut self, strict: bool) -> Self {
        self.config.is_strict = strict;
        self
    }

    /// Sets the function that renders this layer's refusals as responses; [`Refusal::to_response`]
    /// by default. Refusals by the lock, such as 423, are set in [`locking`](Self::locking).
    pub fn respond_with(
        mut self,
        responds: impl Fn(&Refusal) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.config.responds = Arc::new(responds);
        self
    }
}

/// Returns true if the locks are in memory, and so end with this process. Their status shows this:
/// in-memory locks are always connected, and have no servers.
fn are_in_memory(locks: &Locks) -> bool {
    let status = locks.status();
    status.servers.is_empty() && status.commands == Connection::Up
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        observe::register();
        Idempotency::new(inner, Arc::new(self.config.clone()))
    }
}
