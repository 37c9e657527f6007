//! Selects the key layout of a `Locks`, the form of the keys and scripts on the server: lockcore's
//! own layout, or Redisson's, to share locks with JVMs.

use proto::ConfigError;
use proto::layout::{Layout, QUEUE};

/// The text of the error for a foreign name, the name of another program's lock, if
/// `redisson_peers` is off.
pub(crate) const NO_FOREIGN_NAMES: &str =
    "foreign names are only for locks shared with JVMs: build this Locks with redisson_peers(true)";

/// The layout of keys and scripts for locks shared with Redisson; `None` without the feature
/// `redisson`.
#[cfg(feature = "redisson")]
const SHARED: Option<&dyn Layout> = Some(redisson::REDISSON);
#[cfg(not(feature = "redisson"))]
const SHARED: Option<&dyn Layout> = None;

/// Returns Redisson's layout if `peers` is true, and lockcore's own layout otherwise. Call
/// [`check`] first, because without the feature `redisson` this returns lockcore's own layout even
/// if `peers` is true.
pub(crate) fn of(peers: bool) -> &'static dyn Layout {
    SHARED.filter(|_| peers).unwrap_or(QUEUE)
}

/// Returns an error if `peers` is true without the feature `redisson`.
pub(crate) fn check(peers: bool) -> Result<(), ConfigError> {
    if peers && SHARED.is_none() {
        let range = "unset, or lockcore built with the feature `redisson`";
        return Err(ConfigError::new("redisson_peers", "set", range));
    }
    Ok(())
}

#[cfg(all(test, not(feature = "redisson")))]
mod tests {
    use crate::{LockErrorKind, Locks, MemoryStore};

    #[tokio::test]
    async fn without_its_feature_redisson_peers_is_an_invalid_option_that_names_it() {
        let builder = Locks::builder().redisson_peers(true);
        let error = builder.on_memory(&MemoryStore::new()).expect_err("it is not built in");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        let text = error.to_string();
        assert!(text.contains("redisson_peers") && text.contains("feature `redisson`"), "{text}");
    }
}
