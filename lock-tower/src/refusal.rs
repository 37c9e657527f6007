//! Why a request is refused, and what the refusal looks like.

mod error;
#[cfg(feature = "http")]
pub(crate) mod http;

pub use error::{Cause, LockError};
