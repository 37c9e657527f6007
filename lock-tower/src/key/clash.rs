//! Conflicting demands for the same name in a request.

use std::error::Error;
use std::fmt;

use lockcore::Demand;

/// Two conflicting demands for the same name in a request: the request would wait for itself,
/// similar requests would wait for each other, or a demand is a mistake.
///
/// The text names both demands. Acquire the name once, where the request first needs it, with
/// everything the request needs.
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
