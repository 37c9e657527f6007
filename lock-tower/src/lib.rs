//! Tower layers that serve requests with the same key one at a time, in order of arrival, across
//! processes.
//!
//! Put a layer around a service, and say how to read a key from a request: an order, an account, a
//! document. Requests with the same key then wait for each other, in order of arrival, in whichever
//! process they arrive. Requests with different keys run in parallel. The locks come from
//! [lockcore]: they are fair, carry fencing tokens, and live on Redis or in memory.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower::BoxError> {
//! use std::convert::Infallible;
//!
//! use http::{Request, Response, StatusCode};
//! use http_body_util::Full;
//! use lock_tower::{ByPath, HttpLockLayer, LockHandle};
//! use lockcore::Locks;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! async fn pay<B>(
//!     request: Request<B>,
//! ) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
//!     let lock: &LockHandle = request.extensions().get().expect("the layer put it there");
//!     let hold = [lock.fencing_token().into(), 42];
//!     // First raise the row's token: from now on, no earlier holder can write.
//!     let raise = "UPDATE orders SET token = $1 WHERE id = $2 AND token < $1";
//!     let mut rows = execute(raise, hold).await;
//!     if rows == 1 {
//!         // Now read the row, and do the work.
//!         // Then write, if the row still has this hold's token.
//!         let update = "UPDATE orders SET paid = true WHERE id = $2 AND token = $1";
//!         rows = execute(update, hold).await;
//!     }
//!     // If a step changed no row, a later holder exists. Or the hold has no token, as permits.
//!     let mut response = Response::new(Full::from(format!("{rows} paid")));
//!     if rows == 0 {
//!         *response.status_mut() = StatusCode::CONFLICT;
//!     }
//!     Ok(response)
//! }
//! # async fn execute(_sql: &str, _parameters: [i64; 2]) -> u64 { 1 }
//!
//! // For locks on Redis, end with `.connect("redis://127.0.0.1/").await?`.
//! let locks = Locks::builder().namespace("shop").in_memory()?;
//! let service = ServiceBuilder::new()
//!     .layer(HttpLockLayer::new(locks, ByPath::new()))
//!     .service(service_fn(pay));
//!
//! // The whole path is the key. `/orders/42/pay` and `/orders/42/ship` would be two locks.
//! let request = Request::post("/orders/42").body(String::new())?;
//! let response = service.oneshot(request).await?;
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
//! | the lock is held until | the response, or [the end of the body](HttpLockLayer::hold_until_body_end) | the same | the response |
//! | the response type | `Response<LockBody<B>>` | the same | unchanged |
//! | the [`LockHandle`] | in the request's extensions | the result of [`RequestLocks::lock`] | where [`carry`](LockLayer::carry) puts it |
//!
//! [`HttpLockLayer::permits`] makes a layer with permits: at most *n* requests per key run at a
//! time, until the body ends.
//!
//! Take `LockScopeLayer` if the key is known only inside the layer, by an extractor or a handler:
//! from path parameters, a session, the body. The extractors of lock-axum (`Locked`, `lock_by`)
//! need this layer. Under an `HttpLockLayer` alone they respond 500, because that layer keeps only
//! the locks that it acquires itself.
//!
//! The rest of this page describes the layers that read the key. Behind a `LockScopeLayer` the same
//! applies from the moment when the handler requests a lock.
//!
//! # One at a time, readers together, at most *n*
//!
//! A demand says how a request locks a name: exclusively, for reading, or with permits. It is set
//! together with the key, and works in all layers:
//!
//! | requests with the same key | set on [`Keys`] | or on an extractor |
//! |---|---|---|
//! | run one at a time | nothing | nothing |
//! | run together if they read, alone if not | [`read`](Keys::read), [`write`](Keys::write) | [`read_on`](ExtractKeyExt::read_on), [`reads`](ExtractKeyExt::reads), [`writes`](ExtractKeyExt::writes) |
//! | run at most *n* at a time | [`permits`](Keys::permits) | [`permits`](ExtractKeyExt::permits), [`HttpLockLayer::permits`] |
//!
//! Requests are served first come, first served, in one queue, whichever layer, handler or process
//! sends them: readers do not overtake a waiting exclusive request, and requests for few permits do
//! not overtake a request for many. See [`Demand`](lockcore::Demand).
//!
//! A read lock costs as many round trips to the store as an exclusive lock. If a `GET` takes less
//! time than these, serve it without a read lock.
//!
//! # When
//!
//! Use a lock when a handler must not run twice at the same time *for the same thing*, and a
//! transaction cannot ensure this: the handler calls another service, writes to two stores, or does
//! something slow. For one row of one database, use the database's own lock.
//!
//! A lock makes overlap rare, not impossible: a process can be suspended for longer than the lease.
//! Store the [fencing token](LockHandle::fencing_token) before you read, and write only while this
//! token is still stored: see [`lockcore::guide::fencing`]. A token in the write alone does not
//! protect a handler that reads first.
//!
//! # Where in the stack
//!
//! From the outside in:
//!
//! 1. tracing, request ids
//! 2. a timeout for the whole request: it also ends the wait for the lock
//! 3. authentication, authorization, rate limits: an unauthorized client must not hold the lock
//! 4. **the lock**
//! 5. [`DetachLayer`], if critical sections must finish after a client disconnect (in a scope:
//!    [`RequestLocks::detach`])
//! 6. a timeout for the critical section
//! 7. `ConcurrencyLimit`: requests that wait for this lock occupy no capacity. Limits and time-outs
//!    for the request body belong here, too: outside, they fail a waiting request's body
//! 8. a layer that begins a transaction for the request, or takes a pooled connection: it commits
//!    before the lock is released. Outside the lock, the next request reads before the commit, and
//!    updates are lost; and waiting requests occupy the connections needed by the holder
//! 9. the handler
//!
//! **An extractor or a handler acquires after all layers**, so 5 to 8 cannot be inside its lock:
//! requests that wait occupy a `ConcurrencyLimit`, and a time-out includes the wait. Begin the
//! transaction in the handler, or lock the route with a layer, such as `lock_by` of lock-axum.
//!
//! **A retry inside the lock** repeats under the same token, so the first fencing step accepts an
//! equal token (`<=`). The bodies inside are [`RequestBody`](http::RequestBody), and not `Clone`:
//! collect them first. A retry outside waits anew, at the tail, and must not repeat a 500
//! `lock-lost`.
//!
//! A layer locks every request it sees. Around a whole router it also locks unknown paths (with 423
//! instead of 404 while their key is held), OPTIONS and CORS preflights. Put the layers that
//! respond to such requests outside, let other methods pass with
//! [`methods`](ExtractKeyExt::methods), or put the layer only on the routes that need it (with
//! axum: `post(pay).route_layer(..)`).
//!
//! To switch a layer on and off by a flag, put a [`LockLayer`] into tower's `option_layer`. An
//! [`HttpLockLayer`] does not fit there, because it changes the body types: use
//! [`enabled`](HttpLockLayer::enabled).
//!
//! Put compression and other layers that buffer bodies outside. `LoadShed` outside sheds nothing,
//! because an [`HttpLockLayer`] is always ready, and so is `lock_by`. Use the [queue
//! limit](HttpLockLayer::queue_limit) instead.
//!
//! # What happens to a request
//!
//! **The request waits** in a queue on the store, [at most 10 s](HttpLockLayer::wait) by default,
//! unless the `Locks` sets a wait. If the client disconnects, the request leaves the queue at once.
//! Meanwhile the layer reads the request body. On HTTP/1 it reads until the body takes 64 KiB of
//! memory, 32 to 64 KiB of data, because a server cannot detect a disconnect while body bytes are
//! unread. With a larger body the request waits
//! even after a disconnect, and the rest of the body is read while the lock is held. So read large
//! uploads first, in an outer layer. On HTTP/2 the layer reads the body [up to 4
//! MiB](HttpLockLayer::read_ahead), because unread bodies block the other requests on the
//! connection. A request with a larger body is refused. A client that sends `Expect: 100-continue`
//! receives `100 Continue` when the wait begins.
//!
//! **The request acquires the lock.** Then the layer waits until the inner service is ready, and
//! calls it. So an error from the inner service's `poll_ready` is returned by the response future.
//!
//! **The handler runs.** After a client disconnect, servers drop the handler at the current await
//! point, and the lock is released. (hyper does so, except on HTTP/1 while request bytes are
//! unread.) With [`DetachLayer`] the handler finishes. If the lock is lost, for example because the
//! lease could not be renewed, the handler is stopped, and the response is 500.
//! [`OnLost::Continue`] leaves the handler running. A panic releases the lock.
//!
//! **The lock is released** before the response is sent, so that a client's next request does not
//! wait for the lock of its previous request. The release costs one round trip to the store. If the
//! store reports that the lock had already been lost, the response is replaced by the 500, because
//! the handler's work may overlap with another request. If the store does not respond within half a
//! second, the response is sent, and the release continues. With
//! [`release_in_background`](HttpLockLayer::release_in_background) the response does not wait for
//! the release.
//!
//! # Caveats
//!
//! - **A client that chooses the key chooses which requests wait for it**: see [`ExtractKey`]. The
//!   same path has many spellings, so take keys from paths with [`ByPath`] or
//!   [`canonical_path`](key::canonical_path).
//! - **Nested locks on different keys can deadlock**, until a wait times out. Acquire several keys
//!   at once with a tuple of extractors: then the keys are locked in sorted order. A second lock on
//!   the same key in one request shares the first lock, even if the request waits for both at the
//!   same time. There are two exceptions: the first is a guard from [`RequestLocks::guards`], or
//!   the second layer is a [`LockLayer`] that cannot read the first handle
//!   ([`CarryHandle::outer`](lock::CarryHandle::outer)). Then the second waits for the first until
//!   the wait times out. A lock that the handler acquires from a `Locks` also waits for the
//!   request's own lock, without a limit unless one is set: use [`LockHandle::reenter`] instead. A
//!   second demand that the first lock does not cover, such as exclusive after read, is [refused at
//!   once](Clash), because the request would wait for itself, or for a request that waits for it.
//! - **Requests with clones of the same extensions count as one request**, and share their locks:
//!   two handlers with the same key then run at the same time. A handler that sends requests of its
//!   own into a router, such as batch entries, must make them with new extensions, and
//!   copy only what their handlers need. Put `Hedge` outside all lock layers.
//! - **HTTP/2 and gRPC** multiplex: a waiting request occupies a stream, not a connection. A server
//!   usually allows a client 200 streams, and a proxy or a gRPC client has one or a few connections
//!   for all requests. If waiters took all streams, no other request on the connection would be
//!   served. So [at most 100](HttpLockLayer::waiting_per_connection) requests per connection wait,
//!   if the layer knows the connection: serve with [`PerConnection`](http::PerConnection). With
//!   tonic, where the connection is unknown, keep the [queue limit](HttpLockLayer::queue_limit)
//!   well below `max_concurrent_streams`. Bodies of waiting requests are [read
//!   ahead](HttpLockLayer::read_ahead), because all bodies on a connection share one flow-control
//!   window: unread bodies would take the window from the request that holds the lock. So the inner
//!   service receives a [`RequestBody`](http::RequestBody), which contains the part already read. A
//!   [`LockLayer`] does not read bodies: for HTTP use the other two layers. No layer reads the rest
//!   of a body while the handler waits for something else.
//! - **An upgrade** (a WebSocket) releases the lock with the 101 response, or over HTTP/2 with the
//!   2xx response to CONNECT, although the socket stays open. The first such release is logged as a
//!   warning. To keep the lock as long as the socket, keep a guard from [`LockHandle::reenter`].
//! - **[`hold_until_body_end`](HttpLockLayer::hold_until_body_end)** keeps the lock until the
//!   server has taken the last frame of the body, not until the client has received it. Combine it
//!   with [`max_hold`](HttpLockLayer::max_hold), because a client that stops reading keeps the
//!   lock.
//! - The futures of all layers must be polled in a tokio runtime with timers; outside they panic.
//!
//! # gRPC with tonic
//!
//! - `Server::builder().layer(..)` takes [`HttpLockLayer`] and [`LockScopeLayer`] for a whole
//!   server; `tonic::service::LayerExt::named_layer` for a single service. Set
//!   [`grpc`](HttpLockLayer::grpc), so that refusals are gRPC responses.
//! - A service interceptor (`with_interceptor`) runs inside the layers, so a client it refuses has
//!   already waited for the lock. Put authentication outside:
//!   `Server::builder().layer(InterceptorLayer::new(..)).layer(..)`.
//! - A layer reads the key from path and metadata. For a key from the message use a
//!   [`LockScopeLayer`], and [`RequestLocks`] in the method, after the interceptors:
//!   `RequestLocks::of(request.extensions())`.
//! - To convert an error to a `tonic::Status`, pass [`LockError::grpc_trailers`] to
//!   `Status::from_header_map`.
//! - For streams set [`hold_until_body_end`](HttpLockLayer::hold_until_body_end) and
//!   [`max_hold`](HttpLockLayer::max_hold). A stream whose lock is lost ends with ABORTED.
//! - tonic's own `timeout` and `concurrency_limit_per_connection` are outside all your layers.
//!   Calls that wait for a lock use up this concurrency limit, so they can block calls for other
//!   keys. Use `tower::limit::ConcurrencyLimitLayer` inside the lock instead.
//! - The HTTP/2 flow-control windows can keep their default sizes.
//!   [`read_ahead`](HttpLockLayer::read_ahead) limits how much of a waiting call's body is
//!   buffered.
//!
//! # Errors
//!
//! Every refusal has a [`Cause`], with an HTTP status, a gRPC code and a [machine-readable
//! name](Cause::code): see [`Refusals`]. The typed [`LockError`] is in the extensions of the
//! response, so that outer layers can distinguish a refusal from a handler's response.
//!
//! # Overload
//!
//! With [`refuse_early`](HttpLockLayer::refuse_early) a request that would hardly be served within
//! its wait is refused at once. With [`deadline_from`](HttpLockLayer::deadline_from) no request
//! waits longer than its caller: it is then refused like a request whose wait timed out, with 423,
//! or 429 for permits. [`when_busy`](HttpLockLayer::when_busy) refuses requests for a busy key, or
//! lets only the newest of them wait. See [`lockcore::guide::overload`].
//!
//! # Observability
//!
//! The layers emit one `tracing` event for each request that needs a lock, at `debug`. The fields
//! are `wait_ms`, `hold_ms`, `position` (the number of waiters ahead when the request was queued),
//! `token` and `outcome`. The outcome is `served`, the code of a cause, `cancelled` for a dropped
//! request, or `unlocked` for a request served without the lock under
//! [`fail_open`](HttpLockLayer::fail_open). lockcore's own events contain the key, unless redacted.
//! For clients there is [`server_timing`](HttpLockLayer::server_timing), for handlers
//! [`LockHandle::waited`] and [`LockHandle::position`]. A [`class`](HttpLockLayer::class)
//! distinguishes uses of locks in lockcore's metrics.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `http` | [`HttpLockLayer`], [`LockScopeLayer`], [`DetachLayer`] and key extractors for HTTP requests | yes |
//! | `axum` | makes [`LockError`] an axum response: for lock-axum; includes `http` | no |
//! | `redisson` | enables lockcore's `redisson`: one queue shared with JVM services | no |
//!
//! [lockcore]: https://docs.rs/lockcore
// On docs.rs, each item shows the required feature.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without `http`, some state of a request is written but never read.
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
pub use lockcore;
pub use lockcore::LockErrorKind;
pub use refusal::{Cause, LockError};

#[cfg(feature = "http")]
pub use {
    self::http::{DetachLayer, HttpLockLayer, RequestLocks},
    key::{ByExtension, ByHeader, ByPath},
    refusal::Refusals,
    scope::LockScopeLayer,
};
