//! The identity record on a quorum primary, and the time since the primary may last have lost data.
//!
//! # Implementation notes
//!
//! - The first process that finds no record, or no counter of the record's epoch, writes both with
//!   the server's current time. If either is missing later, the server has lost data in between.
//! - The record names the server's run, and the first process that finds another run writes it,
//!   with the server's current time. So the time is counted from the first contact in a run, and
//!   not from the run's start: a server that has run for long elsewhere, with a copy of the
//!   record, knows none of the later holds. An uptime would not show this.
//! - A server that gets its address back still has the record of its own run. So a process that has
//!   found another run at the address meanwhile counts only the time since it found this run again.
//! - If other primaries belong to another list of primaries, a process writes a missing record only
//!   if a majority agrees with its own list. Otherwise a process with an old list would claim an
//!   emptied server, and keep the other processes out.
//! - A restart breaks connections, and the client reads the run id on each new connection before
//!   commands can use it.
//! - The record contains the whole list of primaries, because the majorities of two different lists
//!   need not share a primary.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::CommandLink;
use proto::layout::QUEUE;
use proto::wire::keys::PRIMARY_COUNTERS;
use proto::wire::{Call as _, scripts};
use proto::{LockErrorKind, StoreError, Topology};
use redis::{FromRedisValue, Value};
use tokio::time::Instant;

use super::call::Scripted;
use super::preflight::Info;
use super::run::Run as _;
use super::server_time::ServerTime;
use crate::store::Standing;

/// The Redis key of the identity record. If there is a namespace, a colon and the namespace follow.
const KEY: &str = "lockcore:quorum";
/// Error text for a primary that has no identity record, and on which this process writes none.
const UNMARKED: &str = "the server has no quorum identity, and none is written: other primaries \
    belong to another quorum, and no majority belongs to the quorum of this process";
/// Value of `master_replid2` in INFO on a server without an earlier replication history.
const NO_ID: &str = "0000000000000000000000000000000000000000";

/// The identity record that this process expects on a quorum primary. It shows to which list of
/// primaries the server belongs.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    key: String,
    /// The primary's index in the list of primaries, from 0.
    at: usize,
    /// What this process has found on each primary of the list.
    all: Arc<Marks>,
    /// The part of the record on which all processes must agree: the primary's index, the longest
    /// lease in ms and the list of primaries.
    agreed: String,
    /// True if the user guarantees that a restarted server still has everything it has
    /// acknowledged.
    trusts_restarts: bool,
    /// The server's run, as this process last found it; `None` until it has found a run.
    found_run: Arc<Mutex<Option<FoundRun>>>,
}

/// A run of the server, and since when this process has found it, if it found another run before.
type FoundRun = (String, Option<Instant>);

/// What this process last found on each primary of the list; `None` for a primary whose record was
/// not read yet.
#[derive(Debug)]
pub(crate) struct Marks(Mutex<Vec<Option<Sight>>>);

/// What a process finds at the key of a primary's identity record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Missing,
    Ours,
    /// The record of another list of primaries, or an invalid record.
    Theirs,
}

impl Marks {
    /// Creates the list for `n` primaries, whose records were not read yet.
    pub(crate) fn of(n: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(vec![None; n])))
    }

    fn each(&self) -> MutexGuard<'_, Vec<Option<Sight>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, at: usize, sight: Sight) {
        self.each()[at] = Some(sight);
    }

    /// Returns true if a missing record may be written: no primary belongs to another list, or a
    /// majority belongs to this list.
    fn agree(&self) -> bool {
        let each = self.each();
        let count = |sight| each.iter().flatten().filter(|other| **other == sight).count();
        count(Sight::Theirs) == 0 || count(Sight::Ours) > each.len() / 2
    }
}

/// An identity record read from a primary, in its parts.
#[derive(Debug, PartialEq, Eq)]
struct Found<'a> {
    /// The server's time when the record was written, in µs since the epoch. The server was not
    /// emptied since then; this time identifies the epoch.
    written_us: u64,
    /// The server's run, as in [`Mark::run`].
    run: &'a str,
    /// The server's time at the first contact in this run, in µs since the epoch; 0 if the server
    /// had granted nothing when the record was written, in this run.
    since_us: u64,
    /// The part of the record on which all processes must agree.
    agreed: &'a str,
}

