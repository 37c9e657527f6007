//! `lockctl exec`: runs CMD while holding the lock.

use std::time::Duration;

use lockcore::{LockError, LockErrorKind, LockGuard, LockOptions, Locks, Shutdown};
use tokio::time::{Instant, timeout};

use crate::arguments::{Exec, Server};
use crate::child::{Child, Start};
use crate::connect;
use crate::exit::{self, Failure};
use crate::progress::Progress;
use crate::signals::Signals;

/// The maximum time for a ping. After the wait for the lock has timed out, a ping finds out whether
/// Redis is unavailable.
const PING: Duration = Duration::from_secs(1);

/// The maximum time at the end of `lockctl` for releases not yet confirmed by the server, if Redis
/// was available.
const RELEASES: Duration = Duration::from_secs(5);

/// The maximum time at the end of `lockctl` for releases not yet confirmed by the server, if Redis
/// was unavailable.
const RELEASES_UNAVAILABLE: Duration = Duration::from_millis(500);

/// How the wait for the lock ended.
enum Waited {
    Held(LockGuard),
    /// The wait was ended by the signal with this number.
    Stopped(i32),
}

pub(crate) async fn run(server: &Server, exec: Exec) -> Result<u8, Failure> {
    let mut signals = Signals::listen().map_err(|error| {
        Failure::new(
            exit::FAILED,
            format!(
                "signal handlers cannot be installed: \
            {error}"
            ),
        )
    })?;
    let started = Instant::now();
    let locks = tokio::select! {
        biased;
        signal = signals.next() => return Ok(exit::by_signal(signal)),
        locks = connect::within(&server.redis, builder(server, &exec), started, exec.wait) => locks?,
    };
    let mut release_failed = false;
    let outcome = hold(&locks, &exec, started, &mut signals, &mut release_failed).await;
    let unavailable =
        release_failed || matches!(&outcome, Err(failure) if failure.code == exit::UNAVAILABLE);
    let limit = if unavailable { RELEASES_UNAVAILABLE } else { RELEASES };
    let shutdown = timeout(limit, locks.shutdown(Duration::ZERO)).await;
    if release_failed && !matches!(shutdown, Ok(Shutdown { unreleased: 0, .. })) {
        let lease = exec.lease.as_secs_f64();
        exit::warn(&format!("the lock could not be released: its lease expires within {lease} s"));
    }
    outcome
}

fn builder(server: &Server, exec: &Exec) -> lockcore::LocksBuilder {
    // After a wait, the first lease is a third, or 2 s with a short lease. A response delayed by
    // two fifths of it can cost the hold.
    let claim = (exec.lease / 3).max(Duration::from_secs(2)).min(exec.lease);
    let request_timeout = (claim * 2 / 5).clamp(Duration::from_millis(250), Duration::from_secs(2));
    let builder = server.builder().request_timeout(request_timeout);
    match &exec.label {
        Some(label) => builder.label(label.to_string_lossy()),
        None => builder,
    }
}

/// Acquires the lock, runs CMD, and releases the lock. Returns the exit code of `lockctl`. Sets
/// `release_failed` if the server has not confirmed the release.
async fn hold(
    locks: &Locks,
    exec: &Exec,
    started: Instant,
    signals: &mut Signals,
    release_failed: &mut bool,
) -> Result<u8, Failure> {
    let held = match wait(locks, exec, started, signals).await? {
        Waited::Held(held) => held,
        Waited::Stopped(signal) => return Ok(exit::by_signal(signal)),
    };
    let end = match Child::start(&exec.command, &exec.key, &held, signals) {
        Ok(Start::Running(child)) => child.end(&held, signals).await,
        Ok(Start::Stopped(signal)) => {
            let _ = held.release().await;
            return Ok(exit::by_signal(signal));
        }
        Err(failure) => {
            let _ = held.release().await;
            return Err(failure);
        }
    };
    let released = held.release().await;
    let end = end.map_err(|error| {
        Failure::new(
            exit::FAILED,
            format!(
                "waiting for CMD failed: \
            {error}"
            ),
        )
    })?;
    if end.lost {
        return Ok(exit::LOST);
    }
    match released {
        Ok(()) => Ok(end.code),
        Err(error) if error.kind() == LockErrorKind::Lost => {
            Err(Failure::new(exit::LOST, format!("{}: {error}; CMD has ended", exec.key)))
        }
        // The lease was still valid when CMD ended, so CMD was never without the lock.
        Err(_) => {
            *release_failed = true;
            Ok(end.code)
        }
    }
}

async fn wait(
    locks: &Locks,
    exec: &Exec,
    started: Instant,
    signals: &mut Signals,
) -> Result<Waited, Failure> {
    let mut options = LockOptions::new().lease(exec.lease);
    if let Some(wait) = exec.wait {
        options = options.wait(wait.saturating_sub(started.elapsed()));
    }
    if let Some(queue_limit) = exec.queue_limit {
        options = options.queue_limit(queue_limit);
    }
    let acquire = locks.key(exec.key.as_str()).options(options).acquire(exec.demand());
    let mut progress = Progress::on_stderr();
    let outcome = tokio::select! {
        biased;
        outcome = acquire => outcome,
        signal = signals.next() => {
            progress.clear().await;
            return Ok(Waited::Stopped(signal));
        }
        never = progress.follow(locks, &exec.key) => match never {},
    };
    progress.clear().await;
    match outcome {
        Ok(held) => Ok(Waited::Held(held)),
        Err(error) => Err(not_acquired(locks, exec, &error).await),
    }
}

async fn not_acquired(locks: &Locks, exec: &Exec, error: &LockError) -> Failure {
    let key = &exec.key;
    match error.kind() {
        LockErrorKind::Timeout => {
            // While Redis was unavailable, the lock may have been free.
            if let Some(reason) = why_unavailable(locks).await {
                return Failure::new(exit::UNAVAILABLE, format!("{key}: {reason}"));
            }
            let wait = exec.wait.unwrap_or_default().as_secs_f64();
            Failure::new(exit::NOT_ACQUIRED, format!("{key}: {error} (--wait {wait})"))
        }
        LockErrorKind::QueueFull => {
            let limit = exec.queue_limit.unwrap_or(1_000);
            Failure::new(exit::NOT_ACQUIRED, format!("{key}: {error} (--queue-limit {limit})"))
        }
        kind => Failure::new(exit::code(kind), format!("{key}: {error}")),
    }
}

async fn why_unavailable(locks: &Locks) -> Option<String> {
    match timeout(PING, locks.ping()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("Redis has not replied for {PING:?}")),
    }
}
