//! The time for which holders have held. No server tells it: a holder's age begins when it asked.
//! So it is the time for which looks have seen it hold.

use std::collections::HashMap;
use std::time::Duration;

use lockcore::Participant;
use tokio::time::Instant;

/// The holders of the last look, and since when each has been seen.
#[derive(Debug)]
pub(super) struct Seen {
    since: HashMap<String, Since>,
    at: Instant,
    /// The last look saw all holders: one that comes later holds since then.
    is_whole: bool,
}

#[derive(Debug, Clone, Copy)]
struct Since {
    at: Instant,
    is_least: bool,
}

/// The time for which a holder has held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) time: Duration,
    /// It held already when it was first looked for.
    pub(super) is_least: bool,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self { since: HashMap::new(), at: Instant::now(), is_whole: false }
    }

    /// Takes in the holders that a look has seen; all of them, if it is whole.
    pub(super) fn note<'a>(
        &mut self,
        holders: impl Iterator<Item = &'a Participant>,
        at: Instant,
        is_whole: bool,
    ) {
        let mut before = std::mem::take(&mut self.since);
        for holder in holders {
            let new = Since { at, is_least: !self.is_whole };
            let since = before.remove(&holder.member).unwrap_or(new);
            self.since.insert(holder.member.clone(), since);
        }
        self.at = at;
        self.is_whole = is_whole;
    }

    /// Later looks see holders anew: nothing was seen for a while.
    pub(super) fn pause(&mut self) {
        self.is_whole = false;
    }

    /// Since the last look.
    pub(super) fn held(&self, holder: &Participant) -> Option<Held> {
        let since = self.since.get(&holder.member)?;
        Some(Held { time: self.at.duration_since(since.at), is_least: since.is_least })
    }
}
