//! Tower layers that serve requests with the same key one at a time, in order of arrival, across
//! processes.
//!
//! Two requests for the same order, account or document are served one after the other, wherever
//! they arrive and in the order in which they arrive. Requests for different ones run in parallel.
//! The locks are [lockcore]'s: fair, fenced, on Redis or in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower::BoxError> {
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
//!     let hold = [lock.fencing_token().into(), 42];
//!     // First raise the row's token: from here on, no earlier holder can write.
//!     execute("UPDATE orders SET token = $1 WHERE id = $2 AND token < $1", hold).await;
//!     // Now read the row, and do the work. Then write, while the token is still that of this hold.
//!     let rows = execute("UPDATE orders SET paid = true WHERE id = $2 AND token = $1", hold).await;
//!     // If no row was changed, a later holder is there.
//!     Ok(Response::new(Full::from(format!("{rows} paid"))))
//! }
//! # async fn execute(_sql: &str, _parameters: [i64; 2]) -> u64 { 1 }
//!
//! let locks = Locks::builder().namespace("shop").in_memory()?; // or .connect("redis://127.0.0.1/").await?
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
//! | the key is read | by the layer, from the request | further inside, by an extractor or a handler with [`RequestLocks`] | by the layer |
//! | a refusal is | a response ([`Refusals`]: 423, 429, 409, 413, 503, 400, 500) | an error of [`RequestLocks`]; [`Refusals`] turn it into a response | an error: `S::Error: From<LockError>` |
//! | the lock is held until | the response, or [the end of its body](HttpLockLayer::hold_until_body_end) | the same | the response |
//! | the response's type | `Response<LockBody<B>>` | the same | unchanged |
//! | the [`LockHandle`] | in the request's extensions | the result of [`RequestLocks::lock`] | where [`carry`](LockLayer::carry) puts it |
//!
//! [`HttpLockLayer::permits`] makes a layer with permits: at most *n* requests of one key run at a
//! time, until the end of the body.
//!
//! Take `LockScopeLayer` where the key is known only inside: the parameters of a route, a session,
//! the body. The extractors of `lock-axum` need it: under an `HttpLockLayer` alone a `Locked` or
//! `lock_by` answers 500, since that layer keeps only the locks that it has acquired itself.
//!
//! The rest of this page describes the layers that read the key. In a scope the same happens from
//! the moment at which the handler asks for a lock.
//!
//! # One at a time, readers together, at most *n*
//!
//! The demand of a request belongs to its key, and all layers follow it:
//!
//! | requests of one key | set on [`Keys`] | or on an extractor |
//! |---|---|---|
//! | run one at a time | nothing | nothing |
//! | run together if they read, alone if not | [`read`](Keys::read), [`write`](Keys::write) | [`read_on`](ExtractKeyExt::read_on), [`reads`](ExtractKeyExt::reads), [`writes`](ExtractKeyExt::writes) |
//! | run at most *n* at a time | [`permits`](Keys::permits) | [`permits`](ExtractKeyExt::permits), [`HttpLockLayer::permits`] |
//!
//! All are first come, first served in one queue, whichever layer, handler or process asks: readers
//! do not overtake a lock that waits, nor requests for few permits one for many. See
//! [`Demand`](lockcore::Demand).
//!
//! A read costs as many round trips as a lock. Where a `GET` takes less time than these, answer it
//! without acquiring a read.
//!
//! # When
//!
//! Use a lock when a handler must not run twice at the same time *for the same thing*, and a
//! transaction cannot ensure that: the handler calls another service, writes to two stores, or does
//! something slow. For one row of one database, use the database's own lock.
//!
//! A lock makes overlap rare, not impossible: a process can be suspended for longer than its lease.
//! Store the [fencing token](LockHandle::fencing_token) before you read, and write only while it is
//! still there: see [`lockcore::guide::fencing`]. A token in the write alone does not protect a
//! handler that reads first.
//!
//! # Where in the stack
//!
//! From the outside in:
//!
//! 1. tracing, request ids
//! 2. a timeout for everything: it ends the wait, too
//! 3. authentication, authorization, rate limits: a client that may not do the work must not hold
//!    the lock
//! 4. **the lock**
//! 5. [`DetachLayer`], if critical sections must finish when their client disconnects (in a scope:
//!    [`RequestLocks::detach`])
//! 6. a timeout for the critical section
//! 7. `ConcurrencyLimit`: requests that wait for a lock occupy none of its places
//! 8. a layer that begins a transaction for the request, or takes a connection of a pool for it: it
//!    commits before the lock is released. Outside, the next request reads before the commit, and
//!    updates are lost; and requests that wait hold the connections that the holder needs. (An
//!    extractor acquires after all layers: begin the transaction in the handler.)
//! 9. the handler
//!
//! A layer locks every request that it sees. Around a whole router it locks also unknown paths
//! (which answer 423 in place of 404 while their key is held), OPTIONS and CORS preflights. Put the
//! layers that answer those outside, let other methods pass with
//! [`methods`](ExtractKeyExt::methods), or put the layer on the routes that need it (with axum:
//! `post(pay).route_layer(..)`).
//!
//! To switch a layer on and off by a flag, put a [`LockLayer`] into `option_layer`.
//! [`HttpLockLayer`] changes the types of the bodies, so it has
//! [`enabled`](HttpLockLayer::enabled).
//!
//! Put compression and other layers that buffer bodies outside. `LoadShed` outside sheds nothing,
//! since the lock is always ready. Use the [queue limit](HttpLockLayer::queue_limit) in its place.
//!
//! # The course of a request
//!
//! **It waits** in a queue on the store, [at most 10 s](HttpLockLayer::wait) by default. If its
//! client disconnects, it leaves the queue at once. Its body is read meanwhile: on HTTP/1 up to
//! 64 KiB. While more than that is unread, a server cannot see that the client is gone, and the
//! request waits on; and the rest *is* read under the lock: read large uploads before, in a layer
//! outside. On HTTP/2 it is read [up to 4 MiB](HttpLockLayer::read_ahead), and a request with a
//! larger body is refused. A client that sends `Expect: 100-continue` is told to continue when its
//! request begins to wait.
//!
//! **It acquires the lock.** Then the inner service is made ready, then called. So an error of the
//! inner service's `poll_ready` comes from the response's future.
//!
//! **Its handler runs.** If its client disconnects, servers drop the handler at its current await
//! point (hyper does, except on HTTP/1 while bytes of the request are unread), and the lock is
//! released. With [`DetachLayer`] the handler finishes. If the hold is lost, the handler is
//! stopped, and the answer is 500. [`OnLost::Continue`] leaves it running. A panic releases the
//! lock.
//!
//! **The lock is released** before the answer is sent, so that a client's next request never meets
//! its own lock. That is one round trip to the store. If the store says that the hold ended before,
//! the answer is replaced by the 500: the handler's work may overlap with that of another request.
//! If the store does not answer within half a second, the answer is sent, and the release
//! continues. With [`release_in_background`](HttpLockLayer::release_in_background) the answer does
//! not wait for the release.
//!
//! # Caveats
//!
//! - **A client that chooses the key chooses which requests wait for it**: see [`ExtractKey`]. A
//!   path has many spellings: use [`ByPath`] or [`canonical_path`](key::canonical_path).
//! - **Nested locks on different keys can deadlock**, until one of the waits times out. Acquire
//!   several keys at once with a tuple: they are sorted. The same key twice in one request shares
//!   one hold, unless the first one is a guard from [`RequestLocks::guards`], or the second layer
//!   is a [`LockLayer`] that does not find the first one's handle
//!   ([`CarryHandle::outer`](lock::CarryHandle::outer)): then the second waits for the first until
//!   it times out. A lock that the handler acquires from a `Locks` waits for the request's own
//!   hold, too, and without a limit unless one is set: take [`LockHandle::reenter`] in its place. A
//!   demand that the request's hold does not cover is [refused at once](Clash): it would wait for
//!   itself, or for a request that waits for it.
//! - **HTTP/2 and gRPC** multiplex: a request that waits holds a stream, not a connection. A server
//!   lets a client open 200 of them as a rule, and a proxy or a gRPC client has one or a few
//!   connections for all requests: if waiters took all streams, no other request of the connection
//!   would be served. So [at most 100](HttpLockLayer::waiting_per_connection) of a connection wait,
//!   where the layer knows it: serve with [`PerConnection`](http::PerConnection). With tonic, where
//!   it does not, keep the [queue limit](HttpLockLayer::queue_limit) well below
//!   `max_concurrent_streams`. Its body is [read ahead](HttpLockLayer::read_ahead), since all
//!   bodies of a connection share one window: unread ones would take the window from the holder. So
//!   the inner service gets a [`RequestBody`](http::RequestBody), which has the part that was read.
//!   A [`LockLayer`] does not read bodies: for HTTP take the other two. The layers do not read the
//!   rest of a body while its handler waits for something else.
//! - **An upgrade** (a WebSocket) ends the hold with its 101, and is warned of once. Keep a guard
//!   from [`LockHandle::reenter`].
//! - **Held until the body ends** means until the server has taken the last frame. Set
//!   [`max_hold`](HttpLockLayer::max_hold) with it.
//! - The futures of all layers need a tokio runtime with timers where they are polled.
//!
//! # gRPC with tonic
//!
//! - `Server::builder().layer(..)` takes [`HttpLockLayer`] and [`LockScopeLayer`] for a whole
//!   server; `tonic::service::LayerExt::named_layer` for one service. Set
//!   [`grpc`](HttpLockLayer::grpc), so that refusals are gRPC's.
//! - An interceptor of a service (`with_interceptor`) runs inside of the layers, so a client that
//!   it refuses has waited for the lock. Put authentication outside:
//!   `Server::builder().layer(InterceptorLayer::new(..)).layer(..)`.
//! - A layer reads its key from path and metadata. For a key from the message take a
//!   [`LockScopeLayer`], and [`RequestLocks`] in the method, after the interceptors:
//!   `RequestLocks::of(request.extensions())`.
//! - [`LockError::grpc_trailers`] makes a `tonic::Status` of an error in one line.
//! - For streams set [`hold_until_body_end`](HttpLockLayer::hold_until_body_end) and
//!   [`max_hold`](HttpLockLayer::max_hold). A stream whose hold is lost before its end ends with
//!   ABORTED.
//! - tonic's own `timeout` and `concurrency_limit_per_connection` are outside all layers of yours.
//!   Calls that wait for a lock count against the latter, so they can block calls for other keys.
//!   Use `tower::limit::ConcurrencyLimitLayer` inside the lock instead.
//! - The windows of HTTP/2 need no settings. [`read_ahead`](HttpLockLayer::read_ahead) bounds how
//!   much of a waiting call's body is buffered.
//!
//! # Errors
//!
//! Every [`Cause`] has a status, a gRPC code and a [machine-readable name](Cause::code): see
//! [`Refusals`]. The typed [`LockError`] is in the extensions of the refusal, so that layers
//! outside can distinguish it from an answer.
//!
//! # Overload
//!
//! With [`refuse_early`](HttpLockLayer::refuse_early) a request that would hardly be served within
//! its wait is refused at once, and with [`deadline_from`](HttpLockLayer::deadline_from) no request
//! waits for longer than its caller does: it is refused as one whose wait times out, with 423, or
//! for permits with 429. [`when_busy`](HttpLockLayer::when_busy) refuses requests for a key that is
//! busy, or lets only the newest of them wait. See [`lockcore::guide::overload`].
//!
//! # Observability
//!
//! One `tracing` event for each request that asks for a lock, at `debug`: `wait_ms`, `hold_ms`,
//! `position` (the number of waiters that were ahead when it was queued), `token` and `outcome`
//! (`served`, a cause's code, `unlocked` or `cancelled`). lockcore's own events have the key,
//! unless it is redacted. For clients there is [`server_timing`](HttpLockLayer::server_timing), for
//! handlers [`LockHandle::waited`] and [`LockHandle::position`]. A [`class`](HttpLockLayer::class)
//! tells the uses of locks apart in lockcore's metrics.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `http` | [`HttpLockLayer`], [`LockScopeLayer`], [`DetachLayer`] and the keys that are read from HTTP requests | yes |
//! | `axum` | [`LockError`] is the answer of an axum handler: for lock-axum; includes `http` | no |
//! | `redisson` | lockcore's: one queue with services on the JVM | no |
//!
//! [lockcore]: https://docs.rs/lockcore
// On docs.rs, each item shows the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Some of the state of a request is read by the layers for HTTP only.
#![cfg_attr(not(feature = "http"), allow(dead_code))]

mod builder;
mod config;
mod hold;
#[cfg(feature = "http")]
pub mod http;
mod inner;
pub mod key;
pub mod lock;
mod options;
pub mod refusal;
#[cfg(feature = "http")]
pub mod scope;

pub use builder::ServiceBuilderExt;
pub use config::OnLost;
pub use hold::handle::LockHandle;
pub use key::{Clash, ExtractKey, ExtractKeyExt, IntoKeys, KeyError, Keys, PermitLimit};
pub use lock::LockLayer;
pub use lockcore::LockErrorKind;
pub use refusal::{Cause, LockError};

#[cfg(feature = "http")]
pub use {
    self::http::{DetachLayer, HttpLockLayer, RequestLocks},
    key::{ByExtension, ByHeader, ByPath},
    refusal::Refusals,
    scope::LockScopeLayer,
};
