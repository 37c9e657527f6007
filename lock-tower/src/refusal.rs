//! The errors with which requests are refused, and the responses made from them.

mod error;
#[cfg(feature = "http")]
pub(crate) mod http;

pub use error::{Cause, LockError};
#[cfg(feature = "http")]
pub use http::{Refusals, problem::problem};
