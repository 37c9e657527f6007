//! The errors that refuse a request, and their responses.

mod error;
#[cfg(feature = "http")]
pub(crate) mod http;

pub use error::{Cause, LockError};
#[cfg(feature = "http")]
pub use http::{Refusals, problem::problem};
