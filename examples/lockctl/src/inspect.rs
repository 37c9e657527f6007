//! `lockctl inspect`: the holder of a lock and its waiters, or those of reads, writes and permits.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use lockcore::{LockError, LockInspection, Locks, Part, Participant, SharedInspection, Sharer};
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
    let shown = if inspect.shared {
        let found = locks.inspect_shared(key.as_str()).await.map_err(failed)?;
        if inspect.json { json(&Shared::from(&found))? } else { shared_for_people(&key, &found) }
    } else {
        let found = locks.inspect(key.as_str()).await.map_err(failed)?;
        if inspect.json { json(&Shape::from(&found))? } else { people(&key, &found) }
    };
    match writeln!(io::stdout().lock(), "{shown}") {
        // The reader has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(exit::FAILED, format!("writing to stdout: {error}")))
        }
        _ => Ok(exit::OK),
    }
}

/// The shape that programs rely on.
#[derive(Serialize)]
struct Shape<'a> {
    holder: Option<Who<'a>>,
    token: Option<u64>,
    lease_ms: u64,
    waiters: Vec<Who<'a>>,
}

#[derive(Serialize)]
struct Who<'a> {
    member: &'a str,
    label: Option<&'a str>,
}

impl<'a> From<&'a Participant> for Who<'a> {
    fn from(participant: &'a Participant) -> Self {
        Self { member: &participant.member, label: participant.label.as_deref() }
    }
}

impl<'a> From<&'a LockInspection> for Shape<'a> {
    fn from(found: &'a LockInspection) -> Self {
        Self {
            holder: found.holder.as_ref().map(Who::from),
            token: found.token.map(u64::from),
            lease_ms: milliseconds(found.lease),
            waiters: found.waiters.iter().map(Who::from).collect(),
        }
    }
}

/// The same for reads, writes and permits.
#[derive(Serialize)]
struct Shared<'a> {
    holders: Vec<Has<'a>>,
    token: Option<u64>,
    waiters: Vec<Has<'a>>,
}

#[derive(Serialize)]
struct Has<'a> {
    #[serde(flatten)]
    who: Who<'a>,
    /// `read`, `write`, or such as `3/10` for three of ten permits.
    part: String,
    /// 0 for one who waits.
    lease_ms: u64,
}

impl<'a> From<&'a SharedInspection> for Shared<'a> {
    fn from(found: &'a SharedInspection) -> Self {
        Self {
            holders: found.holders.iter().map(Has::from).collect(),
            token: found.token.map(u64::from),
            waiters: found.waiters.iter().map(Has::from).collect(),
        }
    }
}

impl<'a> From<&'a Sharer> for Has<'a> {
    fn from(sharer: &'a Sharer) -> Self {
        Self {
            who: Who::from(&sharer.participant),
            part: part(sharer.part),
            lease_ms: milliseconds(sharer.lease),
        }
    }
}

fn part(part: Part) -> String {
    match part {
        Part::Read => "read".to_owned(),
        Part::Write => "write".to_owned(),
        Part::Permits { count, limit } => format!("{count}/{limit}"),
        _ => "?".to_owned(),
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn json(shape: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(shape)
        .map_err(|error| Failure::new(exit::FAILED, format!("writing JSON: {error}")))
}

fn people(key: &str, inspection: &LockInspection) -> String {
    let key = text::one_line(key);
    let token = inspection.token.map(|token| token.to_string());
    let mut shown = match &inspection.holder {
        Some(holder) => {
            let token = token.map_or_else(String::new, |token| format!(", token {token}"));
            let seconds = inspection.lease.as_secs_f64();
            let holder = text::one_line(name(holder));
            format!("{key} is held by {holder}, lease {seconds:.1} s{token}")
        }
        None => {
            let token = token.map_or_else(String::new, |token| format!(", last token {token}"));
            format!("{key} is free{token}")
        }
    };
    shown.push_str(&queue(inspection.waiters.iter().map(|waiter| name(waiter).to_owned())));
    shown
}

fn shared_for_people(key: &str, found: &SharedInspection) -> String {
    let key = text::one_line(key);
    let token = found.token.map_or_else(String::new, |token| format!(", last token {token}"));
    let mut shown = match found.holders.len() {
        0 => format!("{key} is free{token}"),
        1 => format!("{key} has 1 holder{token}"),
        number => format!("{key} has {number} holders{token}"),
    };
    for holder in &found.holders {
        let (who, seconds) = (text::one_line(&described(holder)), holder.lease.as_secs_f64());
        let _ = write!(shown, "\n-  {who}, lease {seconds:.1} s");
    }
    shown.push_str(&queue(found.waiters.iter().map(described)));
    shown
}

fn described(sharer: &Sharer) -> String {
    format!("{}: {}", part(sharer.part), name(&sharer.participant))
}

/// The waiters with their places, the next one first.
fn queue(waiters: impl ExactSizeIterator<Item = String>) -> String {
    if waiters.len() == 0 {
        return "\nno waiters".to_owned();
    }
    let width = waiters.len().to_string().len();
    let mut shown = String::new();
    for (ahead, waiter) in waiters.enumerate() {
        let _ = write!(shown, "\n{:>width$}  {}", ahead + 1, text::one_line(&waiter));
    }
    shown
}
