//! The locks as lines of JSON, one for each look.

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

/// The most locks of a line.
const LOCKS: usize = 100;

/// The JSON that programs rely on.
#[derive(Serialize)]
struct Line<'a> {
    /// Since 1970.
    time_ms: u64,
    took_ms: u64,
    /// A round trip to the server.
    ping_ms: Option<f64>,
    /// The number of locks that are held or waited for.
    busy: usize,
    waiting: u64,
    /// There are more than these.
    is_cut: bool,
    /// The reason why locks are missing, or all of them.
    error: Option<String>,
    /// The first of them, by the order that was asked for.
    locks: Vec<Busy<'a>>,
}

#[derive(Serialize)]
struct Busy<'a> {
    lock: &'a str,
    waiting: u64,
    holding: u64,
    /// The first holder.
    holder: Option<Who<'a>>,
    next: Option<Who<'a>>,
}

/// Prints a line after each look, until the reader has closed its end.
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
        ping_ms: look.ping.map(|ping| ping.as_secs_f64() * 1_000.0),
        busy: look.locks.len(),
        waiting: look.waiting(),
        is_cut: look.is_cut,
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
