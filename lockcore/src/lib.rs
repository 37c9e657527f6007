//! A fair distributed lock: first come, first served, across processes and machines.
//!
//! ```
//! # async fn example() -> Result<(), lockcore::LockError> {
//! use lockcore::Locks;
//!
//! let locks = Locks::in_memory(); // or Locks::connect("redis://127.0.0.1/").await?
//!
//! let guard = locks.lock("order:42").await?; // waits in the queue, without a limit
//! println!("acquired, with fencing token {}", guard.fencing_token());
//! guard.release().await?; // or drop the guard, if the runtime continues
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! - **Fair.** Grants follow the order in which requests reached the server. No newcomer overtakes
//!   the queue, not even with [`try_lock`](Locks::try_lock).
//! - **Locks, reads and permits.** A [`lock`](Locks::lock) has a single holder, a
//!   [`read`](Locks::read) can be held by many at the same time, and a [`permit`](Locks::permit) by
//!   at most *n*. All requests for a name share one FIFO queue and exclude each other.
//! - **Fenced.** Each lock has a [fencing token](FencingToken), a number higher than all earlier
//!   tokens of the name except in the cases listed in [`guide::fencing`]. Concurrent reads share a
//!   token; permits have none.
//! - **Handed off in one round trip.** The release script grants the lock to the next waiter and
//!   sends the waiter's process a message.
//! - **Leased.** A dead holder delays the others by at most the lease. A waiter whose connection is
//!   closed does not delay them at all.
//! - **Cancel-safe.** Any future or guard can be dropped at any await point: neither a held lock
//!   nor a queue entry stays behind.
//! - **Bounded.** The time a request waits and the time a lock is held can be limited. The queue of
//!   each lock is limited, to 1 000 waiters by default.
//! - **Losses are reported.** A guard has a [deadline](LockGuard::deadline), until which the lock
//!   is certainly held, and reports a [lost](LockGuard::lost) lock before the deadline passes.
//!
//! # Where to go from here
//!
//! | topic | page |
//! |---|---|
//! | Which lock do I need? | [`guide::choosing`] |
//! | How do I name a lock? | [`guide::keys`] |
//! | What does a lease promise? | [`guide::leases`] |
//! | How do I refuse writes after the holder's lease has expired? | [`guide::fencing`] |
//! | What happens when a future is dropped? | [`guide::cancellation`] |
//! | What if more requests arrive than can be served? | [`guide::overload`] |
//! | Runtimes, and ending a process | [`guide::runtimes`] |
//! | Running on Redis | [`guide::redis`] |
//! | Several independent servers | [`guide::quorum`] |
//! | Events and metrics | [`guide::observability`] |
//! | What does an alert mean, and what is the remedy? | [`guide::alerts`] |
//! | Testing my own code | [`guide::testing`] |
//!
//! Start with [`Locks`]. [`Locks::with`] runs an async closure under a lock, stops the closure when
//! the lock is lost, and releases the lock afterwards.
//!
//! # Features
//!
//! | feature | content |
//! |---|---|
//! | `redis` (default) | the Redis store: [`Locks::connect`], also with a client of `redis` 1.x |
//! | `deadpool` | [`Locks::connect`] with a configuration of `deadpool_redis` 0.23, [`LocksBuilder::from_pool`]; includes `redis` |
//! | `tls` | `rediss://`, with rustls; see [`guide::redis`]; includes `redis` |
//! | `redisson` | one queue with JVM services: [`LocksBuilder::redisson_peers`] |
//! | `metrics` | counters and histograms through the `metrics` facade |
//! | `serde` | [`LockOptions`] and [`FencingToken`] in configuration files and messages |
//!
//! [`Locks::in_memory`] needs no server and no feature. If you use nothing else, set
//! `default-features = false`, which builds no `redis`.
// On docs.rs, each item shows the feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod backend;
mod foreign;
pub mod guide;
mod node;
pub mod operate;
mod quorum;
mod store;
mod types;

pub use api::acquire::{Acquire, TryAcquire};
pub use api::builder::LocksBuilder;
#[cfg(feature = "redis")]
pub use api::builder::Servers;
pub use api::guard::{DowngradeError, LockGuard, LostOwned, Release};
pub use api::locks::Locks;
pub use api::request::LockRequest;
pub use api::set::{AcquireAll, LockSet};
pub use api::shutdown::Shutdown;
#[cfg(feature = "tls")]
#[doc(inline)]
pub use client::Certificates;
#[cfg(feature = "redis")]
#[doc(inline)]
pub use client::{Cluster, Credentials, Sentinels};
pub use proto::{ConfigError, Demand, FencingToken, LockErrorKind, NodeId, TokenError, WhenBusy};
#[cfg(feature = "redis")]
pub use quorum::Quorum;
pub use store::memory::MemoryStore;
pub use types::error::LockError;
pub use types::hold_state::HoldState;
pub use types::key::{IntoKey, KeyError, LockKey};
pub use types::options::{LockOptions, Wait};
pub use types::trace_links::TraceLinks;
pub use types::trace_parent::TraceParent;
