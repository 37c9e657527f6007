//! A Tower layer for requests with an `Idempotency-Key`: a duplicate request waits in a queue, and
//! then receives the first request's response.
//!
//! A client sends a payment again after a timeout, with the same `Idempotency-Key`. The duplicate
//! waits until the first request has ended, in order of arrival and across all processes, because
//! both acquire the same [lockcore] lock. Then it receives the same response. The handler runs
//! once, unless the process dies or the response is not definitive.
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
//! 2. compression, because this layer stores no compressed response: the next client may not
//!    support the encoding
//! 3. authentication, rate limits: the [`Scope`] comes from authentication
//! 4. **this layer**
//! 5. the handler's own locks, with a separate [`LockScopeLayer`](lock_tower::LockScopeLayer),
//!    because locks in an outer scope end with the client connection and are not visible inside
//!    this layer
//! 6. a timeout for the handler
//! 7. the handler
//!
//! With axum, put the layer on the routes that need it. In a [nested](https://docs.rs/axum) router,
//! the layer sees each path without the router's prefix, also in the [`Fingerprint`]: add the
//! prefix to the [`Scope`].
//!
//! # What happens to a request
//!
//! **The request has a key**, and the method is POST or PATCH. All other requests pass to the
//! handler unchanged. The key is 1 to 255 visible ASCII characters, and `"k"` and `k` are the same
//! key. The store keeps a record for each scope and key, named by a hash of both, the
//! [`RecordKey`].
//!
//! **The body is read**, within bounds for size and time. This happens before the wait, because the
//! [`Fingerprint`] that recognizes an equal request covers method, path, content type and body.
//!
//! **The request queues** for the record's lock, and meanwhile the layer looks up the record. A
//! stored response is sent at once. A request that reuses a different request's key is refused
//! at once. If the client disconnects, the request leaves the queue. The wait has the options of
//! lock-tower: [`locking`](IdempotencyLayer::locking).
//!
//! **The lock is granted.** One atomic store operation either finds the response, or writes into
//! the record that the handler starts. From here on the request continues without the client, for
//! at most [`max_run`](IdempotencyLayer::max_run). The handler finds an [`Attempt`] in the
//! request's extensions. A lost lock does not stop the handler, because the record shows whether a
//! later request has begun.
//!
//! **The response is stored** before the client receives the first byte. If the lock was lost and a
//! later request has begun, the record has a higher fencing token. Then the response is not stored,
//! regardless of clocks, and the client receives 500 `lock-lost`.
//!
//! # What is stored
//!
//! | the response | the record | the next request |
//! |---|---|---|
//! | 2xx, 3xx, 400, 402, 404, 410, 422 | contains the response | receives it, with `Idempotency-Replayed: true` |
//! | as above, but larger than [`keep_limit`](IdempotencyLayer::keep_limit), not complete [in time](IdempotencyLayer::collect_within), an event stream, an upgrade, compressed, or the body fails | contains only the status | is refused: 409 `idempotency-answer-not-kept` |
//! | 401, 403, 429, 503 and the like: nothing was done | is removed | runs the handler |
//! | the same, if an earlier attempt left no response | stays without an outcome | runs the handler [again](Attempt::is_again) |
//! | 408, 500, 502, 504 and the like: the work may have been done | stays without an outcome | runs the handler [again](Attempt::is_again), or [is refused](IdempotencyLayer::remember_starts) |
//! | none: the process died, a panic, a service error, `max_run` | stays without an outcome | the same |
//!
//! [`Meaning::of`] has the whole list of statuses. [`meaning`](IdempotencyLayer::meaning) replaces
//! it with your own function.
//!
//! Of the headers, only those listed in [`Answer`] are stored. Trailers are sent to the first
//! client, and not stored.
//!
//! # When the store fails
//!
//! If the store fails before the handler starts, the request is refused with 503 and `Retry-After`.
//! If it fails afterwards, the response is sent with `Idempotency-Stored: no`, or replaced by a 500
//! if the layer is [strict](IdempotencyLayer::strict), and an event at `error` is logged. If the
//! record is unreadable (from another program or a newer version, truncated, too large), the
//! request is refused with 500 before the handler starts, and the record stays unchanged.
//!
//! # Observability
//!
//! Each request with a key has a span `idempotency` at `debug`, with the fields `record`, `outcome`
//! and `again`. The feature `metrics` adds the counters `lock_idempotency_served_total` by
//! `outcome` (`stored`, `replayed`, `not_kept`, `not_stored`, `nothing_done`, `unknown`,
//! `no_answer`) and `lock_idempotency_refused_total` by `cause`. They start at 0 when the layer is
//! added to a service; install the exporter before. Neither spans nor counters contain scopes or
//! keys. The waits are in lockcore's metrics, with the class `idempotency`.
//!
//! # What it does not do
//!
//! It cannot make two systems consistent: if a process dies after the charge and before the
//! response is stored, only the payment provider knows about the charge. Give the charge [the
//! record's name](Attempt::record_key), or query the provider by it in
//! [`when_unanswered`](IdempotencyLayer::when_unanswered). Not the client's key: two scopes may
//! have the same key, and the provider would take the second payment for the first. gRPC is not
//! supported, because it has the status in trailers.
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
mod later;
mod layer;
mod meaning;
mod observe;
mod queue;
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
