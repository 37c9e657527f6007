//! How the watchers of a hold learn that it is lost.

use std::sync::OnceLock;

use tokio_util::sync::CancellationToken;

use crate::foreign;

/// The cancellation tokens of a hold, cancelled once the hold is lost. If the waker of one watcher
/// panics, the other watchers of the token and of its child tokens are not woken. So the guards
/// wait on a separate token, with wakers that do not panic. The tokens of callers are children of
/// one token.
#[derive(Debug, Default)]
pub(crate) struct Loss {
    /// The token on which the guards wait.
    ours: OnceLock<CancellationToken>,
    /// The parent of the tokens for callers.
    theirs: OnceLock<CancellationToken>,
}

impl Loss {
    /// Returns the token on which the guards wait.
    pub(crate) fn token(&self) -> &CancellationToken {
        self.ours.get_or_init(CancellationToken::new)
    }

    /// Returns another token for a caller.
    pub(crate) fn token_for_caller(&self) -> CancellationToken {
        self.theirs.get_or_init(CancellationToken::new).child_token()
    }

    /// Cancels all tokens. This runs code from outside this crate, so no mutex may be locked during
    /// this call.
    pub(crate) fn cancel(&self) {
        for token in [&self.theirs, &self.ours] {
            foreign::call("a waker", || token.get_or_init(CancellationToken::new).cancel());
        }
    }
}
