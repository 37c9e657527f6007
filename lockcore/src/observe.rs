//! Every tracing event and every metric, in one place.
//!
//! Lock names appear in events only (never as metric labels), and not at all when they are redacted.

use std::fmt;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::engine::Engine;
use crate::error::{LockErrorKind, StoreError};
use crate::hold::Hold;
use crate::key::LockName;
use crate::waiters::Waiter;

/// A lock's name as it may be logged.
struct Name<'a> {
    lock: &'a LockName,
    redact: bool,
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.redact { "(redacted)" } else { self.lock.as_str() })
    }
}

fn name<'a>(engine: &Engine, lock: &'a LockName) -> Name<'a> {
    Name { lock, redact: engine.settings.redact_names }
}

/// Counts one of something; nothing without the feature `metrics`.
macro_rules! count {
    ($name:literal $(, $label:literal => $value:expr)*) => {
        #[cfg(feature = "metrics")]
        metrics::counter!($name $(, $label => $value)*).increment(1);
    };
}

/// Records one value; nothing without the feature `metrics`.
macro_rules! record {
    ($name:literal, $value:expr) => {
        #[cfg(feature = "metrics")]
        metrics::histogram!($name).record($value);
    };
}

/// The span in which an attempt waits.
pub(crate) fn acquiring(engine: &Engine, lock: &LockName) -> tracing::Span {
    tracing::debug_span!("acquire", lock = %name(engine, lock))
}

pub(crate) fn queued(engine: &Engine, lock: &LockName, position: u64) {
    debug!(lock = %name(engine, lock), position, "queued");
    record!("lockcore_queue_length", (position + 1) as f64);
}

pub(crate) fn granted(engine: &Engine, waiter: &Waiter, handed_over: bool) {
    let waited = waiter.started.elapsed();
    debug!(lock = %name(engine, &waiter.lock), ?waited, handed_over, "granted");
    record!("lockcore_wait_seconds", waited.as_secs_f64());
    if handed_over {
        count!("lockcore_hand_offs_total");
    }
}

pub(crate) fn cancelled(engine: &Engine, waiter: &Waiter) {
    debug!(lock = %name(engine, &waiter.lock), waited = ?waiter.started.elapsed(), "given up");
}

pub(crate) fn refused(engine: &Engine, lock: &LockName, kind: LockErrorKind) {
    debug!(lock = %name(engine, lock), ?kind, "refused");
    count!("lockcore_refused_total", "cause" => cause(kind));
}

pub(crate) fn place_lost(engine: &Engine, lock: &LockName) {
    engine.places_lost.fetch_add(1, Ordering::Relaxed);
    warn!(lock = %name(engine, lock), "the place in the queue is lost: waiting on at the tail");
    count!("lockcore_places_lost_total");
}

pub(crate) fn ended(engine: &Engine, hold: &Hold) {
    let held = hold.since.elapsed();
    debug!(lock = %name(engine, &hold.lock), ?held, "given back");
    record!("lockcore_hold_seconds", held.as_secs_f64());
}

pub(crate) fn renewed(engine: &Engine, hold: &Hold) {
    debug!(lock = %name(engine, &hold.lock), "renewed");
    count!("lockcore_renewals_total", "outcome" => "renewed");
}

pub(crate) fn renewal_failed(engine: &Engine, hold: &Hold, error: &StoreError) {
    warn!(lock = %name(engine, &hold.lock), kind = ?error.kind, error = %error.detail, "the hold could not be renewed yet");
    count!("lockcore_renewals_total", "outcome" => "failed");
}

pub(crate) fn lost(engine: &Engine, hold: &Hold, why: &'static str) {
    warn!(lock = %name(engine, &hold.lock), held = ?hold.since.elapsed(), why, "the hold is lost");
    count!("lockcore_lost_total");
}

pub(crate) fn leave_failed(engine: Option<&Engine>, lock: &LockName, error: &StoreError) {
    match engine {
        Some(engine) => warn!(
            lock = %name(engine, lock), kind = ?error.kind, error = %error.detail,
            "not given back: it ends by itself"
        ),
        None => {
            warn!(kind = ?error.kind, error = %error.detail, "not given back: it ends by itself")
        }
    }
    count!("lockcore_not_given_back_total");
}

pub(crate) fn touch_failed(engine: &Engine, lock: &LockName, error: &StoreError) {
    debug!(lock = %name(engine, lock), kind = ?error.kind, error = %error.detail, "waiting members not touched");
}

pub(crate) fn deaf(engine: &Engine) {
    warn!(node = %engine.node, "the server does not know our subscription: opening it anew");
}

pub(crate) fn passed_over(engine: &Engine, lock: &LockName, waiters: u64) {
    debug!(lock = %name(engine, lock), waiters, "passed over: their nodes are not connected");
    #[cfg(feature = "metrics")]
    metrics::counter!("lockcore_passed_over_total").increment(waiters);
    if let Some(lasting) = engine.passed_over.note(Instant::now()) {
        warn!(
            lock = %name(engine, lock), ?lasting,
            "waiting members are passed over for longer than processes that died would be: do all that share the lock have the same channel_prefix?"
        );
    }
}

/// Once per node: a queue shared with a JVM is no accident that comes and goes.
pub(crate) fn foreign(engine: &Engine, lock: &LockName) {
    if !engine.warned_of_foreign.swap(true, Ordering::Relaxed) {
        warn!(
            lock = %name(engine, lock),
            "another client, such as Redisson, uses this lock: exclusion holds, but hand-over waits for it to act; LocksBuilder::redisson_peers(true) shares one queue with it"
        );
    }
}

#[cfg(feature = "metrics")]
fn cause(kind: LockErrorKind) -> &'static str {
    match kind {
        LockErrorKind::Timeout => "busy",
        LockErrorKind::QueueFull => "queue_full",
        LockErrorKind::Unavailable => "unavailable",
        LockErrorKind::ReadOnly => "read_only",
        LockErrorKind::Denied => "denied",
        LockErrorKind::OutOfMemory => "out_of_memory",
        LockErrorKind::Closed => "closed",
        _ => "other",
    }
}
