//! The locks as lines of JSON, one for each look.

use std::time::{SystemTime, UNIX_EPOCH};

use lockcore::{BusyLock, Locks};
use serde::Serialize;
use tokio::time::sleep;

use super::order::Order;
use super::pause;
use super::seen::Seen;
use crate::busy::{self, Look};
use crate::exit::{self, Failure};
use crate::participant::{Who, milliseconds};
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
    /// The first holder, and the time for which it has been seen to hold.
    holder: Option<Who<'a>>,
    held_ms: Option<u64>,
    /// It held already at the first look.
    held_is_least: bool,
    next: Option<Who<'a>>,
}

/// Prints a line after each look, until the reader has closed its end.
pub(super) async fn run(locks: &Locks, order: Order) -> Result<u8, Failure> {
    let mut seen = Seen::new();
    loop {
        let mut look = Look::at(locks).await;
        let holders = look.locks.iter().filter_map(|lock| lock.inspection.holders.first());
        seen.note(holders, look.at, look.trouble.is_none() && !look.is_cut);
        order.sort(&mut look.locks, &seen);
        if !stdout::print(&line(&look, &seen)?)? {
            return Ok(exit::OK);
        }
        sleep(pause(&look)).await;
    }
}

fn line(look: &Look, seen: &Seen) -> Result<String, Failure> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    stdout::json(&Line {
        time_ms: milliseconds(time),
        took_ms: milliseconds(look.took),
        ping_ms: look.ping.map(|ping| ping.as_secs_f64() * 1_000.0),
        busy: look.locks.len(),
        waiting: look.waiting(),
        is_cut: look.is_cut,
        error: look.trouble.as_ref().map(|error| text::without_passwords(&error.to_string())),
        locks: look.locks.iter().take(LOCKS).map(|lock| shown(lock, seen)).collect(),
    })
}

fn shown<'a>(lock: &'a BusyLock, seen: &Seen) -> Busy<'a> {
    let found = &lock.inspection;
    let holder = found.holders.first();
    let held = holder.and_then(|holder| seen.held(holder));
    Busy {
        lock: busy::name(lock),
        waiting: found.waiting,
        holding: found.holding,
        holder: holder.map(Who::from),
        held_ms: held.map(|held| milliseconds(held.time)),
        held_is_least: held.is_some_and(|held| held.is_least),
        next: found.waiters.first().map(Who::from),
    }
}
