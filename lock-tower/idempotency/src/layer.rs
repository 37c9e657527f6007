//! The layer.

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
use crate::read::{ReadBounds, Room};
use crate::refusal::Refusal;
use crate::scope::Scope;
use crate::service::Idempotency;
use crate::store::ReplayStore;
use crate::unanswered::{DecisionFuture, OnUnanswered, Unanswered};

/// The upper limit for `keep_limit`: an outcome must fit into `MAX_OUTCOME_BYTES`.
const MAX_KEEP: usize = 4 << 20;

/// Serves a request once for each `Idempotency-Key` of a client: a duplicate waits for the first
/// request, and receives its response.
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
    /// Serves each key of a client once. Requests wait for the locks of `locks`, with the class
    /// `idempotency`; responses are stored in `store`.
    ///
    /// `scope` determines the owner of a key: see [`Scope`]. It is called for each request with a
    /// key, and may refuse the request.
    ///
    /// # Panics
    /// Panics if either `store` or `locks` is in memory and the other is not. Tokens of in-memory
    /// locks restart in each process, and tokens of other locks outlive an in-memory store: in both
    /// cases, a new response would be refused because of an old token.
    #[track_caller]
    pub fn new(
        locks: Locks,
        store: impl ReplayStore,
        scope: impl Fn(&request::Parts) -> Result<Scope, Refusal> + Send + Sync + 'static,
    ) -> Self {
        match (are_in_memory(&locks), store.is_in_memory()) {
            (true, false) => panic!(
                "in-memory locks need an in-memory store, such as MemoryReplays: the tokens \
                 restart in each process"
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

    /// Configures how requests wait for their lock, with the options of lock-tower's
    /// [`LockScopeLayer`]. By default a request waits at most 10 s.
    ///
    /// [`on_lost`](LockScopeLayer::on_lost), [`max_hold`](LockScopeLayer::max_hold),
    /// [`hold_until_body_end`](LockScopeLayer::hold_until_body_end) and
    /// [`release_in_background`](LockScopeLayer::release_in_background) do not stop a running
    /// handler: [`max_run`](Self::max_run) does.
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

    /// Sets the methods whose requests may have a key; POST and PATCH by default. All others pass.
    ///
    /// # Panics
    /// Panics if a method is safe (GET, HEAD, OPTIONS, TRACE): such a request does nothing that
    /// must not be done twice.
    #[track_caller]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = methods.into_iter().collect();
        let safe = self.config.methods.iter().find(|method| method.is_safe());
        assert!(safe.is_none(), "a safe method needs no idempotency key: {safe:?}");
        self
    }

    /// Sets the key header name; `Idempotency-Key` by default.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.config.header = name;
        self
    }

    /// Refuses requests without a key (400, `idempotency-key-missing`). By default they pass.
    pub fn required(mut self) -> Self {
        self.config.is_required = true;
        self
    }

    /// Sets the maximum request body size in bytes; 1 MiB by default. The body is read before the
    /// wait, because its fingerprint decides whether the request equals the first.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.config.read.each = bytes;
        self
    }

    /// Sets the maximum memory in bytes for the request bodies of this layer and its clones
    /// together, until the handlers drop them; 64 MiB by default. A request without room is refused
    /// with 503.
    pub fn body_total(mut self, bytes: usize) -> Self {
        self.config.read.room = Room::new(bytes);
        self
    }

    /// Sets the maximum time for a request body to arrive; 10 s by default.
    pub fn body_within(mut self, within: Duration) -> Self {
        self.config.read.within = within;
        self
    }

    /// Sets the maximum size of a stored response body in bytes; 256 KiB by default. A larger
    /// response is sent and not stored: later requests are refused with 409, and do not run the
    /// handler.
    ///
    /// # Panics
    /// Panics if `bytes` is more than 4 MiB.
    #[track_caller]
    pub fn keep_limit(mut self, bytes: usize) -> Self {
        assert!(bytes <= MAX_KEEP, "keep_limit is {bytes} bytes: it must be at most 4 MiB");
        self.config.collect.bytes = bytes;
        self
    }

    /// Sets how long the layer collects a response body of unknown size; 1 s by default. Afterwards
    /// the collected part and the rest are streamed, and the response is not stored.
    pub fn collect_within(mut self, within: Duration) -> Self {
        self.config.collect.within = within;
        self
    }

    /// Decides from the head of a response what it means for the work. The default is
    /// [`Meaning::of`] the status.
    ///
    /// An upgrade (101), an event stream and a compressed response are never stored, but with
    /// [`Meaning::Done`] the work counts as done: the handler does not run again.
    ///
    /// ```
    /// use lock_idempotency::{IdempotencyLayer, Meaning};
    ///
    /// # fn example(layer: IdempotencyLayer) -> IdempotencyLayer {
    /// // This handler responds with 500 only before it calls the payment provider.
    /// layer.meaning(|answer| match answer.status.as_u16() {
    ///     500 => Meaning::NothingDone,
    ///     _ => Meaning::of(answer.status),
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

    /// Sets how long a record is kept; 24 h by default. The time starts with the request, and again
    /// with the response. The minimum is [`max_run`](Self::max_run).
    pub fn expiry(mut self, expiry: Duration) -> Self {
        self.config.expiry = expiry;
        self
    }

    /// Sets the maximum handler run time, until the response is collected; 5 min by default. Then
    /// the handler is dropped, and the request is refused with 500. The effects are unknown, and
    /// the record stays [without a response](Self::remember_starts).
    pub fn max_run(mut self, max_run: Duration) -> Self {
        self.config.max_run = max_run;
        self
    }

    /// Sets the maximum time for a store operation; 2 s by default.
    pub fn store_within(mut self, within: Duration) -> Self {
        self.config.store_within = within;
        self
    }

    /// Refuses a request whose earlier attempt began and left no response (409,
    /// `idempotency-outcome-unknown`), until the record expires. By default the handler runs again.
    ///
    /// An attempt leaves no response if the process dies, the handler panics, fails with an error
    /// or takes longer than [`max_run`](Self::max_run), or the response cannot be stored.
    pub fn remember_starts(mut self) -> Self {
        self.config.on_unanswered = OnUnanswered::Refuse;
        self
    }

    /// Calls your function, under the lock, for a request whose earlier attempt began and left no
    /// response: for example, to find out whether the payment provider knows the key.
    ///
    /// ```
    /// # fn example(layer: lock_idempotency::IdempotencyLayer) -> lock_idempotency::IdempotencyLayer {
    /// # async fn is_charged(_key: &str) -> Result<bool, std::io::Error> { Ok(true) }
    /// use http::Response;
    /// use lock_idempotency::Decision;
    ///
    /// layer.when_unanswered(|attempt| Box::pin(async move {
    ///     match is_charged(attempt.idempotency_key).await {
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

    /// Refuses with 500 (`idempotency-not-stored`) if the work was done and the response could not
    /// be stored. By default the response is sent, with `Idempotency-Stored: no`.
    pub fn strict(mut self) -> Self {
        self.config.is_strict = true;
        self
    }

    /// Refuses with custom responses. Lock refusals are configured in [`locking`](Self::locking).
    pub fn respond_with(
        mut self,
        responds: impl Fn(&Refusal) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.config.responds = Arc::new(responds);
        self
    }
}

/// Whether the locks end with this process. In-memory locks are always connected, and have no
/// servers.
fn are_in_memory(locks: &Locks) -> bool {
    let status = locks.status();
    status.servers.is_empty() && status.commands == Connection::Up
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Idempotency<S> {
        Idempotency::new(inner, Arc::new(self.config.clone()))
    }
}
