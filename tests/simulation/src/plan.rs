//! What happens in a run, and how often.

use std::fmt;

/// A run: everything in it follows from this.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// Calls of a table or of the protocol's function.
    pub events: u64,
    /// Processes at a time.
    pub nodes: u64,
    /// Callers of each.
    pub callers: u64,
    /// Locks that they share.
    pub locks: u64,
    /// What goes wrong.
    pub faults: Faults,
}

/// One in so many; 0 is never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Requests after which their connection breaks: what is on its way is not answered, and may run up to a minute later.
    pub breaks: u64,
    /// Messages that are lost.
    pub lost_messages: u64,
    /// Messages after which the subscription is cut.
    pub cuts: u64,
    /// Requests or replies that are late by up to four seconds.
    pub late: u64,
    /// Events of a node after which its process is killed; another takes its place.
    pub kills: u64,
    /// Ticks after which a process is stopped for up to 20 s.
    pub stops: u64,
    /// Attempts that are cancelled, whenever that may be.
    pub cancels: u64,
    /// Grants whose caller comes late, or never before a claim is over.
    pub unread: u64,
    /// Requests that the server refuses for a while (full, read-only).
    pub refusals: u64,
}

impl Plan {
    /// The kinds of runs, by name.
    pub const KINDS: [(&'static str, Faults); 5] = [
        ("calm", CALM),
        ("cancels", Faults { cancels: 3, unread: 50, ..CALM }),
        (
            "network",
            Faults { breaks: 400, lost_messages: 30, cuts: 300, late: 200, cancels: 20, ..CALM },
        ),
        ("processes", Faults { kills: 2_000, stops: 3_000, cancels: 20, ..CALM }),
        (
            "everything",
            Faults {
                breaks: 800,
                lost_messages: 60,
                cuts: 600,
                late: 400,
                kills: 5_000,
                stops: 5_000,
                cancels: 10,
                unread: 100,
                refusals: 500,
            },
        ),
    ];
}

const CALM: Faults = Faults {
    breaks: 0,
    lost_messages: 0,
    cuts: 0,
    late: 0,
    kills: 0,
    stops: 0,
    cancels: 0,
    unread: 0,
    refusals: 0,
};

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Calls of a table or of the protocol's function.
    pub events: u64,
    /// Guards that callers had.
    pub holds: u64,
    /// Of these, those that were lost.
    pub lost: u64,
    /// Processes that were killed.
    pub killed: u64,
    /// Virtual milliseconds.
    pub lasted_ms: u64,
    /// What all of it boils down to: two runs that differ anywhere differ here.
    pub digest: u64,
}

/// A law that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// At which event.
    pub event: u64,
    /// Which, and how.
    pub law: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.law)
    }
}
