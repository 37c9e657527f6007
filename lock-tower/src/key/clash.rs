//! Two demands of one name, which one request cannot have.

use std::error::Error;
use std::fmt;

use lockcore::Demand;

/// Two demands of one name that one request cannot have: it would wait for itself, requests of its
/// kind would wait for each other, or one of the demands is a mistake.
///
/// The text names both demands. Ask once, where the request first needs the name, for all that it
/// needs of the name.
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
            "one request cannot have one name as {first} and as {second}: \
             ask once, for all that it needs of the name"
        )
    }
}

impl Error for Clash {}
