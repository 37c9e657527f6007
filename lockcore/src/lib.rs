//! A fair distributed lock.

mod acquire;
mod attempt;
mod builder;
mod engine;
mod error;
mod guard;
mod heartbeat;
mod hold;
mod inspection;
#[cfg(feature = "unstable-internals")]
#[doc(hidden)]
pub mod internals;
mod key;
mod locks;
mod member;
mod memory;
mod observe;
mod options;
mod protocol;
mod reaper;
mod redis;
mod request;
mod schedule;
mod shutdown;
mod status;
mod store;
mod token;
mod waiters;
mod watchdog;

pub use acquire::{Acquire, TryAcquire};
pub use builder::LocksBuilder;
pub use error::{LockError, LockErrorKind};
pub use guard::{HoldState, LockGuard, Release};
pub use inspection::{LockInspection, Participant};
pub use key::{KeyError, LockKey, MAX_KEY_BYTES};
pub use locks::Locks;
pub use member::NodeId;
pub use memory::MemoryStore;
pub use options::{ConfigError, LockOptions, MAX_LEASE, MIN_LEASE};
pub use request::LockRequest;
pub use shutdown::Shutdown;
pub use status::{Connection, Status};
pub use token::{FencingToken, TokenError};
