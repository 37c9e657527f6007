//! A fair distributed lock.

mod error;
mod key;
mod member;
mod options;
mod store;
mod token;

mod memory;
mod protocol;
mod redis;

pub use error::{LockError, LockErrorKind};
pub use key::{KeyError, LockKey, MAX_KEY_BYTES};
pub use member::NodeId;
pub use options::{ConfigError, LockOptions, MAX_LEASE, MIN_LEASE};
pub use token::{FencingToken, TokenError};
