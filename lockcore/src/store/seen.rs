//! The greatest fencing token that a process has seen on any quorum primary.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::FencingToken;

/// The greatest fencing token that this process has seen on any quorum primary; 0 before the first.
/// A command to any primary draws only tokens above it, so this process never receives a lower
/// token later.
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
