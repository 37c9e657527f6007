//! A holder or a waiter, for people and for programs.

use std::collections::HashMap;
use std::time::Duration;

use lockcore::operate::{LockInspection, Participant};
use lockcore::{Demand, Locks};
use serde::Serialize;

use crate::progress::name;
use crate::text;

/// The process (`host:pid`) of each node, as far as the nodes report it.
#[derive(Debug, Default)]
pub(crate) struct Processes(HashMap<String, String>);

impl Processes {
    /// Returns the processes of all holders and waiters, holders first.
    pub(crate) async fn of(locks: &Locks, found: &LockInspection) -> Self {
        Self::of_these(locks, found.holders.iter().chain(&found.waiters)).await
    }

    pub(crate) async fn of_these<'a>(
        locks: &Locks,
        participants: impl Iterator<Item = &'a Participant>,
    ) -> Self {
        Self(locks.processes(participants.filter_map(|one| one.node.as_deref())).await)
    }

    /// Returns `host:pid` for a holder or waiter, if reported by the node.
    pub(crate) fn get(&self, participant: &Participant) -> Option<&str> {
        self.0.get(participant.node.as_deref()?).map(String::as_str)
    }

    pub(crate) fn who<'a>(&'a self, participant: &'a Participant) -> Who<'a> {
        Who { process: self.get(participant), ..Who::from(participant) }
    }

    /// Returns a holder or waiter for people: the label, and the process if it differs from the
    /// label.
    pub(crate) fn described(&self, participant: &Participant) -> String {
        let described = described(participant);
        match self.get(participant).filter(|process| *process != name(participant)) {
            Some(process) => format!("{described} ({})", text::one_line(process)),
            None => described,
        }
    }
}

/// JSON output, in a stable format.
#[derive(Serialize)]
pub(crate) struct Who<'a> {
    member: &'a str,
    label: Option<&'a str>,
    /// `host:pid`, if known.
    process: Option<&'a str>,
    /// The demand: `lock`, `read`, or `3/10` for three of ten permits.
    demand: String,
    /// The time since this member's first request; null for members of other programs.
    age_ms: Option<u64>,
    /// The remaining lease; 0 for a waiter.
    lease_ms: u64,
    /// True if the hold was handed off and its process has not confirmed it yet.
    is_claim: bool,
    /// How many quorum primaries granted the hold, and how many there are. Omitted for a waiter,
    /// and on a single server.
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

/// Returns a holder's remaining lease, time since the request, and quorum primaries, for people.
pub(crate) fn left(holder: &Participant) -> String {
    let lease = if holder.is_claim { "claim" } else { "lease" };
    let primaries = holder.primaries.map(|at| format!(", at {} of {} primaries", at.held, at.all));
    let primaries = primaries.unwrap_or_default();
    format!("{lease} {:.1} s{}{primaries}", holder.lease_left.as_secs_f64(), asked(holder))
}

/// Returns the time since the request for people; empty if it is unknown.
pub(crate) fn asked(participant: &Participant) -> String {
    let age = participant.age.map(|age| format!(", requested {:.1} s ago", age.as_secs_f64()));
    age.unwrap_or_default()
}

/// Returns a holder or waiter for people: the label, preceded by the demand unless that is an
/// exclusive lock.
pub(crate) fn described(participant: &Participant) -> String {
    let name = name(participant);
    text::one_line(&match participant.demand {
        Demand::EXCLUSIVE => name.to_owned(),
        other => format!("{}: {name}", demand(other)),
    })
}
