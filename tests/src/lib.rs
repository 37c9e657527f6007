//! The harness of the whole-system tests: a real `redis-server` per suite, and faults around it.
//!
//! The harness panics with a sentence that names the error; it never skips. It never waits for a
//! fixed time: every wait is for a condition, and is bounded.
//!
//! ```no_run
//! # async fn example() {
//! use lock_tests::{Connections, Monitor, Proxy, Raw, RedisServer};
//!
//! let server = RedisServer::start();
//! let proxy = Proxy::start(server.address()); // give `proxy.url()` to the code under test
//! let monitor = Monitor::start(server.address());
//! let mut redis = Raw::connect(&server.url()).await; // for assertions, past the proxy
//!
//! proxy.cut(Connections::Subscriptions).await;
//! assert_eq!(redis.keys("*").await, Vec::<String>::new());
//! let commands = monitor.stop();
//! # }
//! ```

pub mod acl;
pub mod chaos;
#[cfg(feature = "http")]
pub mod http;
pub mod protocol;
pub mod signal;

mod child;
mod clustered;
mod commandstats;
mod delay;
mod disk;
mod eventually;
mod expiry;
mod failovers;
mod fake;
mod front;
mod grants;
mod layout;
mod leash;
mod locks;
mod log;
mod monitor;
mod monitor_line;
mod options;
mod port;
mod postgres;
mod preload;
mod process;
mod proxy;
mod raw;
mod refusal;
mod resp;
mod server;
mod server_clock;
mod watched;
mod watcher;
mod wire;

pub use child::LockChild;
pub use clustered::Clustered;
pub use commandstats::{CommandStat, CommandStats};
pub use delay::Delay;
pub use disk::Disk;
pub use eventually::{eventually, eventually_some};
pub use expiry::EXPIRY;
pub use failovers::{Failovers, Replaced, Spell};
pub use fake::FakeServer;
pub use front::Front;
pub use grants::Grants;
pub use layout::{
    COUNTER, PATIENCE_MS, aside_key, holds_key, lock_key, patience_key, queue_key, tombstones_key,
};
pub use leash::Leash;
pub use locks::{LIMIT, free, is_held, queued};
pub use log::Log;
pub use monitor::Monitor;
pub use monitor_line::{MonitorLine, Source};
pub use options::RedisOptions;
pub use port::Port;
pub use postgres::Postgres;
pub use proxy::{Connections, Fault, Flow, Proxy, Request};
pub use raw::Raw;
pub use refusal::refused_unchanged;
pub use server::RedisServer;
pub use server_clock::ServerClock;
pub use watched::{Watched, followers};
pub use watcher::Watcher;

/// The examples of the READMEs, which have to compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../lockcore/README.md")]
#[doc = include_str!("../../lock-tower/README.md")]
#[doc = include_str!("../../lock-tower/idempotency/README.md")]
#[doc = include_str!("../../lock-axum/README.md")]
#[doc = include_str!("../../lock-axum/dashboard/README.md")]
pub struct Readme;

/// The first chapter's examples, which have to compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/ten-minutes.md")]
pub struct TenMinutes;

/// The deployment examples, which have to compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/deploy.md")]
pub struct Deploy;

/// The examples of the recipes, which have to compile.
#[cfg(doctest)]
pub mod recipes {
    #[doc = include_str!("../../docs/recipes/agent-session.md")]
    pub struct AgentSession;

    #[doc = include_str!("../../docs/recipes/webhooks.md")]
    pub struct Webhooks;

    #[doc = include_str!("../../docs/recipes/payments.md")]
    pub struct Payments;

    #[doc = include_str!("../../docs/recipes/jobs.md")]
    pub struct Jobs;

    #[doc = include_str!("../../docs/recipes/migrating.md")]
    pub struct Migrating;

    #[doc = include_str!("../../docs/recipes/read-write.md")]
    pub struct ReadWrite;
}
