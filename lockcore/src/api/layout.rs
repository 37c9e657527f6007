//! Selects the key layout of a `Locks`, the form of the keys and scripts on the server: lockcore's
//! own layout, or Redisson's, to share locks with JVMs.

use proto::ConfigError;
use proto::layout::{Layout, QUEUE};

/// The error detail for a foreign name without `redisson_peers`.
pub(crate) const NO_FOREIGN_NAMES: &str =
    "foreign names are only for locks shared with JVMs: build this Locks with redisson_peers(true)";

/// Redisson's layout; `None` without the feature `redisson`.
#[cfg(feature = "redisson")]
const SHARED: Option<&dyn Layout> = Some(redisson::REDISSON);
#[cfg(not(feature = "redisson"))]
const SHARED: Option<&dyn Layout> = None;

/// Returns the layout for this value of `redisson_peers`, which [`check`] must have accepted
/// before.
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
