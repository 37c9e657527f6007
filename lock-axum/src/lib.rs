//! axum extractors that lock the resource of a request, fairly and across processes.
//!
//! A handler that takes a [`Locked`] serves one request at a time for each key (an order, a seat, a
//! wallet), in the order in which the requests arrive, on whichever machine they arrive. The locks
//! are [lockcore]'s, on Redis or in memory. A watchdog renews each for as long as its handler runs.
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
//! // While this runs, no other request for the same order does, on any machine.
//! async fn pay(order: Locked<Path<Order>>) -> Result<&'static str, StatusCode> {
//!     let parameters = [order.fencing_token().into(), order.id];
//!     // First raise the row's token: from here on, no earlier holder can write.
//!     execute("UPDATE orders SET token = $1 WHERE id = $2 AND token < $1", parameters).await?;
//!     // Now read the row, and do the work. Then write, while the token is still that of this hold.
//!     execute("UPDATE orders SET paid = true WHERE id = $2 AND token = $1", parameters).await?;
//!     Ok("paid")
//! }
//!
//! # async fn execute(_sql: &str, _parameters: [i64; 2]) -> Result<(), StatusCode> { Ok(()) }
//! let locks = Locks::builder().namespace("shop").in_memory()?; // or .connect("redis://127.0.0.1/").await?
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
//! An extractor that *owned* its guard could release the lock before the handler begins. The
//! arguments of an `async fn` are kept to its end, but a closure drops those that it does not use
//! before its body runs:
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
//!     charge().await; // `_order` is dropped by now. A guard in it would be, too.
//! }));
//! ```
//!
//! It compiles, it passes every test with one client, and it locks nothing. And even an `async fn`
//! drops its arguments before its answer is turned into a response. So here the guard is never in
//! the argument. [`LockScopeLayer`] keeps it until the response is there, or until [its body has
//! ended](LockScopeLayer::hold_until_body_end), and [`Locked`] is only a handle. Without the layer
//! a [`Locked`] refuses with 500, and the log says why.
//!
//! [`OwnedLock`] *is* a guard, for work that outlives the response: a WebSocket, a task. Name it
//! and move it where it belongs. As an unused argument of a closure it is dropped at once, as
//! described above.
//!
//! # Which extractor
//!
//! | | acquires | holds until |
//! |---|---|---|
//! | [`Locked<E>`](Locked) | when `E` has been extracted: for `Path` before the body is read, for `Json` after it | the response, or the end of its body |
//! | [`ReadLocked<E>`](ReadLocked), [`WriteLocked<E>`](WriteLocked) | the same; reads run together, a write is a lock | the same |
//! | [`PermitLocked<E>`](PermitLocked) | the same, one permit of the limit of `E` ([`Limited`]) | the same |
//! | [`LockedBody<K, E>`](LockedBody) | the lock that `K` names, when the body has been read as `E` | the same |
//! | [`OwnedLock<E>`](OwnedLock) | as `Locked` | it is dropped |
//! | `Option<Locked<E>>` | as `Locked`; `None` if the wait times out, the queue is full or the request is refused early, all else refuses | the same |
//! | [`lock_by`]`(\|Path(id): Path<u64>\| ..)` | around a route, without a struct and without a change of the handler | the same |
//!
//! **All of these need a [`LockScopeLayer`] around the router.** Under an [`HttpLockLayer`] alone
//! they answer 500, and the log says that there is no `LockScopeLayer`: an `HttpLockLayer` keeps
//! only the lock that it acquires itself, before the handler. Both layers may be around one route.
//!
//! **Use `LockedBody` where the key is in the path and there is a body**: extractors that read
//! bodies are last, so with a `Locked` before them a slow upload is read under the lock.
//!
//! # Which key
//!
//! `E` is any [`Lockable`] extractor:
//!
//! - [`Path<T>`](axum::extract::Path), `Query<T>`, `Json<T>`, `Form<T>`, `Extension<T>` where `T`
//!   is: a struct of yours, also a tuple struct such as `struct Order(u64)`. `/orders/42` and
//!   `/orders/4%32` are one `u64`.
//! - [`OriginalUri`](axum::extract::OriginalUri): the whole path, in its [one
//!   spelling](lock_tower::key::canonical_path).
//! - [`MatchedPath`](axum::extract::MatchedPath): one lock for the whole route.
//! - a tuple of these: all their locks, in an order that cannot deadlock.
//! - **your own**: any extractor, which may read headers, a session, the state, the body.
//!
//! [`Keys`] can also carry the options of one request: its wait, its lease, its label.
//!
//! # Where in the router
//!
//! | | locks |
//! |---|---|
//! | `Router::layer(HttpLockLayer)` | every request: also unknown paths (423 in place of 404 while the key is held), other methods, OPTIONS and CORS preflights |
//! | `Router::route_layer(HttpLockLayer)` | every request whose path has a route, with any method |
//! | `post(pay).layer(HttpLockLayer)` | every request of that path, with any method: a method router has the answer 405 inside |
//! | `post(pay).route_layer(HttpLockLayer)` | every request that this method router serves, and no other |
//! | `Router::layer(LockScopeLayer)` and a [`Locked`] | only requests that reach a handler with a `Locked` |
//!
//! The requests that a [`lock_by`] locks depend on its place in the same way.
//! [`methods`](ExtractKeyExt::methods) lets requests of other methods pass a layer. Put a layer
//! that answers CORS preflights outside.
//!
//! # Two locks
//!
//! Two `Locked` arguments acquire their locks in the order of the arguments. They can deadlock with
//! a handler that acquires them the other way round, until one of the waits times out. Take them as
//! one: `Locked<(A, B)>` sorts them.
//!
//! The same key twice in one request, from a lock layer outside, another extractor or a tuple, is
//! one hold. (Not after an `OwnedLock`: the layer does not know when that is released. Nor is a
//! lock that the handler acquires from a `Locks` shared: it waits for this hold. Take
//! [`reenter`](Locked::reenter).) Permits of a name that the request has permits of already are
//! refused at once, as is a [`WriteLocked`] of a name that it reads: it would wait for itself.
//!
//! # In the handler
//!
//! - [`fencing_token`](Locked::fencing_token): store it before you read, and write only while it is
//!   still there: see [`lockcore::guide::fencing`]. A token in the write alone does not protect a
//!   handler that reads first. A lock alone makes overlap rare, not impossible.
//! - If the hold is lost while the handler runs, the handler is dropped and the answer is 500,
//!   unless the layer says [`OnLost::Continue`]. [`lost`](Locked::lost) and
//!   [`deadline`](Locked::deadline) show it to the handler.
//! - If the client disconnects, servers drop the handler at its current await point, and the lock
//!   is released. Put work that must finish once it has begun into [`detach`](Locked::detach).
//! - [`release`](Locked::release) releases the lock before the answer.
//! - All of these take `?` in a handler that returns `Result<_, LockError>`: a [`LockError`] is a
//!   response, rendered by the layer. It takes the errors of lockcore's own calls as well.
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
//!     order.release().await?; // the next request may have the lock
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
//! | on HTTP/2 the body is too large to be [read while the request waits](LockScopeLayer::read_ahead) | 413, with `Retry-After` |
//! | on HTTP/2 the bodies of requests that wait take [all the room of the layer](LockScopeLayer::read_ahead_total) | 503, with `Retry-After` |
//! | its body [fails while the request waits](LockScopeLayer::read_ahead): the client is gone, mostly | 400 |
//! | as many requests of its HTTP/2 connection [wait as may](LockScopeLayer::waiting_per_connection) | 503, with `Retry-After` |
//! | the request is [refused early](LockScopeLayer::refuse_early) | 503, with `Retry-After` |
//! | a newer request [waits in its place](LockScopeLayer::when_busy) | 409 |
//! | Redis is unavailable, or refuses to serve | 503, with `Retry-After` if it may pass by itself |
//! | a hold is lost while the handler runs | 500, which few gateways repeat |
//! | a hold is lost while another is waited for | 503 |
//! | the key cannot be a lock's name | 400 |
//! | a path that is the key has a number in [another spelling](lock_tower::key::canonical_path), such as `/orders/07` | 400, with the code `lock-key-spelling` |
//! | no layer; a write of a name that the same request reads; an option or a number of permits out of its range | 500 |
//! | the extractor `E` rejects the request | its own |
//!
//! The bodies are problem+json. [`Refusals`] and the layer's methods change them. Rejections are
//! logged as axum logs its own, under the target `axum::rejection` at `trace`, with the status that
//! the client gets.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `form` | [`Lockable`] for `Form` | yes |
//! | `json` | [`Lockable`] for `Json` | yes |
//! | `query` | [`Lockable`] for `Query` | yes |
//! | `redis` | lockcore's: `Locks::connect` | yes |
//! | `deadpool` | lockcore's: `LocksBuilder::from_pool`; includes `redis` | yes |
//! | `tls`, `redisson`, `metrics`, `serde` | lockcore's | no |
//!
//! [lockcore]: https://docs.rs/lockcore
// On docs.rs, each item shows the feature that it needs.
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
pub use lock_by::{KeyFn, LockBy, LockByService, lock_by, lock_by_with_state};
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
