//! `lockctl holders`: the holders of some names, or of all held locks.

use std::fmt::Write as _;

use lockcore::operate::LockInspection;
use lockcore::{LockError, Locks};
use serde::Serialize;

use crate::arguments::{Holders, Server};
use crate::busy::{self, Look};
use crate::connect;
use crate::exit::{self, Failure};
use crate::participant::{Processes, Who, left};
use crate::{meant, stdout, text};

pub(crate) async fn run(server: &Server, holders: Holders) -> Result<u8, Failure> {
    let locks = connect::once(server).await?;
    let show = if holders.json { json } else { people };
    for key in &holders.keys {
        let found = inspect(&locks, key).await?;
        let processes = Processes::of(&locks, &found).await;
        if !stdout::print(&show(key, &found, &processes)?)? {
            return Ok(exit::OK);
        }
        if !holders.json && found.holding == 0 && found.waiting == 0 {
            meant::warn(server, &locks, key).await;
        }
    }
    if !holders.all {
        return Ok(exit::OK);
    }
    let mut look = Look::at(&locks).await;
    look.locks.retain(|lock| lock.inspection.holding > 0);
    look.locks.sort_unstable_by(|one, other| one.lock.cmp(&other.lock));
    let first = look.locks.iter().filter_map(|lock| lock.inspection.holders.first());
    let of_first = Processes::of_these(&locks, first).await;
    let mut failed = None;
    for lock in &look.locks {
        let name = busy::name(lock);
        // The survey includes only the first of several holders.
        let all = match lock.inspection.holding {
            1 => None,
            // A server that does not reply would take a timeout for each of its locks.
            _ if failed.is_some() => None,
            number => match inspect(&locks, name).await {
                Ok(all) => Some(all),
                // With its namespace, the name is too long for a key.
                Err(failure) if failure.code == exit::USAGE => {
                    failure.warn(&format!("only the first of {number} holders is shown: "));
                    None
                }
                Err(failure) => {
                    failed = Some(failure);
                    None
                }
            },
        };
        let shown = match all {
            None => show(name, &lock.inspection, &of_first)?,
            Some(all) => show(name, &all, &Processes::of(&locks, &all).await)?,
        };
        if !stdout::print(&shown)? {
            return Ok(exit::OK);
        }
    }
    if look.is_cut {
        exit::warn(&format!("only the first {} locks are shown: there are more", look.locks.len()));
    }
    if look.unreadable > 0 {
        exit::warn(&format!(
            "{} of another program or another version of lockcore not shown: name them to see why",
            match look.unreadable {
                1 => "1 lock key".to_owned(),
                number => format!("{number} lock keys"),
            }
        ));
    }
    let trouble =
        look.trouble.map(|error| Failure::new(exit::code(error.kind()), format!("--all: {error}")));
    trouble.or(failed).map_or(Ok(exit::OK), Err)
}

async fn inspect(locks: &Locks, key: &str) -> Result<LockInspection, Failure> {
    let failed =
        |error: LockError| Failure::new(exit::code(error.kind()), format!("{key}: {error}"));
    // For waiters, only the number is shown.
    locks.inspect_part(key, u32::MAX, u32::MAX).await.map_err(failed)
}

fn people(key: &str, found: &LockInspection, processes: &Processes) -> Result<String, Failure> {
    let key = text::one_line(key);
    let mut shown = match found.holders.as_slice() {
        [] => format!("{key}  free"),
        holders => {
            let line = |holder| format!("{key}  {}, {}", processes.described(holder), left(holder));
            holders.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    };
    if found.waiting > 0 {
        let _ = write!(shown, ", {} waiting", found.waiting);
    }
    Ok(shown)
}

/// A line of JSON from `lockctl holders`: a lock with the holders. The format is stable.
#[derive(Serialize)]
struct Shape<'a> {
    lock: &'a str,
    holders: Vec<Who<'a>>,
    waiting: u64,
}

fn json(key: &str, found: &LockInspection, processes: &Processes) -> Result<String, Failure> {
    let holders = found.holders.iter().map(|holder| processes.who(holder)).collect();
    stdout::json(&Shape { lock: key, holders, waiting: found.waiting })
}
