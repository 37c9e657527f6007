//! The greatest token seen by a process on any quorum primary.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::FencingToken;

/// Contributes to the token lower bound of each command to each primary: no command of this process
/// draws a lower token, on any primary.
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
