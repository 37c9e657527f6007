//! The output of a holder or waiter, as text and as JSON.

use std::collections::HashMap;
use std::time::Duration;

use lockcore::operate::{LockInspection, Participant};
use lockcore::{Demand, Locks};
use serde::Serialize;

use crate::progress::name;
use crate::text;

/// The process of each node, as `host:pid`. Nodes that have not published their process are
/// missing.
#[derive(Debug, Default)]
pub(crate) struct Processes(HashMap<String, String>);

impl Processes {
    /// Reads the processes of all holders and waiters. Holders come first, because only a limited
    /// number of nodes is looked up.
    pub(crate) async fn of(locks: &Locks, found: &LockInspection) -> Self {
        Self::of_these(locks, found.holders.iter().chain(&found.waiters)).await
    }

    pub(crate) async fn of_these<'a>(
        locks: &Locks,
        participants: impl Iterator<Item = &'a Participant>,
    ) -> Self {
        Self(locks.processes(participants.filter_map(|one| one.node.as_ref())).await)
    }

    /// Returns `host:pid` for a holder or waiter; `None` if the node has not published it.
    pub(crate) fn get(&self, participant: &Participant) -> Option<&str> {
        self.0.get(participant.node.as_ref()?.as_str()).map(String::as_str)
    }

    pub(crate) fn who<'a>(&'a self, participant: &'a Participant) -> Who<'a> {
        Who { process: self.get(participant), ..Who::from(participant) }
    }

    /// Formats a holder or waiter as [`described`] does, followed by the process in parentheses if
    /// it differs from the label.
    pub(crate) fn described(&self, participant: &Participant) -> String {
        let described = described(participant);
        match self.get(participant).filter(|process| *process != name(participant)) {
            Some(process) => format!("{described} ({})", text::one_line(process)),
            None => described,
        }
    }
}

/// A holder or waiter in JSON output. The format is stable.
#[derive(Serialize)]
pub(crate) struct Who<'a> {
    member: &'a str,
    label: Option<&'a str>,
    /// `host:pid`, if known.
    process: Option<&'a str>,
    /// The demand: `lock`, `read`, or `3/10` for three of ten permits.
    demand: String,
    /// How long ago the lock was requested, in ms, so for a holder the wait is included. Null for
    /// other programs, such as a JVM service.
    age_ms: Option<u64>,
    /// The remaining lease in ms; 0 for a waiter.
    lease_ms: u64,
    /// True if the holder may not have renewed the lease since the grant, because the remaining
    /// lease is no longer than the short first lease of a handed-off lock.
    is_claim: bool,
    /// The number of quorum primaries that report the hold, and the number of all primaries. Left
    /// out for a waiter, and without a quorum.
    #[serde(skip_serializing_if = "Option::is_none")]
    primaries: Option<[usize; 2]>,
}

impl<'a> From<&'a Participant> for Who<'a> {
    fn from(participant: &'a Participant) -> Self {
        Self {
            member: &participant.member,
            label: participant.label.as_deref(),
            process: None,
            demand: demand(participant.demand),
            age_ms: participant.age.map(milliseconds),
            lease_ms: milliseconds(participant.lease_left),
            is_claim: participant.is_claim,
            primaries: participant.primaries.map(|at| [at.held, at.all]),
        }
    }
}

pub(crate) fn demand(demand: Demand) -> String {
    match demand {
        Demand::EXCLUSIVE => "lock".to_owned(),
        Demand::READ => "read".to_owned(),
        permits => format!("{}/{}", permits.weight(), permits.limit()),
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Formats the state of a hold, such as `lease 8.2 s, requested 3.1 s ago`. On a quorum, the number
/// of primaries that report the hold follows.
pub(crate) fn left(holder: &Participant) -> String {
    let lease = if holder.is_claim { "claim" } else { "lease" };
    let primaries = holder.primaries.map(|at| format!(", at {} of {} primaries", at.held, at.all));
    let primaries = primaries.unwrap_or_default();
    format!("{lease} {:.1} s{}{primaries}", holder.lease_left.as_secs_f64(), asked(holder))
}

/// Formats the time since a holder's or waiter's request, such as `, requested 3.1 s ago`. Empty if
/// the time is unknown.
pub(crate) fn asked(participant: &Participant) -> String {
    let age = participant.age.map(|age| format!(", requested {:.1} s ago", age.as_secs_f64()));
    age.unwrap_or_default()
}

/// Formats a holder or waiter: the label, such as `web-1`, preceded by the demand unless it is
/// exclusive, such as `read: web-1`.
pub(crate) fn described(participant: &Participant) -> String {
    let name = name(participant);
    text::one_line(&match participant.demand {
        Demand::EXCLUSIVE => name.to_owned(),
        other => format!("{}: {name}", demand(other)),
    })
}
