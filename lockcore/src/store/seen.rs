//! The greatest token that a process has seen on any primary of its quorum.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::FencingToken;

/// Part of the floor of each command to each of the primaries: no token that is drawn after this
/// one was seen is below it, on whichever of them.
#[derive(Debug, Default)]
pub(crate) struct SeenTokens(AtomicU64);

impl SeenTokens {
    pub(crate) fn note(&self, token: FencingToken) {
        self.0.fetch_max(token.get(), Ordering::AcqRel);
    }

    pub(crate) fn greatest(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
