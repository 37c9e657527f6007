//! Lock surveys as lines of JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use lockcore::Locks;
use lockcore::operate::BusyLock;
use serde::Serialize;
use tokio::time::sleep;

use super::order::Order;
use super::pause;
use crate::busy::{self, Look};
use crate::exit::{self, Failure};
use crate::participant::{Processes, Who, milliseconds};
use crate::{stdout, text};

/// The maximum number of locks in a line of JSON.
const LOCKS: usize = 100;

/// A line of JSON from `lockctl top`: the result of a survey. The format is stable.
#[derive(Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970.
    time_ms: u64,
    took_ms: u64,
    /// How long a server took to reply to a ping; null if the ping failed.
    ping_ms: Option<f64>,
    /// The number of held or awaited locks that the survey has found.
    busy: usize,
    waiting: u64,
    /// True if the survey has reached the maximum number of locks, so that some are not counted.
    is_cut: bool,
    /// The number of lock keys that belong to another program or another version of lockcore. They
    /// are not counted in `busy`.
    unreadable: u64,
    /// The first error of a server, because of which some or all locks are missing; null without an
    /// error.
    error: Option<String>,
    /// The first locks, in the requested order.
    locks: Vec<Busy<'a>>,
}

#[derive(Serialize)]
struct Busy<'a> {
    lock: &'a str,
    waiting: u64,
    holding: u64,
    /// The first of the lock's holders; null if the lock is free.
    holder: Option<Who<'a>>,
    next: Option<Who<'a>>,
}

/// Prints a line of JSON after each survey. Returns the exit code when the reader has closed the
/// pipe.
pub(super) async fn run(locks: &Locks, order: Order) -> Result<u8, Failure> {
    loop {
        let mut look = Look::at(locks).await;
        order.sort(&mut look.locks);
        let shown = look.locks.iter().take(LOCKS).map(|lock| &lock.inspection);
        let shown =
            shown.flat_map(|found| found.holders.first().into_iter().chain(found.waiters.first()));
        let processes = Processes::of_these(locks, shown).await;
        if !stdout::print(&line(&look, &processes)?)? {
            return Ok(exit::OK);
        }
        sleep(pause(&look)).await;
    }
}

fn line(look: &Look, processes: &Processes) -> Result<String, Failure> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    stdout::json(&Line {
        time_ms: milliseconds(time),
        took_ms: milliseconds(look.took),
        ping_ms: look.ping.map(|ping| (ping.as_secs_f64() * 1e6).round() / 1e3),
        busy: look.locks.len(),
        waiting: look.waiting(),
        is_cut: look.is_cut,
        unreadable: look.unreadable,
        error: look.trouble.as_ref().map(|error| text::without_passwords(&error.to_string())),
        locks: look.locks.iter().take(LOCKS).map(|lock| shown(lock, processes)).collect(),
    })
}

fn shown<'a>(lock: &'a BusyLock, processes: &'a Processes) -> Busy<'a> {
    let found = &lock.inspection;
    Busy {
        lock: busy::name(lock),
        waiting: found.waiting,
        holding: found.holding,
        holder: found.holders.first().map(|holder| processes.who(holder)),
        next: found.waiters.first().map(|waiter| processes.who(waiter)),
    }
}
