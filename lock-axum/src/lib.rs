//! axum extractors that lock the resource of a request, fairly and across processes.
//!
//! A handler with a [`Locked`] argument serves one request at a time per key (an order, a seat, a
//! wallet), in order of arrival, on any number of machines. The locks come from [lockcore], on
//! Redis or in memory. Each lock has a lease, which is renewed in the background until the handler
//! ends.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use axum::http::StatusCode;
//! use axum::{Router, extract::Path, routing::post};
//! use lock_axum::{Keys, LockScopeLayer, Lockable, Locked, Locks};
//!
//! #[derive(serde::Deserialize)]
//! struct Order { id: i64 }
//!
//! impl Lockable for Order {
//!     fn lock_key(&self) -> Keys {
//!         format!("order:{}", self.id).into()
//!     }
//! }
//!
//! // While this handler runs, no other request for the same order runs, on any machine.
//! async fn pay(order: Locked<Path<Order>>) -> Result<&'static str, StatusCode> {
//!     let hold = [order.fencing_token().into(), order.id];
//!     // First raise the row's token: from now on, no earlier holder can write. `execute` fails if no
//!     // row changed: then a later holder exists.
//!     execute("UPDATE orders SET token = $1 WHERE id = $2 AND token < $1", hold).await?;
//!     // Now read the row, and do the work.
//!     // Then write, if the row still has this hold's token.
//!     execute("UPDATE orders SET paid = true WHERE id = $2 AND token = $1", hold).await?;
//!     Ok("paid")
//! }
//!
//! # async fn execute(_sql: &str, _parameters: [i64; 2]) -> Result<(), StatusCode> { Ok(()) }
//! // For locks on Redis, end with `.connect("redis://127.0.0.1/").await?`.
//! let locks = Locks::builder().namespace("shop").in_memory()?;
//! let app = Router::new()
//!     .route("/orders/{id}/pay", post(pay))
//!     .layer(LockScopeLayer::new(locks));
//! # use tower::ServiceExt as _;
//! # let request = axum::extract::Request::post("/orders/42/pay").body(axum::body::Body::empty()).unwrap();
//! # assert_eq!(app.oneshot(request).await.unwrap().status(), 200);
//! # Ok(())
//! # }
//! ```
//!
//! # Why there is a layer: a guard in an argument may be dropped early
//!
//! An extractor that *owned* the lock guard could release the lock before the handler starts. An
//! `async fn` keeps its arguments until it returns, but a closure drops unused arguments before its
//! body runs:
//!
//! ```
//! # use axum::{Router, extract::Path, routing::post};
//! # use lock_axum::{Keys, Lockable, Locked};
//! # #[derive(serde::Deserialize)]
//! # struct Order { id: u64 }
//! # impl Lockable for Order { fn lock_key(&self) -> Keys { format!("order:{}", self.id).into() } }
//! # async fn charge() {}
//! # let app: Router =
//! Router::new().route("/orders/{id}/pay", post(|_order: Locked<Path<Order>>| async {
//!     charge().await; // `_order` is dropped by now, and so would be a guard inside.
//! }));
//! ```
//!
//! This compiles, passes every test with a single client, and locks nothing. Even an `async fn`
//! drops its arguments before axum converts the returned value into a response. So the guard is
//! never in the argument: [`LockScopeLayer`] keeps it until the response is ready, or until [the
//! response body has ended](LockScopeLayer::hold_until_body_end), and [`Locked`] is only a handle.
//! Without the layer, a [`Locked`] rejects the request with 500, and a log event explains why.
//!
//! [`OwnedLock`] *is* a guard, for work that outlives the response, such as a WebSocket or a task.
//! Bind it to a name and move it into that work, because a closure drops an unused `OwnedLock` at
//! once, as described above.
//!
//! # Which extractor
//!
//! | | acquires | holds until |
//! |---|---|---|
//! | [`Locked<E>`](Locked) | after `E` has been extracted: before the body is read for `Path`, after it for `Json` | the response, or the end of its body |
//! | [`ReadLocked<E>`](ReadLocked), [`WriteLocked<E>`](WriteLocked) | the same; reads run concurrently, a write is exclusive | the same |
//! | [`PermitLocked<E>`](PermitLocked) | the same, but a permit; `E` returns the limit ([`Limited`]) | the same |
//! | [`LockedBody<K, E>`](LockedBody) | the lock named by `K`, after the body has been read as `E`, which must read it whole | the same |
//! | [`OwnedLock<E>`](OwnedLock) | as `Locked` | it is dropped |
//! | `Option<Locked<E>>` | as `Locked`; `None` if the wait times out, the queue is full or the request is refused early: then `E` is dropped, too; every other error rejects the request | the same |
//! | [`lock_by`]`(\|Path(id): Path<u64>\| ..)` | around a route, without a struct or a change to the handler | the same |
//!
//! **All of these need a [`LockScopeLayer`] around the router.** Under an [`HttpLockLayer`] alone
//! they respond with 500 and log that the `LockScopeLayer` is missing, because an `HttpLockLayer`
//! keeps only the lock that it acquires itself before the handler. A route may have both layers.
//!
//! **Use `LockedBody` when the key is in the path and the request has a body.** Body extractors
//! come last, so a `Locked` in front of them would hold the lock while a slow upload is read.
//!
//! # Which key
//!
//! `E` is any [`Lockable`] extractor:
//!
//! - [`Path<T>`](axum::extract::Path), `Query<T>`, `Json<T>`, `Form<T>`, `Extension<T>` where `T`
//!   is `Lockable`: your own struct, or a tuple struct such as `struct Order(u64)`. `/orders/42`
//!   and `/orders/4%32` are the same `u64`.
//! - [`OriginalUri`](axum::extract::OriginalUri): the whole path, in [canonical
//!   form](lock_tower::key::canonical_path).
//! - [`MatchedPath`](axum::extract::MatchedPath): one lock for the whole route.
//! - a tuple of these: all their locks, acquired in an order that cannot deadlock.
//! - **your own**: any extractor; it may read headers, a session, the state, the body.
//!
//! [`Keys`] can also set options for this request: the maximum wait, the lease, the label.
//!
//! # Where in the router
//!
//! | | locks |
//! |---|---|
//! | `Router::layer(HttpLockLayer)` | every request, including unknown paths (423 instead of 404 while the key is held), other methods, OPTIONS and CORS preflights |
//! | `Router::route_layer(HttpLockLayer)` | every request whose path matches a route, with any method |
//! | `post(pay).layer(HttpLockLayer)` | every request to that path, with any method: the 405 response comes from inside the method router |
//! | `post(pay).route_layer(HttpLockLayer)` | only requests with a method that this method router serves |
//! | `Router::layer(LockScopeLayer)` and a [`Locked`] | only requests that reach a handler with a `Locked` |
//!
//! A [`lock_by`] in the same positions locks the same requests. With
//! [`methods`](ExtractKeyExt::methods), requests with other methods pass a layer without a lock.
//! Put a layer that handles CORS preflights outside.
//!
//! **A [`Locked`] acquires after all layers.** So a `ConcurrencyLimit` on its route is occupied by
//! requests that wait, a timeout includes the wait, and a transaction begins in the handler. For
//! routes with such layers use [`lock_by`]: [where in the stack](lock_tower#where-in-the-stack).
//!
//! # Two locks
//!
//! Two `Locked` arguments acquire their locks in argument order. They can deadlock with a handler
//! that acquires them in the opposite order, until a wait times out. Use a single argument:
//! `Locked<(A, B)>` sorts them.
//!
//! A key that occurs twice in a request (from an outer lock layer, another extractor or a tuple) is
//! locked once, and the lock is shared. There are two exceptions. After an `OwnedLock`, an
//! extractor with the same key waits until the `OwnedLock` is released, because the layer does not
//! know when this will be. A lock that the handler acquires through a `Locks` is not shared either,
//! so it waits until this request releases the lock: use [`reenter`](Locked::reenter) instead. Two
//! cases are refused at once, because the request would wait for itself: further permits under a
//! permit for the same name, and a [`WriteLocked`] under a read lock for the same name.
//!
//! # In the handler
//!
//! - [`fencing_token`](Locked::fencing_token): store the token before you read, and write only
//!   while the stored token is unchanged: see [`lockcore::guide::fencing`]. A token that is checked
//!   only in the write does not protect a handler that reads first. A lock alone makes overlap
//!   rare, not impossible.
//! - If the lock is lost while the handler runs, for example because the lease could not be
//!   renewed, the handler is dropped and the response is 500, unless the layer is set to
//!   [`OnLost::Continue`]. [`lost`](Locked::lost) and [`deadline`](Locked::deadline) report the
//!   loss to the handler.
//! - If the client disconnects, the server drops the handler at the current await point, and the
//!   lock is released. Use [`detach`](Locked::detach) for work that must finish once started.
//! - [`release`](Locked::release) releases the lock before the response.
//! - All of these work with `?` in a handler that returns `Result<_, LockError>`, because a
//!   [`LockError`] is a response, rendered by the layer. Errors from lockcore's own calls convert
//!   to it as well.
//!
//! ```
//! # use axum::extract::Path;
//! # use lock_axum::{Keys, LockError, Lockable, Locked};
//! # #[derive(serde::Deserialize)]
//! # struct Order { id: u64 }
//! # impl Lockable for Order { fn lock_key(&self) -> Keys { format!("order:{}", self.id).into() } }
//! # async fn charge() {}
//! # async fn mail() {}
//! async fn pay(order: Locked<Path<Order>>) -> Result<&'static str, LockError> {
//!     order.detach(charge()).await?;
//!     order.release().await?; // the next request may acquire the lock
//!     mail().await;
//!     Ok("paid")
//! }
//! ```
//!
//! # Refusals
//!
//! | cause | status |
//! |---|---|
//! | another request holds the lock, and the wait times out | 423, with `Retry-After` |
//! | all permits are in use, and the wait times out | 429, with `Retry-After` |
//! | the queue is full | 429, with `Retry-After` |
//! | on HTTP/2, the body is too large to be [read while the request waits](LockScopeLayer::read_ahead) | 413, with `Retry-After` |
//! | on HTTP/2, the bodies of waiting requests fill [the layer's buffer](LockScopeLayer::read_ahead_total) | 503, with `Retry-After` |
//! | the body [fails while the request waits](LockScopeLayer::read_ahead), mostly because the client has disconnected | 400 |
//! | the HTTP/2 connection has reached the [limit of waiting requests](LockScopeLayer::waiting_per_connection) | 503, with `Retry-After` |
//! | the request is [refused early](LockScopeLayer::refuse_early) | 503, with `Retry-After` |
//! | a newer request [waits instead](LockScopeLayer::when_busy) | 409 |
//! | Redis is unavailable or refuses to serve | 503, with `Retry-After` if the cause can be temporary |
//! | a hold is lost while the handler runs, or while another extractor waits for a lock | 500, because few gateways retry it |
//! | a hold is lost while the same extractor waits for another lock | 503 |
//! | the key is not a valid lock name | 400 |
//! | the key is a path with a number not in [canonical form](lock_tower::key::canonical_path), such as `/orders/07` | 400, with the code `lock-key-spelling` |
//! | no layer; a write lock for a name the same request has read-locked; an option or a number of permits out of range | 500 |
//! | the extractor `E` rejects the request | the status set by `E` |
//!
//! Response bodies are problem+json; [`Refusals`] and the layer's methods change them. Like axum's
//! own rejections, these are logged under the target `axum::rejection` at `trace`, with the
//! response status.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `form` | [`Lockable`] for `Form` | yes |
//! | `json` | [`Lockable`] for `Json` | yes |
//! | `query` | [`Lockable`] for `Query` | yes |
//! | `redis` | lockcore's: `Locks::connect` | yes |
//! | `deadpool` | lockcore's: `LocksBuilder::from_pool`; includes `redis` | no |
//! | `tls`, `redisson`, `metrics`, `serde` | lockcore's | no |
//!
//! [lockcore]: https://docs.rs/lockcore
// On docs.rs, each item shows the feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod limited;
mod lock_by;
mod lockable;
mod locked;
pub mod mode;
mod owned;
mod path;
mod rejection;

pub use body::LockedBody;
pub use limited::Limited;
pub use lock_by::{KeyFn, LockBy, LockByFuture, LockByService, lock_by, lock_by_with_state};
pub use lockable::Lockable;
pub use locked::{Locked, PermitLocked, ReadLocked, WriteLocked};
pub use owned::OwnedLock;
pub use path::{ByMatchedPath, by_path};
pub use rejection::{LockedBodyRejection, LockedRejection};

pub use lock_tower::http::{Deadline, DeadlineSource, PerConnection, RequestBody};
pub use lock_tower::{
    ByHeader, Cause, DetachLayer, ExtractKeyExt, HttpLockLayer, IntoKeys, KeyError, Keys,
    LockError, LockHandle, LockScopeLayer, OnLost, Refusals, RequestLocks, ServiceBuilderExt,
};
pub use lockcore::{FencingToken, LockGuard, Locks, WhenBusy};
pub use {lock_tower, lockcore};
