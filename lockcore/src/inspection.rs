//! A lock as an operator sees it.

use std::time::Duration;

use crate::member::{Label, Member};
use crate::store::Inspection;
use crate::token::FencingToken;

/// Holder and queue of one lock; made by [`Locks::inspect`](crate::Locks::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInspection {
    /// The holder, if the lock is held.
    pub holder: Option<Participant>,
    /// The last token given out, if it is still remembered.
    pub token: Option<FencingToken>,
    /// What is left of the holder's lease; zero if the lock is free.
    pub lease: Duration,
    /// The waiters, the next one first. Without those whose process has been silent for 15 s.
    pub waiters: Vec<Participant>,
}

/// A holder of a lock, or a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The text that names it in the store, unique to one acquisition.
    pub member: String,
    /// The label, for people, exactly as it was set: escape control characters before you print it.
    /// `None` for members of other programs, such as a JVM service.
    pub label: Option<String>,
    /// The node that it belongs to; `None` for members of other programs. See
    /// [`Locks::node`](crate::Locks::node).
    pub node: Option<String>,
}

impl LockInspection {
    pub(crate) fn new(inspection: Inspection) -> Self {
        let now_ms = inspection.now_us / 1_000;
        let live = inspection.waiters.iter().filter(|(_, deadline_ms)| *deadline_ms > now_ms);
        Self {
            holder: inspection.holder.as_ref().map(Participant::new),
            token: inspection.token,
            lease: Duration::from_millis(inspection.left_ms),
            waiters: live.map(|(member, _)| Participant::new(member)).collect(),
        }
    }
}

impl Participant {
    fn new(member: &Member) -> Self {
        let ours = member.ours();
        Self {
            member: member.to_string(),
            label: ours.map(|ours| Label::unescape(ours.label)),
            node: ours.map(|ours| ours.node.to_owned()),
        }
    }
}
