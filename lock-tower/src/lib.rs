//! Tower layers that serve requests of one key one at a time, in order of arrival, across processes.
//!
//! Two requests for the same order, account or document are served one after the other, wherever they arrive
//! and in the order in which they arrive; requests for different ones run in parallel. The locks are
//! [lockcore]'s: fair, fenced, on Redis or in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), std::convert::Infallible> {
//! use std::convert::Infallible;
//!
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use lock_tower::{ByPath, HttpLockLayer, LockHandle};
//! use lockcore::Locks;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! async fn pay<B>(request: Request<B>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
//!     let lock = request.extensions().get::<LockHandle>().expect("the layer put it there");
//!     let sql = "UPDATE orders SET paid = true, token = $1 WHERE id = $2 AND token < $1";
//!     let rows = execute(sql, &[lock.fencing_token().into(), 42]).await; // none: a later holder was here
//!     Ok(Response::new(Full::from(format!("{rows} paid"))))
//! }
//! # async fn execute(_sql: &str, _parameters: &[i64]) -> u64 { 1 }
//!
//! let locks = Locks::builder().namespace("shop").in_memory(); // or .connect("redis://127.0.0.1/").await?
//! let service = ServiceBuilder::new()
//!     .layer(HttpLockLayer::new(locks, ByPath::new()))
//!     .service(service_fn(pay));
//!
//! let response = service.oneshot(Request::post("/orders/42/pay").body(String::new()).unwrap()).await?;
//! assert_eq!(response.status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # Which layer
//!
//! | | [`HttpLockLayer`] | [`LockScopeLayer`] | [`LockLayer`] |
//! |---|---|---|---|
//! | for | HTTP: axum, tonic, hyper | the same | any request |
//! | the key is read | by the layer, from the request | further inside, by whoever takes the lock with [`RequestLocks`] | by the layer |
//! | a refusal is | a response ([`Refusals`]: 423, 429, 503, 400) | an error for who asked; [`Refusals`] turn it into a response | an error: `S::Error: From<LockError>` |
//! | it holds until | the response, or [the end of its body](HttpLockLayer::hold_until_body_end) | the same | the response |
//! | the response's type | `Response<LockBody<B>>` | the same | unchanged |
//! | the [`LockHandle`] | in the request's extensions | what [`RequestLocks::lock`] gives | where [`carry`](LockLayer::carry) puts it |
//!
//! Take `LockScopeLayer` where the key is known only inside: the parameters of a route, a session, the body. The
//! extractors of `lock-axum` stand on it. What follows is said of the layers that read the key; in a scope it begins
//! when somebody asks for a lock.
//!
//! # When
//!
//! When what a handler does must not happen twice at once *for one thing*, and a transaction cannot see to it:
//! it calls another service, touches two stores, or does something slow. For one row of one database, use the
//! database's own lock.
//!
//! A lock makes overlap rare, not impossible: a process can be suspended for longer than its lease. Give what
//! you write to the [fencing token](LockHandle::fencing_token), and let it refuse lower ones.
//!
//! # Where in the stack
//!
//! From the outside in:
//!
//! 1. tracing, request ids
//! 2. a timeout for everything: it ends the wait, too
//! 3. authentication, authorization, rate limits: nobody may hold a lock who may not do the work
//! 4. **the lock**
//! 5. [`DetachLayer`], if critical sections must finish when their client goes (in a scope: [`RequestLocks::detach`])
//! 6. a timeout for the critical section
//! 7. `ConcurrencyLimit`: those who wait for a lock occupy none of its places
//! 8. the handler
//!
//! A layer locks whatever it sees: around a whole router also unknown paths (which answer 423 in place of 404 while
//! their key is taken), OPTIONS and CORS preflights. Put what answers those outside, let other methods pass with
//! [`methods`](ExtractKeyExt::methods), or put the layer on the routes that need it (with axum:
//! `post(pay).route_layer(..)`).
//!
//! Compression and whatever else buffers bodies goes outside. `LoadShed` outside sheds nothing, since the lock
//! is always ready; the [queue limit](HttpLockLayer::queue_limit) takes its place.
//!
//! # What happens to a request
//!
//! **It waits** in a queue on the store, at most 10 s unless something else is [said](HttpLockLayer::wait). If
//! its client goes, it leaves the queue at once. On HTTP/1 the body of the request is not read meanwhile, and it *is*
//! read under the lock: for large uploads read it before, in a layer outside. On HTTP/2 it is read while the request
//! waits, [up to 4 MiB](HttpLockLayer::read_ahead).
//!
//! **It gets the lock**, then the inner service is made ready, then called. So an error of the inner service's
//! `poll_ready` comes from the response's future.
//!
//! **Its handler runs.** If its client goes, servers drop the handler where it stands (hyper does, except on
//! HTTP/1 while bytes of the request are unread) and the lock is given back; with [`DetachLayer`] it finishes.
//! If the hold is lost, the handler is stopped and the answer is 503; [`OnLost::Continue`] leaves it running. A
//! panic gives the lock back.
//!
//! **The lock is given back** before the answer goes out, so that a client's next request never meets its own
//! lock. That is one round trip to the store. If the store says that the hold had ended before, the answer is
//! replaced by the 503: what the handler did may have overlapped with another. If it says nothing for half a second, the
//! answer goes out and the release goes on. [`release_in_background`](HttpLockLayer::release_in_background)
//! waits for nothing.
//!
//! # Caveats
//!
//! - **Who chooses the key chooses whom to block**: see [`ExtractKey`]. A path has many spellings: use [`ByPath`] or
//!   [`canonical_path`].
//! - **Nested locks on different keys can deadlock**, until somebody's wait ends. Take several keys at once
//!   with a tuple: they are sorted. The same key twice in one request shares one hold, unless the first was taken away
//!   as a guard ([`RequestLocks::guards`]).
//! - **HTTP/2 and gRPC** multiplex: a request that waits holds a stream, not a connection. Its body is
//!   [read ahead](HttpLockLayer::read_ahead), since all bodies of a connection share one window: unread ones would
//!   keep the holder from its own. So the inner service gets a [`RequestBody`], which holds what was read. A
//!   [`LockLayer`] knows no bodies: for HTTP take the other two. What a handler leaves unread while it waits for
//!   something else is its own.
//! - **An upgrade** (a WebSocket) ends the hold with its 101. Take a guard along with [`LockHandle::reenter`].
//! - **Held until the body ends** means: until the server has taken the last frame. Set
//!   [`max_hold`](HttpLockLayer::max_hold) with it.
//! - **Polling needs a tokio runtime**, as lockcore's `Locks` does.
//!
//! # gRPC with tonic
//!
//! - `Server::builder().layer(..)` takes [`HttpLockLayer`] and [`LockScopeLayer`] for a whole server;
//!   `tonic::service::LayerExt::named_layer` for one service. Say [`grpc`](HttpLockLayer::grpc), so that refusals
//!   are gRPC's.
//! - A layer reads its key from path and metadata. For a key from the message take a [`LockScopeLayer`], and
//!   [`RequestLocks`] in the method, after the interceptors: `RequestLocks::of(request.extensions())`.
//! - Of an error, [`LockError::grpc_trailers`] makes a `tonic::Status` in one line.
//! - For streams say [`hold_until_body_end`](HttpLockLayer::hold_until_body_end) and
//!   [`max_hold`](HttpLockLayer::max_hold): a hold that is lost before the end makes it ABORTED.
//! - tonic's own `timeout` and `concurrency_limit_per_connection` stand outside all layers of yours: calls that wait for a lock
//!   fill the latter, and then those of other keys wait, too. Take `tower::limit::ConcurrencyLimitLayer`, inside the lock.
//! - Windows need no settings. What a call may have unread while it waits is [`read_ahead`](HttpLockLayer::read_ahead).
//!
//! # Errors
//!
//! Every [`Cause`] has a status, a gRPC code and a [machine-readable name](Cause::code): see [`Refusals`]. The
//! typed [`LockError`] rides in the extensions of the refusal, so that layers outside can tell it from an
//! answer.
//!
//! # What can be seen
//!
//! One `tracing` event for each request that asks for a lock, at `debug`: `wait_ms`, `hold_ms`, `token` and `outcome`
//! (`served`, a cause's code, `unlocked` or `cancelled`). lockcore's own events have the key, unless told to
//! redact it. For clients there is [`server_timing`](HttpLockLayer::server_timing).
//!
//! # Features
//!
//! | feature | what | default |
//! |---|---|---|
//! | `http` | [`HttpLockLayer`], [`LockScopeLayer`], [`DetachLayer`] and the keys that are read from HTTP requests | yes |
//!
//! [lockcore]: https://docs.rs/lockcore
// On docs.rs, each item shows the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Bodies that hold and refusals that are responses are HTTP's.
#![cfg_attr(not(feature = "http"), allow(dead_code))]

