//! A lock as an operator sees it.

use std::time::Duration;

use crate::demand::{ALL, Demand};
use crate::member::{Label, Member, Party};
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

/// The holders of reads, a write or permits of a name, and the waiters; made by
/// [`Locks::inspect_shared`](crate::Locks::inspect_shared).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedInspection {
    /// The holders, the one whose lease ends first in front.
    pub holders: Vec<Sharer>,
    /// The last token given out, if it is still remembered.
    pub token: Option<FencingToken>,
    /// The waiters, the next one first. Without those whose process has been silent for 15 s.
    pub waiters: Vec<Sharer>,
}

/// A holder of a read, a write or permits, or a waiter for them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharer {
    /// Who it is.
    pub participant: Participant,
    /// What it holds or waits for.
    pub part: Part,
    /// What is left of its lease; zero if it waits.
    pub lease: Duration,
}

/// How much of a name is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Beside other reads.
    Read,
    /// Alone.
    Write,
    /// So many permits.
    Permits {
        /// How many.
        count: u32,
        /// Of how many, as this request sees it.
        limit: u32,
    },
}

impl SharedInspection {
    pub(crate) fn new(inspection: Inspection) -> Self {
        let now_ms = inspection.now_us / 1_000;
        let holds = inspection.holds.iter();
        let live = inspection.waiters.iter().filter(|(_, deadline_ms)| *deadline_ms > now_ms);
        Self {
            holders: holds
                .map(|(member, weight, left_ms)| Sharer::new(member, *weight, *left_ms))
                .collect(),
            token: inspection.token,
            waiters: live.map(|(member, _)| Sharer::new(member, member.weight(), 0)).collect(),
        }
    }
}

impl Sharer {
    fn new(member: &Party, weight: u64, left_ms: u64) -> Self {
        let limit = member.ours().map_or(Demand::ALONE, Member::demand).limit();
        let part = match weight {
            _ if limit < u64::from(ALL) => {
                Part::Permits { count: weight as u32, limit: limit as u32 }
            }
            weight if weight == u64::from(ALL) => Part::Write,
            _ => Part::Read,
        };
        let participant = Participant::new(member);
        Self { participant, part, lease: Duration::from_millis(left_ms) }
    }
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
            holder: inspection.holds.first().map(|(holder, ..)| Participant::new(holder)),
            token: inspection.token,
            lease: Duration::from_millis(inspection.holds.first().map_or(0, |(.., left)| *left)),
            waiters: live.map(|(member, _)| Participant::new(member)).collect(),
        }
    }
}

impl Participant {
    fn new(party: &Party) -> Self {
        let ours = party.ours();
        Self {
            member: party.to_string(),
            label: ours.map(|member| Label::unescape(member.label())),
            node: ours.map(|member| member.node().to_owned()),
        }
    }
}
