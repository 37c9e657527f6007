//! A Tower layer that makes a duplicate request wait in line and then return the first request's
//! response.
//!
//! A client sends a payment again after a timeout, with the same `Idempotency-Key`. The duplicate
//! waits for the first request, across all processes and in order of arrival ([lockcore]'s fair
//! locks), and receives the same response. The handler runs once, unless its process dies.
//!
//! ```
//! use http::StatusCode;
//! use lock_idempotency::{IdempotencyLayer, MemoryReplays, Refusal, Scope};
//! use lockcore::Locks;
//!
//! #[derive(Clone)]
//! struct User(String); // set by your authentication, as a request extension
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (locks, replays) = (Locks::in_memory(), MemoryReplays::new());
//! let layer = IdempotencyLayer::new(locks, replays, |request| {
//!     let user = request.extensions.get::<User>();
//!     let user = user.ok_or_else(|| Refusal::scope(StatusCode::UNAUTHORIZED, "Log in first."))?;
//!     Ok(Scope::new(&user.0)) // no user can read another user's response
//! });
//! // With axum: Router::new().route("/payments", post(pay).route_layer(layer))
//! # drop(layer);
//! # }
//! ```
//!
//! # Where in the stack
//!
//! From the outside in:
//!
//! 1. tracing, request ids
//! 2. compression: a compressed response is not stored, because the next client may not support the
//!    encoding
//! 3. authentication, rate limits: the [`Scope`] comes from authentication
//! 4. **this layer**
//! 5. the handler's own locks, with a separate [`LockScopeLayer`](lock_tower::LockScopeLayer):
//!    locks in an outer scope would end with the client connection, and are not visible inside this
//!    layer
//! 6. a timeout for the handler
//! 7. the handler
//!
//! With axum, put it on the routes that need it. In a [nested](https://docs.rs/axum) router the
//! path is shorter, also in the [`Fingerprint`]: put the stripped prefix into the scope.
//!
//! # What happens to a request
//!
//! **The request has a key**, and the method is POST or PATCH; all other requests pass. The key is
//! 1 to 255 visible characters, and `"k"` and `k` are equal. The [`RecordKey`] is a hash of scope
//! and key.
//!
//! **The body is read**, within bounds for size and time, before the wait: method, path, content
//! type and body make up the [`Fingerprint`].
//!
//! **The request waits in line**, and the record is looked up meanwhile. A stored response is sent
//! at once; a request that reuses the key of a different request is refused at once. After a client
//! disconnect the request leaves the line. The wait options come from lock-tower:
//! [`locking`](IdempotencyLayer::locking).
//!
//! **The lock is granted.** One atomic store operation records the start, or finds the response.
//! From here on the request continues without the client, for at most
//! [`max_run`](IdempotencyLayer::max_run). The handler finds an [`Attempt`] in the request's
//! extensions. A lost lock does not stop the handler: the record decides whether a later request
//! has begun.
//!
//! **The response is stored** before the client receives the first byte. An overtaken hold stores
//! nothing, regardless of clocks, and the client receives 500 `lock-lost`.
//!
//! # What is stored
//!
//! | the response | the record | the next request |
//! |---|---|---|
//! | 2xx, 3xx, 400, 402, 404, 410, 422 | is finished | receives it, with `Idempotency-Replayed: true` |
//! | as above, but larger than [`keep_limit`](IdempotencyLayer::keep_limit), not complete [in time](IdempotencyLayer::collect_within), an event stream, an upgrade, compressed, or the body fails | is done | 409 `idempotency-answer-not-kept` |
//! | 401, 403, 429, 503 and the like: nothing was done | ends | runs the handler |
//! | 408, 500, 502, 504 and the like: the work may have been done | stays started | runs the handler [again](Attempt::is_again), or [not](IdempotencyLayer::remember_starts) |
//! | none: the process died, a panic, a service error, `max_run` | stays started | the same |
//!
//! [`Meaning::of`] has the whole list, and [`meaning`](IdempotencyLayer::meaning) replaces it.
//!
//! The headers listed in [`Answer`] are stored. Trailers go to the first client and are not stored.
//!
//! # When the store fails
//!
//! Before the handler: 503 with `Retry-After`. After the handler: the response is sent with
//! `Idempotency-Stored: no`, or replaced by a [strict](IdempotencyLayer::strict) 500, with an event
//! at `error`. For an unreadable record (from another program or a newer version, truncated, too
//! large): 500 before the handler, and the record stays.
//!
//! # Observability
//!
//! A span `idempotency` at `debug` with `record`, `outcome` and `again`. With the feature `metrics`
//! the counters `lock_idempotency_served_total` by `outcome` (`stored`, `replayed`, `not_kept`,
//! `not_stored`, `nothing_done`, `unknown`, `no_answer`) and `lock_idempotency_refused_total` by
//! `cause`. Scopes and keys are in neither. The waits are in lockcore's metrics, with the class
//! `idempotency`.
//!
//! # What it does not do
//!
//! Two systems do not become one: if a process dies after the charge and before the response is
//! stored, only the payment provider knows. Pass [the key](Attempt::idempotency_key) on, or query
//! the provider in [`when_unanswered`](IdempotencyLayer::when_unanswered). gRPC is not supported,
//! because the status is in trailers.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `redis` | [`RedisReplays`], on a `deadpool_redis` pool | yes |
//! | `metrics` | counters through the `metrics` facade | no |
//!
//! [lockcore]: https://docs.rs/lockcore
// On docs.rs, each item shows the required feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(feature = "redis"), allow(rustdoc::broken_intra_doc_links))]

mod attempt;
mod board;
mod collect;
mod config;
mod digest;
mod fingerprint;
mod frame;
mod future;
mod key;
mod layer;
mod line;
mod meaning;
mod observe;
mod read;
mod record;
mod refusal;
mod request_body;
mod response_body;
mod scope;
mod service;
mod store;
mod unanswered;
mod work;

pub use attempt::Attempt;
pub use fingerprint::Fingerprint;
pub use future::IdempotencyFuture;
pub use layer::IdempotencyLayer;
pub use meaning::Meaning;
pub use record::Record;
pub use record::answer::Answer;
pub use record::key::RecordKey;
pub use record::outcome::{MAX_OUTCOME_BYTES, MalformedOutcome, Outcome};
pub use refusal::{Cause, Refusal};
pub use request_body::ReadBody;
pub use response_body::ResponseBody;
pub use scope::Scope;
pub use service::Idempotency;
pub use store::error::{StoreError, StoreErrorKind};
pub use store::memory::MemoryReplays;
#[cfg(feature = "redis")]
pub use store::redis::RedisReplays;
pub use store::{Finish, Finished, ReplayStore, Start, Started, StoreFuture};
pub use unanswered::{Decision, DecisionFuture, Unanswered};
