//! The mark of a primary of a quorum, and the time for which its server has forgotten nothing.
//!
//! # Implementation notes
//!
//! - The mark is written, with the server's time, by the first process that finds none, or no
//!   counter of its epoch: if one of the two is missing later, the server was emptied in between.
//! - But not by one whose list other primaries contradict, unless a majority agrees with it: else a
//!   process with an old list would claim a server that was emptied, and keep the others out.
//! - A restart that keeps the mark is told by the server's run. The link asks for that on each new
//!   connection, before a command can use it; a restart breaks connections.
//! - The mark has the whole list of the primaries: another list would have majorities that do not
//!   meet those of this one.

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

/// The first part of the name of the key, before the namespace.
const KEY: &str = "lockcore:quorum";
/// The reason why no mark is written.
const UNMARKED: &str = "it has no mark, and is given none: other primaries belong to another quorum, \
    and no majority to that of this process";
/// The replication id of a server that was never a replica.
const NO_ID: &str = "0000000000000000000000000000000000000000";

/// The mark that a primary is to have.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    key: String,
    at: usize,
    /// The marks of all primaries.
    all: Arc<Marks>,
    /// The part on which all processes agree: the place in the list, the longest lease, the list.
    agreed: String,
    /// A restart keeps all that the server has answered.
    trusts_restarts: bool,
}

/// The marks of all primaries, as this process has found each last.
#[derive(Debug)]
pub(crate) struct Marks(Mutex<Vec<Option<Sight>>>);

/// The mark of one primary, as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Missing,
    Ours,
    /// Of another list, or no mark at all.
    Theirs,
}

impl Marks {
    /// Those of `n` primaries, none of which was read yet.
    pub(crate) fn of(n: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![None; n])))
    }

    fn each(&self) -> MutexGuard<'_, Vec<Option<Sight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, at: usize, sight: Sight) {
        self.each()[at] = Some(sight);
    }

    /// Whether a mark may be written where none is.
    fn agree(&self) -> bool {
        let each = self.each();
        let count = |sight| each.iter().flatten().filter(|other| **other == sight).count();
        count(Sight::Theirs) == 0 || count(Sight::Ours) > each.len() / 2
    }
}

/// A mark as it was found.
#[derive(Debug, PartialEq, Eq)]
struct Found<'a> {
    /// The time at which it was written, µs since the epoch.
    written_us: u64,
    /// The run of the server in which nothing was granted before the mark was written.
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

/// The use of a server so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    Not,
    /// Marked as new in its present run, and nothing else.
    Marked,
    /// So marked, and it may have granted something since.
    Granted,
}

/// The part of a server's INFO that decides whether it counts.
struct Server {
    run: String,
    uptime: Duration,
}

impl Mark {
    /// The mark of the primary at this place of the list.
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

    /// Reads the mark, and writes none. Refuses that of another list.
    pub(crate) async fn look(&self, link: &CommandLink) -> Result<(), StoreError> {
        match self.read_or_write(link, "").await? {
            Some(text) => self.found(&text).map(drop),
            None => {
                self.all.note(self.at, Sight::Missing);
                Ok(())
            }
        }
    }

    /// The time for which the server has forgotten nothing. Notes its present time.
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
        // Before the epoch is told: nothing that is granted in it counts for the one before.
        let known_us = server_time.epoch_us();
        if known_us != written_us && server_time.end_epoch(known_us) {
            link.count_as_another();
        }
        let server = link.servers();
        // After the number was read: else it may be that of a server of which nothing was asked.
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

    /// The use of a server so far. Refuses one that was not marked as new in its present run: it
    /// may have granted something.
    pub(crate) async fn used(&self, link: &CommandLink) -> Result<Used, StoreError> {
        let get = |key: &str| link.run(redis::cmd("GET").arg(key).to_owned());
        let Server { run, .. } = Self::server(link).await?;
        let mark: Option<String> = text(get(&self.key).await?)?;
        let Some(mark) = mark else { return Ok(Used::Not) };
        let found = self.found(&mark)?;
        if found.fresh != run {
            let detail = "it is not new: it counts once it has run for the longest lease";
            return Err(StoreError::refused(LockErrorKind::InvalidOption, detail));
        }
        // Each grant draws a number.
        let written_us = found.written_us;
        let count: Option<u64> = text(get(&format!("{PRIMARY_COUNTERS}{written_us}")).await?)?;
        Ok(if count == Some(written_us) { Used::Marked } else { Used::Granted })
    }

    /// Marks a server that has granted nothing yet, unless it is marked.
    pub(crate) async fn begin(&self, link: &CommandLink) -> Result<(), StoreError> {
        let Server { run, .. } = Self::server(link).await?;
        let text = self.read_or_write(link, &run).await?;
        self.found(&text.unwrap_or_default()).map(drop)
    }

    /// The mark that is there, or that is written since the server was emptied. Nothing is written
    /// if `fresh` is empty.
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
            return Err(invalid(format!("the key {} is another program's", self.key)));
        };
        if found.agreed == self.agreed {
            self.all.note(self.at, Sight::Ours);
            return Ok(found);
        }
        Err(invalid(format!(
            "it belongs to another quorum: its key {} says `{}`, and this process `{}` (place in the \
             list, longest lease in ms, list). Use the same list and settings in all processes",
            self.key, found.agreed, self.agreed
        )))
    }

    /// Refuses a server in whose place a replica may come, which nobody would see.
    async fn server(link: &CommandLink) -> Result<Server, StoreError> {
        let info = Info::read(&link.run(redis::cmd("INFO")).await?);
        let replid2 = info.of("master_replid2");
        let why = match info.of("role") {
            "master" if info.of("connected_slaves") != "0" => {
                "the server has replicas, which may be promoted"
            }
            "master" if !replid2.is_empty() && replid2 != NO_ID => {
                "the server is a replica that was promoted: restart it"
            }
            "master" => {
                // In whole seconds of a clock that is read now and then.
                let uptime = info.of("uptime_in_seconds").parse::<u64>().unwrap_or_default();
                let uptime = Duration::from_secs(uptime.saturating_sub(1));
                return Ok(Server { run: info.of("run_id").to_owned(), uptime });
            }
            _ => "the server is a replica",
        };
        let detail = format!("{why}: a primary of a quorum stands alone");
        Err(StoreError::refused(LockErrorKind::Unsupported, detail))
    }
}

async fn time(link: &CommandLink) -> Result<u64, StoreError> {
    let (seconds, micros): (u64, u64) =
        redis::from_redis_value(link.run(redis::cmd("TIME")).await?)
            .map_err(|_| refused("TIME tells no time"))?;
    Ok(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

fn text<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    redis::from_redis_value(answer).map_err(|_| refused("the mark of the quorum is no text"))
}

fn refused(detail: &str) -> StoreError {
    StoreError::refused(LockErrorKind::Protocol, detail)
}