impl<'a> Found<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let (written_us, run) = (parts.next()?.parse().ok()?, parts.next()?);
        let (since_us, agreed) = (parts.next()?.parse().ok()?, parts.next()?);
        Some(Self { written_us, run, since_us, agreed })
    }
}

/// What to write if the identity record is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Nothing,
    /// A record of a server that may have granted locks before.
    Used,
    /// A record of a server that has granted nothing.
    New,
}

/// How a server has been used as a quorum primary so far, according to its identity record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    /// The server has no identity record.
    Not,
    /// The server was recorded as new in its present run, and has granted nothing.
    Marked,
    /// The server was recorded as new in its present run, and may have granted locks since.
    Granted,
}

impl Mark {
    /// Creates the record expected on the primary at index `at` of the list.
    pub(crate) fn new(
        namespace: Option<&str>,
        (at, list): (usize, &str),
        all: Arc<Marks>,
        max_lease: Duration,
        trusts_restarts: bool,
    ) -> Self {
        let key = namespace.map_or_else(|| KEY.to_owned(), |of| format!("{KEY}:{of}"));
        let agreed = format!("{at} {} {list}", max_lease.as_millis());
        Self { key, at, all, agreed, trusts_restarts, found_run: Arc::default() }
    }

    /// Reads the record without writing a missing record. Fails if the record belongs to another
    /// list.
    pub(crate) async fn check_identity(&self, link: &CommandLink) -> Result<(), StoreError> {
        match self.read_or_write(link, "", IfMissing::Nothing).await? {
            Some(text) => self.found(&text).map(drop),
            None => {
                self.all.note(self.at, Sight::Missing);
                Ok(())
            }
        }
    }

    /// Returns the time since the server may last have lost data. Writes the record if it is
    /// missing or has another run, and records the current time of the server, so that new tokens
    /// are above it. Fails if the record belongs to another list, or is missing and must not be
    /// written.
    pub(crate) async fn standing(
        &self,
        link: &CommandLink,
        server_time: &ServerTime,
    ) -> Result<Standing, StoreError> {
        let generation = link.generation();
        let run = Self::run(link).await?;
        let now_us = time(link).await?;
        let if_missing = match self.all.agree() {
            true => IfMissing::Used,
            false => IfMissing::Nothing,
        };
        let Some(text) = self.read_or_write(link, &run, if_missing).await? else {
            self.all.note(self.at, Sight::Missing);
            return Err(StoreError::refused(LockErrorKind::InvalidOption, UNMARKED));
        };
        let Found { written_us, since_us, .. } = self.found(&text)?;
        // The old epoch ends before the new epoch is published, because a grant in the new epoch
        // must not count for the old epoch.
        let known_us = server_time.epoch_us();
        if known_us != written_us && server_time.end_epoch(known_us) {
            link.count_as_another();
        }
        let server = link.servers();
        // Checked after the number was read, which may otherwise belong to a server that was not
        // examined.
        if link.generation() != generation {
            return Err(StoreError::ambiguous("the connection was replaced meanwhile"));
        }
        server_time.begin_epoch(written_us);
        server_time.note_first(now_us, server);
        server_time.log();
        let since = |then_us| Duration::from_micros(now_us.saturating_sub(then_us));
        let age = match since_us {
            0 => Duration::MAX,
            _ if self.trusts_restarts => since(written_us),
            _ => since(written_us.max(since_us)),
        };
        let found_for = self.found_for(run);
        let age = if self.trusts_restarts { age } else { age.min(found_for) };
        Ok(Standing { server, age })
    }

    /// Records the server's run, and returns for how long this process has found it; without a
    /// limit if this process has found no other run before.
    fn found_for(&self, run: String) -> Duration {
        let mut found = self.found_run.lock().unwrap_or_else(PoisonError::into_inner);
        if !found.as_ref().is_some_and(|(known, _)| is_same_run(known, &run)) {
            let since = found.is_some().then(Instant::now);
            *found = Some((run, since));
        }
        let since = found.as_ref().and_then(|(_, since)| *since);
        since.map_or(Duration::MAX, |since| since.elapsed())
    }

