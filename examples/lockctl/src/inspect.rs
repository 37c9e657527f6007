//! `lockctl inspect`: the holders and waiters for a name.

use std::fmt::Write as _;

use lockcore::LockError;
use lockcore::operate::{LockInspection, Participant};
use serde::Serialize;

use crate::arguments::{Inspect, Server};
use crate::connect;
use crate::exit::{self, Failure};
use crate::participant::{Processes, Who, asked, left};
use crate::{meant, stdout, text};

pub(crate) async fn run(server: &Server, inspect: Inspect) -> Result<u8, Failure> {
    let locks = connect::once(server).await?;
    let key = inspect.key;
    let failed =
        |error: LockError| Failure::new(exit::code(error.kind()), format!("{key}: {error}"));
    let found = locks.inspect(key.as_str()).await.map_err(failed)?;
    let processes = Processes::of(&locks, &found).await;
    let shown = match inspect.json {
        true => json(&found, &processes)?,
        false => people(&key, &found, &processes),
    };
    stdout::print(&shown)?;
    if !inspect.json && found.holding == 0 && found.waiting == 0 {
        meant::warn(server, &locks, &key).await;
    }
    Ok(exit::OK)
}

/// The JSON output of `lockctl inspect`. The format is stable.
#[derive(Serialize)]
struct Shape<'a> {
    holders: Vec<Who<'a>>,
    token: Option<u64>,
    waiters: Vec<Who<'a>>,
}

fn json(found: &LockInspection, processes: &Processes) -> Result<String, Failure> {
    stdout::json(&Shape {
        holders: found.holders.iter().map(|holder| processes.who(holder)).collect(),
        token: token(found),
        waiters: found.waiters.iter().map(|waiter| processes.who(waiter)).collect(),
    })
}

/// Returns the fencing token of the holders, as far as it is stored: the store keeps the token of
/// reads, but not of an exclusive lock. `None` also for permits, which have no token.
fn token(found: &LockInspection) -> Option<u64> {
    let has_one = found.holders.iter().any(|holder| !holder.demand.is_permits());
    found.token.filter(|_| has_one).map(u64::from)
}

fn people(key: &str, found: &LockInspection, processes: &Processes) -> String {
    let key = text::one_line(key);
    let token = token(found).map_or_else(String::new, |token| format!(", token {token}"));
    let mut shown = match found.holders.as_slice() {
        [] => format!("{key} is free"),
        [holder] => {
            let described = processes.described(holder);
            format!("{key} is held by {described}, {}{token}", left(holder))
        }
        holders => format!("{key} has {} holders{token}", holders.len()),
    };
    if let [_, _, ..] = found.holders.as_slice() {
        for holder in &found.holders {
            let _ = write!(shown, "\n-  {}, {}", processes.described(holder), left(holder));
        }
    }
    shown.push_str(&queue(&found.waiters, processes));
    shown
}

/// Formats the waiters, one on each line with the position; the next waiter is first.
fn queue(waiters: &[Participant], processes: &Processes) -> String {
    if waiters.is_empty() {
        return "\nno waiters".to_owned();
    }
    let width = waiters.len().to_string().len();
    let mut shown = String::new();
    for (ahead, waiter) in waiters.iter().enumerate() {
        let described = processes.described(waiter);
        let _ = write!(shown, "\n{:>width$}  {described}{}", ahead + 1, asked(waiter));
    }
    shown
}
