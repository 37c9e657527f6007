//! The error for conflicting demands for the same name in one request.

use std::error::Error;
use std::fmt;

use lockcore::Demand;

/// The two demands with which a request wants to lock the same name, and which cannot be combined,
/// such as a read and an exclusive lock. The request is refused, because it would wait for itself,
/// or similar requests would wait for each other.
///
/// The text names both demands. To avoid the error, acquire the name once, where the request first
/// needs it, with everything that the request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clash {
    pub(crate) first: Demand,
    pub(crate) second: Demand,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second } = self;
        write!(
            f,
            "a request cannot acquire the same name as {first} and as {second}: acquire the name \
             once, with all that the request needs"
        )
    }
}

impl Error for Clash {}
