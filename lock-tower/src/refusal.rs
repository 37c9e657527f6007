//! The errors for which a request is refused, and their responses.

mod error;
#[cfg(feature = "http")]
pub(crate) mod http;

pub use error::{Cause, LockError};
#[cfg(feature = "http")]
pub use http::{Refusals, problem::problem};
