//! A lock as an operator sees it.

use std::time::Duration;

use crate::member::{Label, Member};
use crate::store::Inspection;
use crate::token::FencingToken;

/// Holder and queue of one lock; made by [`Locks::inspect`](crate::Locks::inspect).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInspection {
    /// Who holds it.
    pub holder: Option<Participant>,
    /// The last token given out, if it is still remembered.
    pub token: Option<FencingToken>,
    /// What is left of the holder's lease; zero when free.
    pub lease: Duration,
    /// Who waits, next first; those that have been silent for too long are left out.
    pub waiters: Vec<Participant>,
}

/// Somebody who holds a lock or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// The member as it stands in the store, unique to one acquisition.
    pub member: String,
    /// For people, as it was given, so also with control characters: escape them before a terminal sees them. `None` for
    /// members that are not ours, such as those of a JVM service.
    pub label: Option<String>,
    /// The node it belongs to, if it is ours; see [`Locks::node`](crate::Locks::node).
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
