//! Every tracing event and every metric, in one place.
//!
//! Lock names appear in events only (never as metric labels), and not at all when they are redacted.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

#[cfg(feature = "metrics")]
use crate::error::LockErrorKind;
use crate::key::LockName;
use crate::node::{Driver, Note};

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

fn name<'a>(node: &Driver, lock: &'a LockName) -> Name<'a> {
    Name { lock, redact: node.settings.redact_names }
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
pub(crate) fn acquiring(node: &Driver, lock: &LockName) -> tracing::Span {
    tracing::debug_span!("acquire", lock = %name(node, lock))
}

pub(crate) fn ended(node: &Driver, lock: &LockName, held: Duration) {
    debug!(lock = %name(node, lock), ?held, "given back");
    record!("lockcore_hold_seconds", held.as_secs_f64());
}

/// What the node's table has to say.
pub(crate) fn note(node: &Driver, note: &Note) {
    match note {
        Note::Queued { lock, position } => {
            debug!(lock = %name(node, lock), position, "queued");
            record!("lockcore_queue_length", (position + 1) as f64);
        }
        Note::Granted { lock, waited, handed_over } => {
            debug!(lock = %name(node, lock), ?waited, handed_over, "granted");
            record!("lockcore_wait_seconds", waited.as_secs_f64());
            if *handed_over {
                count!("lockcore_hand_offs_total");
            }
        }
        Note::Cancelled { lock, waited } => {
            debug!(lock = %name(node, lock), ?waited, "given up");
        }
        Note::Refused { lock, kind } => {
            debug!(lock = %name(node, lock), ?kind, "refused");
            count!("lockcore_refused_total", "cause" => cause(*kind));
        }
        Note::PlaceLost { lock } => {
            warn!(lock = %name(node, lock), "the place in the queue is lost: waiting on at the tail");
            count!("lockcore_places_lost_total");
        }
        Note::Missed { lock } => {
            warn!(lock = %name(node, lock), "granted, but its future was not polled in time: passed on, and the place in the queue is lost");
            count!("lockcore_places_lost_total");
        }
        Note::Renewed { lock } => {
            debug!(lock = %name(node, lock), "renewed");
            count!("lockcore_renewals_total", "outcome" => "renewed");
        }
        Note::RenewalFailed { lock, error } => {
            warn!(lock = %name(node, lock), kind = ?error.kind, error = %error.detail, "the hold could not be renewed yet");
            count!("lockcore_renewals_total", "outcome" => "failed");
        }
        Note::Lost { lock, held, why } => {
            warn!(lock = %name(node, lock), ?held, why, "the hold is lost");
            count!("lockcore_lost_total");
        }
        Note::LeaveFailed { lock, error } => {
            warn!(
                lock = %name(node, lock), kind = ?error.kind, error = %error.detail,
                "not given back: it ends by itself"
            );
            count!("lockcore_not_given_back_total");
        }
        Note::TouchFailed { lock, error } => {
            debug!(lock = %name(node, lock), kind = ?error.kind, error = %error.detail, "waiting members not touched");
        }
        Note::PassedOver { lock, waiters } => {
            debug!(lock = %name(node, lock), waiters, "passed over: their nodes are not connected");
            #[cfg(feature = "metrics")]
            metrics::counter!("lockcore_passed_over_total").increment(*waiters);
            if let Some(lasting) = node.passed_over.note(Instant::now()) {
                warn!(
                    lock = %name(node, lock), ?lasting,
                    "waiting members are passed over for longer than processes that died would be: do all that share the lock have the same channel_prefix?"
                );
            }
        }
        Note::Foreign { lock } => foreign(node, lock),
        Note::Deaf => {
            warn!(node = %node.id, "the server does not know our subscription: opening it anew");
        }
    }
}

/// Once per node: a queue shared with a JVM is no accident that comes and goes.
fn foreign(node: &Driver, lock: &LockName) {
    if !node.warned_of_foreign.swap(true, Ordering::Relaxed) {
        warn!(
            lock = %name(node, lock),
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