#[cfg(feature = "http")]
mod answers;
#[cfg(feature = "http")]
mod body;
mod builder;
mod carry;
mod claim;
mod config;
#[cfg(feature = "http")]
mod detach;
mod error;
mod future;
#[cfg(feature = "http")]
mod grpc;
mod handle;
mod hold;
#[cfg(feature = "http")]
mod http_future;
#[cfg(feature = "http")]
mod http_layer;
#[cfg(feature = "http")]
mod http_service;
mod journal;
#[cfg(feature = "http")]
mod keep;
mod key;
mod layer;
mod loss;
mod options;
#[cfg(feature = "http")]
mod problem;
#[cfg(feature = "http")]
mod read_ahead;
#[cfg(feature = "http")]
mod reject;
mod release;
#[cfg(feature = "http")]
mod request_body;
#[cfg(feature = "http")]
mod scope;
#[cfg(feature = "http")]
mod scope_future;
#[cfg(feature = "http")]
mod scope_layer;
#[cfg(feature = "http")]
mod scope_service;
mod section;
mod service;

pub use builder::ServiceBuilderExt;
pub use carry::CarryHandle;
pub use config::OnLost;
pub use error::{Cause, LockError};
pub use future::LockFuture;
pub use handle::LockHandle;
pub use key::{ExtractKey, ExtractKeyExt, IntoKeys, KeyError, Keys, Prefixed};
pub use layer::LockLayer;
pub use lockcore::LockErrorKind;
pub use service::Lock;

#[cfg(feature = "http")]
pub use body::LockBody;
#[cfg(feature = "http")]
pub use carry::InExtensions;
#[cfg(feature = "http")]
pub use detach::{Detach, DetachFuture, DetachLayer};
#[cfg(feature = "http")]
pub use http_future::HttpLockFuture;
#[cfg(feature = "http")]
pub use http_layer::HttpLockLayer;
#[cfg(feature = "http")]
pub use http_service::HttpLock;
#[cfg(feature = "http")]
pub use key::{ByExtension, ByHeader, ByPath, ForMethods, canonical_path};
#[cfg(feature = "http")]
pub use reject::Refusals;
#[cfg(feature = "http")]
pub use request_body::RequestBody;
#[cfg(feature = "http")]
pub use scope::RequestLocks;
#[cfg(feature = "http")]
pub use scope_future::LockScopeFuture;
#[cfg(feature = "http")]
pub use scope_layer::LockScopeLayer;
#[cfg(feature = "http")]
pub use scope_service::LockScope;
