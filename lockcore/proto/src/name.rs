//! The full name of a lock.

use std::sync::Arc;

/// The resolved name N of a lock, as it is in the store: namespace and encoding applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for LockName {
    fn from(name: &str) -> Self {
        Self(Arc::from(name))
    }
}

impl From<Arc<str>> for LockName {
    fn from(name: Arc<str>) -> Self {
        Self(name)
    }
}