    /// Returns how the server has been used so far. Fails if the server has a record but was not
    /// recorded as new in its present run: it may have granted locks before.
    pub(crate) async fn used(&self, link: &CommandLink) -> Result<Used, StoreError> {
        let get = |key: &str| link.run(redis::cmd("GET").arg(key).to_owned());
        let run = Self::run(link).await?;
        let mark: Option<String> = text(get(&self.key).await?)?;
        let Some(mark) = mark else { return Ok(Used::Not) };
        let found = self.found(&mark)?;
        if found.since_us != 0 || !is_same_run(found.run, &run) {
            let detail = "the server is not new: it counts once the longest lease has passed since \
                a process first used it";
            return Err(StoreError::refused(LockErrorKind::InvalidOption, detail));
        }
        // Each grant raises the counter, which begins at the time of the record.
        let written_us = found.written_us;
        let count: Option<u64> = text(get(&format!("{PRIMARY_COUNTERS}{written_us}")).await?)?;
        Ok(if count == Some(written_us) { Used::Marked } else { Used::Granted })
    }

    /// Writes the record on a server that has granted nothing. Does nothing if there is a record.
    pub(crate) async fn begin(&self, link: &CommandLink) -> Result<(), StoreError> {
        let run = Self::run(link).await?;
        let text = self.read_or_write(link, &run, IfMissing::New).await?;
        self.found(&text.unwrap_or_default()).map(drop)
    }

    /// Reads the record. If the record has another run than `run`, the server's run, writes that
    /// run; with an empty `run`, this is left out. If the server has no record, or has lost data,
    /// writes a new record as `if_missing` says, or returns `None`.
    async fn read_or_write(
        &self,
        link: &CommandLink,
        run: &str,
        if_missing: IfMissing,
    ) -> Result<Option<String>, StoreError> {
        let if_missing = match if_missing {
            IfMissing::Nothing => "",
            IfMissing::Used => "used",
            IfMissing::New => "new",
        };
        let mut call = Scripted::begin(&scripts::of_queue(Topology::Quorum).mark, 1);
        call.text(&self.key).text(run).text(if_missing).text(&self.agreed).text(PRIMARY_COUNTERS);
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

    /// Returns the server's run: the run id, and if the server has an earlier replication history,
    /// a colon and the id of that history, which changes with each promotion in this run. Fails if
    /// the server is a replica, or has replicas, one of which may be promoted while this server
    /// still grants locks.
    async fn run(link: &CommandLink) -> Result<String, StoreError> {
        let info = Info::read(&link.run(redis::cmd("INFO")).await?);
        let (run, earlier) = (info.of("run_id"), info.of("master_replid2"));
        let why = match info.of("role") {
            "master" if info.of("connected_slaves") != "0" => {
                "the server has replicas, which may be promoted"
            }
            "master" if run.is_empty() => "INFO has no run id, which shows a restart",
            "master" if earlier.is_empty() || earlier == NO_ID => return Ok(run.to_owned()),
            "master" => return Ok(format!("{run}:{earlier}")),
            _ => "the server is a replica",
        };
        let detail = format!("{why}: quorum primaries must be standalone servers");
        Err(StoreError::refused(LockErrorKind::Unsupported, detail))
    }
}

/// Returns true if a server that was in the run `known` is still in this run, `run`. The earlier
/// replication history may end meanwhile, but begins only with a promotion: then the server was a
/// replica, and may have lost data.
fn is_same_run(known: &str, run: &str) -> bool {
    known.starts_with(run)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_when_its_earlier_history_is_over_and_ends_with_a_promotion() {
        let [plain, loaded, promoted] = ["a1", "a1:b2", "a1:c3"];
        assert!(is_same_run(plain, plain) && is_same_run(loaded, loaded));
        assert!(is_same_run(loaded, plain), "repl-backlog-ttl is over");
        for (known, run) in [(plain, promoted), (loaded, promoted), (plain, "d4")] {
            assert!(!is_same_run(known, run), "{known}, then {run}");
        }
    }

    #[test]
    fn a_record_of_another_form_is_not_read() {
        let found = Found::read("7 a1:b2 0 1 5000 a,b,c").expect("valid");
        assert_eq!((found.written_us, found.run, found.since_us), (7, "a1:b2", 0));
        assert_eq!(found.agreed, "1 5000 a,b,c");
        for text in ["", "theirs", "7 a1 0", "x a1 0 1", "7 a1 x 1"] {
            assert_eq!(Found::read(text), None, "{text}");
        }
    }
}
