//! A quorum primary's identity record, and the time since the server last lost data.
//!
//! # Implementation notes
//!
//! - The first process that finds no record, or no counter of the record's epoch, writes the record
//!   with the server's time: if either is missing later, the server lost data in between.
//! - A process whose list other primaries contradict writes only if a majority agrees with its
//!   list: otherwise a process with an old list would claim an emptied server, and keep the others
//!   out.
//! - A restart that keeps the record shows in the server's run id. The link reads it on each new
//!   connection, before commands can use the connection; a restart breaks connections.
//! - The record contains the whole list of primaries: the majorities of another list need not share
//!   a primary with the majorities of this list.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::CommandLink;
use proto::layout::QUEUE;
use proto::wire::keys::PRIMARY_COUNTERS;
use proto::wire::{Call as _, scripts};
use proto::{LockErrorKind, StoreError, Topology};
use redis::{FromRedisValue, Value};

use super::call::Scripted;
use super::preflight::Info;
use super::run::Run as _;
use super::server_time::ServerTime;
use crate::store::Standing;

/// The prefix for the record's key, before the namespace.
const KEY: &str = "lockcore:quorum";
/// Why no record is written.
const UNMARKED: &str = "the server has no quorum identity, and none is written: other primaries \
    belong to another quorum, and no majority belongs to the quorum of this process";
/// The replication id on a server that was never a replica.
const NO_ID: &str = "0000000000000000000000000000000000000000";

/// The identity record expected on a primary.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    key: String,
    at: usize,
    /// The records of all primaries.
    all: Arc<Marks>,
    /// The part common to all processes: the primary index, the longest lease, the list.
    agreed: String,
    /// Whether a restart keeps everything the server has acknowledged.
    trusts_restarts: bool,
}

/// The identity records of all primaries, as last found by this process.
#[derive(Debug)]
pub(crate) struct Marks(Mutex<Vec<Option<Sight>>>);

/// A primary's identity record, as found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Missing,
    Ours,
    /// The record of another list, or an invalid record.
    Theirs,
}

impl Marks {
    /// Creates the list of the identity records of `n` primaries, none of which has been read.
    pub(crate) fn of(n: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![None; n])))
    }

    fn each(&self) -> MutexGuard<'_, Vec<Option<Sight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, at: usize, sight: Sight) {
        self.each()[at] = Some(sight);
    }

    /// Whether a missing record may be written.
    fn agree(&self) -> bool {
        let each = self.each();
        let count = |sight| each.iter().flatten().filter(|other| **other == sight).count();
        count(Sight::Theirs) == 0 || count(Sight::Ours) > each.len() / 2
    }
}

/// An identity record, as found.
#[derive(Debug, PartialEq, Eq)]
struct Found<'a> {
    /// When the record was written, µs since the epoch.
    written_us: u64,
    /// The server run in which nothing was granted before the record was written.
    fresh: &'a str,
    agreed: &'a str,
}

impl<'a> Found<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (written_us, rest) = text.split_once(' ')?;
        let (fresh, agreed) = rest.split_once(' ')?;
        Some(Self { written_us: written_us.parse().ok()?, fresh, agreed })
    }
}

/// How a server has been used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    Not,
    /// Recorded as new in the present run, without grants.
    Marked,
    /// Recorded as new, and may have granted something since.
    Granted,
}

/// The part of a server's INFO that decides whether the server counts.
struct Server {
    run: String,
    uptime: Duration,
}

impl Mark {
    /// Creates the record expected on the primary at index `at` in the list.
    pub(crate) fn new(
        namespace: Option<&str>,
        (at, list): (usize, &str),
        all: Arc<Marks>,
        max_lease: Duration,
        trusts_restarts: bool,
    ) -> Self {
        let key = namespace.map_or_else(|| KEY.to_owned(), |of| format!("{KEY}:{of}"));
        let agreed = format!("{at} {} {list}", max_lease.as_millis());
        Self { key, at, all, agreed, trusts_restarts }
    }

    /// Reads the record without writing. Refuses the record of another list.
    pub(crate) async fn look(&self, link: &CommandLink) -> Result<(), StoreError> {
        match self.read_or_write(link, "").await? {
            Some(text) => self.found(&text).map(drop),
            None => {
                self.all.note(self.at, Sight::Missing);
                Ok(())
            }
        }
    }

