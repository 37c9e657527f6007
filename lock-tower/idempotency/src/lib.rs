//! A Tower layer by which a request that comes twice waits in line, then gets the first one's
//! answer.
//!
//! A client that times out sends its payment again, with the same `Idempotency-Key`. The second
//! request waits behind the first one, over all processes, in order of arrival ([lockcore]'s fair
//! locks), and gets the same answer. The handler runs once, unless its process dies.
//!
//! ```
//! use http::StatusCode;
//! use lock_idempotency::{IdempotencyLayer, MemoryReplays, Refusal, Scope};
//! use lockcore::Locks;
//!
//! #[derive(Clone)]
//! struct User(String); // as your authentication puts it into the request
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (locks, replays) = (Locks::in_memory(), MemoryReplays::new());
//! let layer = IdempotencyLayer::new(locks, replays, |request| {
//!     let user = request.extensions.get::<User>();
//!     let user = user.ok_or_else(|| Refusal::scope(StatusCode::UNAUTHORIZED, "Log in first."))?;
//!     Ok(Scope::new(&user.0)) // no user can read the answer of another
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
//! 2. compression: a compressed answer is not kept, since its next client may not read it
//! 3. authentication, rate limits: the [`Scope`] is what authentication has found out
//! 4. **this layer**
//! 5. locks of the handler, with a [`LockScopeLayer`](lock_tower::LockScopeLayer) of their own:
//!    the locks of a scope outside would end with the client, and are not found in here
//! 6. a timeout for the handler
//! 7. the handler
//!
//! With axum, put it on the routes that need it. In a [nested](https://docs.rs/axum) router the
//! path is shorter, and so is that of the [`Fingerprint`]: put what the path has lost into the
//! scope.
//!
//! # The course of a request
//!
//! **It has a key**, and its method is POST or PATCH; every other passes. The key is 1 to 255
//! visible characters, and `"k"` and `k` are one. The [`RecordKey`] is a hash of scope and key.
//!
//! **Its body is read**, within bounds of size and time, before it waits: with method, path and
//! type it makes the [`Fingerprint`].
//!
//! **It waits in line**, and the record is looked up meanwhile. If the answer is there, it is sent
//! at once; if the key was used for another request, that is refused at once. If its client hangs
//! up, it leaves the line. The options of the wait are those of lock-tower:
//! [`locking`](IdempotencyLayer::locking).
//!
//! **Its turn comes.** One step of the store writes that it begins, or finds the answer. From here
//! on it goes on without its client, at most for [`max_run`](IdempotencyLayer::max_run). The
//! handler finds an [`Attempt`] in the request's extensions. A lost lock does not stop it: whether
//! a later request has begun is decided by the record.
//!
//! **Its answer is stored**, before the client gets the first byte of it. A hold that was overtaken
//! stores nothing, whatever its clock says, and its client gets 500 `lock-lost`.
//!
//! # What is kept
//!
//! | the answer | the record | the next request |
//! |---|---|---|
//! | 2xx, 3xx, 400, 402, 404, 410, 422 | is finished | gets it, with `Idempotency-Replayed: true` |
//! | the same, but larger than [`keep_limit`](IdempotencyLayer::keep_limit), not there [in time](IdempotencyLayer::collect_within), an event stream, an upgrade, compressed, or its body fails | is done | 409 `idempotency-answer-not-kept` |
//! | 401, 403, 429, 503 and the like: nothing was done | ends | runs the handler |
//! | 408, 500, 502, 504 and the like: the work may have been done | stays started | runs the handler [again](Attempt::is_again), or [not](IdempotencyLayer::remember_starts) |
//! | none: the process died, a panic, an error of the service, `max_run` | stays started | the same |
//!
//! [`Meaning::of`] has the whole list, and [`meaning`](IdempotencyLayer::meaning) sets another one.
//!
//! The headers that an [`Answer`] names are kept. Trailers go to the first client and are not kept.
//!
//! # When the store fails
//!
//! Before the handler: 503 with `Retry-After`. After it: the answer is sent with
//! `Idempotency-Stored: no`, or as a [strict](IdempotencyLayer::strict) 500, and an event at
//! `error`. A record that cannot be read (of another program, a newer version, cut, too large): 500
//! before the handler, and the record stays.
//!
//! # Observability
//!
//! A span `idempotency` at `debug` with `record`, `outcome` and `again`. With the feature `metrics`
//! the counters `lock_idempotency_served_total` by `outcome` (`stored`, `replayed`, `not_kept`,
//! `not_stored`, `nothing_done`, `unknown`, `no_answer`) and `lock_idempotency_refused_total` by
//! `cause`. Scopes and keys are in neither. The waits are lockcore's, in the class `idempotency`.
//!
//! # What it does not do
//!
//! It does not make two systems one: if a process dies after the charge and before the answer is
//! stored, only the payment provider knows. Pass [the key](Attempt::idempotency_key) on, or ask in
//! [`when_unanswered`](IdempotencyLayer::when_unanswered). gRPC is not served: its status comes in
//! trailers.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `redis` | [`RedisReplays`], on a pool of `deadpool_redis` | yes |
//! | `metrics` | counters through the `metrics` facade | no |
//!
//! [lockcore]: https://docs.rs/lockcore
// On docs.rs, each item shows the feature that it needs.
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
