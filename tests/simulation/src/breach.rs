//! Reports of broken laws.

use std::fmt;

use laws::Broken;

use crate::plan::Size;

/// Reports a broken law, with the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The run's size at that point.
    pub size: Size,
    /// The law, and the facts that break it.
    pub broken: Broken,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.size.events, self.broken)
    }
}