    /// Returns the time since the server last lost data, and records the server's current time.
    pub(crate) async fn standing(
        &self,
        link: &CommandLink,
        server_time: &ServerTime,
    ) -> Result<Standing, StoreError> {
        let generation = link.generation();
        let Server { run, uptime } = Self::server(link).await?;
        let now_us = time(link).await?;
        let fresh = if self.all.agree() { "-" } else { "" };
        let Some(text) = self.read_or_write(link, fresh).await? else {
            self.all.note(self.at, Sight::Missing);
            return Err(StoreError::refused(LockErrorKind::InvalidOption, UNMARKED));
        };
        let Found { written_us, fresh, .. } = self.found(&text)?;
        // Before the new epoch is published: a grant of the new epoch must not count for the old
        // epoch.
        let known_us = server_time.epoch_us();
        if known_us != written_us && server_time.end_epoch(known_us) {
            link.count_as_another();
        }
        let server = link.servers();
        // After reading the number, which may otherwise belong to a server that was not examined.
        if link.generation() != generation {
            return Err(StoreError::ambiguous("the connection was replaced meanwhile"));
        }
        server_time.begin_epoch(written_us);
        server_time.note_first(now_us, server);
        let kept = Duration::from_micros(now_us.saturating_sub(written_us));
        let age = match fresh == run {
            true => Duration::MAX,
            false if self.trusts_restarts => kept,
            false => kept.min(uptime),
        };
        Ok(Standing { server, age })
    }

    /// Returns how the server has been used so far. Refuses a server not recorded as new in its
    /// present run: it may have granted something.
    pub(crate) async fn used(&self, link: &CommandLink) -> Result<Used, StoreError> {
        let get = |key: &str| link.run(redis::cmd("GET").arg(key).to_owned());
        let Server { run, .. } = Self::server(link).await?;
        let mark: Option<String> = text(get(&self.key).await?)?;
        let Some(mark) = mark else { return Ok(Used::Not) };
        let found = self.found(&mark)?;
        if found.fresh != run {
            let detail = "the server is not new: it counts once it has run for the longest lease";
            return Err(StoreError::refused(LockErrorKind::InvalidOption, detail));
        }
        // Each grant draws a number.
        let written_us = found.written_us;
        let count: Option<u64> = text(get(&format!("{PRIMARY_COUNTERS}{written_us}")).await?)?;
        Ok(if count == Some(written_us) { Used::Marked } else { Used::Granted })
    }

    /// Records a server without grants as new, unless it has a record.
    pub(crate) async fn begin(&self, link: &CommandLink) -> Result<(), StoreError> {
        let Server { run, .. } = Self::server(link).await?;
        let text = self.read_or_write(link, &run).await?;
        self.found(&text.unwrap_or_default()).map(drop)
    }

    /// Returns the existing record, or the record written now after the server lost data. With
    /// an empty `fresh`, nothing is written.
    async fn read_or_write(
        &self,
        link: &CommandLink,
        fresh: &str,
    ) -> Result<Option<String>, StoreError> {
        let mut call = Scripted::begin(&scripts::of_queue(Topology::Quorum).mark, 1);
        call.text(&self.key).text(fresh).text(&self.agreed).text(PRIMARY_COUNTERS);
        let answer = link.run_script(call, QUEUE).await;
        if answer.as_ref().is_err_and(|error| error.kind == LockErrorKind::WrongType) {
            self.all.note(self.at, Sight::Theirs);
        }
        text(answer?)
    }

    fn found<'a>(&self, text: &'a str) -> Result<Found<'a>, StoreError> {
        self.all.note(self.at, Sight::Theirs);
        let invalid = |detail| StoreError::refused(LockErrorKind::InvalidOption, detail);
        let Some(found) = Found::read(text) else {
            return Err(invalid(format!("the key {} belongs to another program", self.key)));
        };
        if found.agreed == self.agreed {
            self.all.note(self.at, Sight::Ours);
            return Ok(found);
        }
        Err(invalid(format!(
            "the server belongs to another quorum: the key {} contains `{}`, but this process \
             expects `{}` (index in the list, longest lease in ms, list). Use the same list and \
             settings in all processes",
            self.key, found.agreed, self.agreed
        )))
    }

    /// Refuses a server that a replica may replace unnoticed.
    async fn server(link: &CommandLink) -> Result<Server, StoreError> {
        let info = Info::read(&link.run(redis::cmd("INFO")).await?);
        let replid2 = info.of("master_replid2");
        let why = match info.of("role") {
            "master" if info.of("connected_slaves") != "0" => {
                "the server has replicas, which may be promoted"
            }
            "master" if !replid2.is_empty() && replid2 != NO_ID => {
                "the server is a promoted replica: restart it"
            }
            "master" => {
                // In whole seconds, of a clock that is read now and then.
                let uptime = info.of("uptime_in_seconds").parse::<u64>().unwrap_or_default();
                let uptime = Duration::from_secs(uptime.saturating_sub(1));
                return Ok(Server { run: info.of("run_id").to_owned(), uptime });
            }
            _ => "the server is a replica",
        };
        let detail = format!("{why}: quorum primaries must be standalone servers");
        Err(StoreError::refused(LockErrorKind::Unsupported, detail))
    }
}

async fn time(link: &CommandLink) -> Result<u64, StoreError> {
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(link.run(redis::cmd("TIME")).await?)
            .map_err(|_| refused("unexpected reply to TIME"))?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

fn text<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    redis::from_redis_value(answer).map_err(|_| refused("the quorum identity is not text"))
}

fn refused(detail: &str) -> StoreError {
    StoreError::refused(LockErrorKind::Protocol, detail)
}
