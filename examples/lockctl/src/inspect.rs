//! `lockctl inspect`: the holders of a name and its waiters.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use lockcore::{Demand, LockError, LockInspection, Locks, Participant};
use serde::Serialize;

use crate::arguments::Inspect;
use crate::connect;
use crate::exit::{self, Failure};
use crate::progress::name;
use crate::text;

pub(crate) async fn run(redis: &str, inspect: Inspect) -> Result<u8, Failure> {
    let locks = connect::once(redis, Locks::builder()).await?;
    let key = inspect.key;
    let failed =
        |error: LockError| Failure::new(exit::code(error.kind()), format!("{key}: {error}"));
    let found = locks.inspect(key.as_str()).await.map_err(failed)?;
    let shown = if inspect.json { json(&found)? } else { people(&key, &found) };
    match writeln!(io::stdout().lock(), "{shown}") {
        // The reader has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::FAILED, format!("writing to stdout: {error}")))
        }
        _ => Ok(exit::OK),
    }
}

/// The JSON that programs rely on.
#[derive(Serialize)]
struct Shape<'a> {
    holders: Vec<Who<'a>>,
    token: Option<u64>,
    waiters: Vec<Who<'a>>,
}

#[derive(Serialize)]
struct Who<'a> {
    member: &'a str,
    label: Option<&'a str>,
    /// The demand: `lock`, `read`, or, for three of ten permits, `3/10`.
    demand: String,
    /// The time since it was first asked for; null for members of other programs.
    age_ms: Option<u64>,
    /// The rest of the lease; 0 for a waiter.
    lease_ms: u64,
    /// Whether the lease is not confirmed.
    is_claim: bool,
}

impl<'a> From<&'a Participant> for Who<'a> {
    fn from(participant: &'a Participant) -> Self {
        Self {
            member: &participant.member,
            label: participant.label.as_deref(),
            demand: demand(participant.demand),
            age_ms: participant.age.map(milliseconds),
            lease_ms: milliseconds(participant.lease),
            is_claim: participant.is_claim,
        }
    }
}

fn demand(demand: Demand) -> String {
    match demand {
        Demand::ALONE => "lock".to_owned(),
        Demand::READ => "read".to_owned(),
        permits => format!("{}/{}", permits.weight(), permits.limit()),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn json(found: &LockInspection) -> Result<String, Failure> {
    let shape = Shape {
        holders: found.holders.iter().map(Who::from).collect(),
        token: found.token.map(u64::from),
        waiters: found.waiters.iter().map(Who::from).collect(),
    };
    serde_json::to_string(&shape)
        .map_err(|error| Failure::new(exit::FAILED, format!("writing JSON: {error}")))
}

fn people(key: &str, found: &LockInspection) -> String {
    let key = text::one_line(key);
    let token = found.token.map_or_else(String::new, |token| format!(", token {token}"));
    let mut shown = match found.holders.as_slice() {
        [] => format!("{key} is free"),
        [holder] => {
            format!("{key} is held by {}, {}{token}", described(holder), left(holder))
        }
        holders => format!("{key} has {} holders{token}", holders.len()),
    };
    if let [_, _, ..] = found.holders.as_slice() {
        for holder in &found.holders {
            let _ = write!(shown, "\n-  {}, {}", described(holder), left(holder));
        }
    }
    shown.push_str(&queue(&found.waiters));
    shown
}

/// The lease of a holder, and its age.
fn left(holder: &Participant) -> String {
    let lease = if holder.is_claim { "claim" } else { "lease" };
    format!("{lease} {:.1} s{}", holder.lease.as_secs_f64(), asked(holder))
}

/// The time since it was asked for.
fn asked(participant: &Participant) -> String {
    let age = participant.age.map(|age| format!(", asked {:.1} s ago", age.as_secs_f64()));
    age.unwrap_or_default()
}

/// The label, after the demand if it is no lock.
fn described(participant: &Participant) -> String {
    let name = name(participant);
    text::one_line(&match participant.demand {
        Demand::ALONE => name.to_owned(),
        other => format!("{}: {name}", demand(other)),
    })
}

/// The waiters with their places, the next one first.
fn queue(waiters: &[Participant]) -> String {
    if waiters.is_empty() {
        return "\nno waiters".to_owned();
    }
    let width = waiters.len().to_string().len();
    let mut shown = String::new();
    for (ahead, waiter) in waiters.iter().enumerate() {
        let _ = write!(shown, "\n{:>width$}  {}{}", ahead + 1, described(waiter), asked(waiter));
    }
    shown
}
