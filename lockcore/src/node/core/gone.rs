//! The members that the server last said are gone.
//!
//! Different tasks take in answers, so two answers may change places. An answer that is older than
//! the release of a hold may still tell of that hold: it is nothing to give back. Nothing but the
//! release itself shows this: the server's clock may be set between two answers.

use std::collections::VecDeque;

use crate::node::moment::Moment;

/// More releases than this are not answered while one answer waits for its turn. If they are, one
/// leave is sent that finds nothing.
const REMEMBERED: usize = 64;

/// Numbers, and when the answer was taken in that said that their member is gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Gone(VecDeque<(u64, Moment)>);

impl Gone {
    pub(super) fn remember(&mut self, number: u64, heard: Moment) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((number, heard));
    }

    /// Another server may answer from now on, which does not know of it.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    #[cfg(feature = "unstable-internals")]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, Moment)> {
        self.0.iter().copied()
    }

    /// Whether the answer to what was sent then may be older than the member's end.
    pub(super) fn since(&self, number: u64, sent: Moment) -> bool {
        self.0.iter().any(|(gone, heard)| *gone == number && sent <= *heard)
    }
}
