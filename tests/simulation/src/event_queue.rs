//! The event queue: future events, in order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use proto::node::StoreRequest;
use proto::{Answer, Event, StoreError};

use crate::process::Seen;

/// A process, identified by its slot and by its name, which no later process in the slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slot: usize,
    pub(crate) name: u64,
}

/// The circumstances under which a request was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// The index of the server,
    pub(crate) server: usize,
    /// and its number: a server that replaces it never receives the request.
    pub(crate) era: u64,
    pub(crate) at: u64,
    /// The process's tokens and times for the hash slot, as carried by the command.
    pub(crate) seen: Seen,
    /// The greatest token for the hash slot that the process had received, on any server.
    pub(crate) greatest_token: u64,
    /// Whether the request is preceded by ASKING.
    pub(crate) asking: bool,
}

/// What happens at a point in time.
#[derive(Debug)]
pub(crate) enum What {
    /// The server receives a request. If the connection or process is gone, the request runs
    /// without a response.
    Arrive {
        request: u64,
        store_request: StoreRequest,
        sent: Sent,
        /// Whether the request waits for replicas.
        waits: bool,
    },
    /// The server receives a copy of a request; the sender receives nothing.
    Repeated {
        store_request: StoreRequest,
        sent: Sent,
    },
    /// The process receives the response to a request, or an error instead.
    Answered {
        request: u64,
        answer: Result<Answer, StoreError>,
        /// How many replicas have the write, if the request waited for them.
        replicas: Option<u32>,
    },
    TimedOut {
        request: u64,
    },
    Heard {
        /// The hash slot, which the message does not name.
        slot: usize,
        event: Event,
    },
    Tick,
    /// A caller takes the next step.
    Turn {
        caller: usize,
        turn: u64,
    },
    /// A caller looks up why it was woken.
    Look {
        caller: usize,
        turn: u64,
    },
    /// A caller cancels the attempt.
    Cancel {
        caller: usize,
        turn: u64,
    },
    Connected {
        server: usize,
    },
    Subscribed {
        server: usize,
    },
    /// The server notices the loss of a subscription.
    Unheard {
        server: usize,
        subscription: u64,
    },
    /// The process notices the loss of the subscription, or of both connections.
    Cut {
        server: usize,
    },
    Reset {
        server: usize,
    },
    /// The process sends a refused request again.
    SentAgain {
        request: u64,
    },
    /// The process asks a server for the topology.
    Looked,
    /// The servers continue to move a hash slot.
    Moves {
        slot: usize,
        number: u64,
    },
    /// A server is informed of a hash slot's owner.
    Agreed {
        server: usize,
        slot: usize,
    },
    /// A stopped process continues.
    Continued,
    /// A closing node checks the progress.
    Closing,
    /// A process with a hold that nothing else would end is shut down.
    Ends,
    /// A caller's wait is over.
    WaitEnds {
        caller: usize,
        turn: u64,
    },
}

impl What {
    pub(crate) fn is_request(&self) -> bool {
        matches!(self, Self::Arrive { .. } | Self::Repeated { .. })
    }

    pub(crate) fn kind(&self) -> u64 {
        match self {
            Self::Repeated { .. } => 0,
            Self::Arrive { .. } => 1,
            Self::Answered { .. } => 2,
            Self::TimedOut { .. } => 3,
            Self::Heard { .. } => 4,
            Self::Tick => 5,
            Self::Turn { .. } => 6,
            Self::Look { .. } => 7,
            Self::Cancel { .. } => 8,
            Self::Connected { .. } => 9,
            Self::Subscribed { .. } => 10,
            Self::Unheard { .. } => 11,
            Self::Continued => 12,
            Self::Closing => 13,
            Self::Cut { .. } => 14,
            Self::Reset { .. } => 15,
            Self::SentAgain { .. } => 16,
            Self::Looked => 17,
            Self::Moves { .. } => 18,
            Self::Agreed { .. } => 19,
            Self::Ends => 20,
            Self::WaitEnds { .. } => 21,
        }
    }
}

struct Entry {
    at: u64,
    order: u64,
    place: Place,
    what: Box<What>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The events by time; simultaneous events happen in the order in which they were planned.
#[derive(Default)]
pub(crate) struct EventQueue {
    next: BinaryHeap<Reverse<Entry>>,
    order: u64,
    arrivals: usize,
}

impl EventQueue {
    pub(crate) fn put(&mut self, at: u64, place: Place, what: What) {
        self.order += 1;
        self.arrivals += usize::from(what.is_request());
        self.next.push(Reverse(Entry { at, order: self.order, place, what: Box::new(what) }));
    }

    pub(crate) fn take(&mut self) -> Option<(u64, Place, What)> {
        let Reverse(Entry { at, place, what, .. }) = self.next.pop()?;
        self.arrivals -= usize::from(what.is_request());
        Some((at, place, *what))
    }

    /// Returns how many requests are under way, including requests that no node waits for any more.
    pub(crate) fn arrivals(&self) -> usize {
        self.arrivals
    }
}
