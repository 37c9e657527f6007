//! `lockctl inspect`: the holder of a lock and its waiters.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use lockcore::{LockInspection, Locks, Participant};
use serde::Serialize;

use crate::arguments::Inspect;
use crate::connect;
use crate::exit::{self, Failure};
use crate::progress::name;
use crate::text;

pub(crate) async fn run(redis: &str, inspect: Inspect) -> Result<u8, Failure> {
    let locks = connect::once(redis, Locks::builder()).await?;
    let key = inspect.key;
    let inspection = locks
        .inspect(key.as_str())
        .await
        .map_err(|error| Failure::new(exit::code(error.kind()), format!("{key}: {error}")))?;
    let shown = if inspect.json { json(&inspection)? } else { people(&key, &inspection) };
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

fn json(inspection: &LockInspection) -> Result<String, Failure> {
    let shape = Shape {
        holder: inspection.holder.as_ref().map(Who::from),
        token: inspection.token.map(u64::from),
        lease_ms: u64::try_from(inspection.lease.as_millis()).unwrap_or(u64::MAX),
        waiters: inspection.waiters.iter().map(Who::from).collect(),
    };
    serde_json::to_string(&shape)
        .map_err(|error| Failure::new(exit::FAILED, format!("writing JSON: {error}")))
}

fn people(key: &str, inspection: &LockInspection) -> String {
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
    if inspection.waiters.is_empty() {
        shown.push_str("\nno waiters");
    }
    let width = inspection.waiters.len().to_string().len();
    for (ahead, waiter) in inspection.waiters.iter().enumerate() {
        let _ = write!(shown, "\n{:>width$}  {}", ahead + 1, text::one_line(name(waiter)));
    }
    shown
}
