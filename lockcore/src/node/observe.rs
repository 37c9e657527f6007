//! Emits all tracing events and metrics for a node or a quorum.
//!
//! Lock names appear only in events, never as metric labels, and not at all when redacted.

#[cfg(feature = "metrics")]
pub(super) mod gauges;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::node::{Note, Refusal};
use proto::{Answer, FencingToken, Label, LockErrorKind, LockName, NodeId, StoreError};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Span, debug, warn};

use super::hold_cell::HoldCell;
use super::settings::Settings;
use crate::foreign;
use crate::node::class::Class;
use crate::node::unreachable_waiters::UnreachableWaiters;
use crate::node::warning_pace::{Warning, WarningPace};
use crate::operate::hottest::{FullQueues, Heat};
use crate::types::trace_links::TraceLinks;

/// The name of the code that receives events and metrics, for the log message about a panic in that
/// code.
pub(super) const WATCHERS: &str = "a tracing subscriber, TraceLinks or a metrics recorder";

/// A lock name as it appears in the log: escaped, or `(redacted)`.
struct LoggedName<'a> {
    lock: &'a LockName,
    redact: bool,
}

impl fmt::Display for LoggedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.redact {
            return f.write_str("(redacted)");
        }
        // Invisible characters would make a name look like another.
        self.lock.as_str().escape_debug().fmt(f)
    }
}

/// Maximum number of lock names for which a node logs the same warning. For further names the
/// warning is not logged.
const MOST_WARNED_NAMES: usize = 64;

/// The lock names for which a warning was already logged, so that it is logged once per name.
#[derive(Default)]
struct WarnedNames(Mutex<BTreeSet<LockName>>);

impl WarnedNames {
    /// Adds a name. Returns true if the warning is to be logged for it: the name is new, and the
    /// maximum was not reached.
    fn insert(&self, lock: &LockName) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.len() < MOST_WARNED_NAMES && names.insert(lock.clone())
    }
}

/// Increments a counter. Does nothing without the feature `metrics`.
macro_rules! count {
    ($name:literal $(, $label:literal => $value:expr)*) => {
        #[cfg(feature = "metrics")]
        metrics::counter!($name $(, $label => $value)*).increment(1);
    };
}

/// Records `$value` in the histogram `$metric` of a class, the class of `$of` (a [`HoldCell`]).
/// Does nothing without the feature `metrics`.
macro_rules! record {
    ($of:expr, $metric:ident, $value:expr) => {
        #[cfg(feature = "metrics")]
        if let Some(class) = $of.class() {
            let value = $value;
            metrics::with_recorder(|recorder| {
                recorder.register_histogram(&class.metrics.$metric, &METADATA).record(value);
            });
        }
    };
}

/// The log level and module with which the histograms are registered.
#[cfg(feature = "metrics")]
static METADATA: metrics::Metadata<'static> =
    metrics::Metadata::new(module_path!(), metrics::Level::INFO, Some(module_path!()));

/// Registers the counters of a class at 0, once per class. Otherwise a counter would first appear
/// with the value 1, and monitoring would not see this as an increase.
pub(crate) fn begin_class(class: &Class) {
    #[cfg(feature = "metrics")]
    if class.metrics.begins() {
        foreign::call(WATCHERS, || {
            for name in ["lockcore_lost_total", "lockcore_cancelled_total"] {
                metrics::counter!(name, "class" => Arc::clone(&class.name)).increment(0);
            }
            for cause in CAUSES {
                let class = Arc::clone(&class.name);
                metrics::counter!("lockcore_refused_total", "cause" => cause, "class" => class)
                    .increment(0);
            }
        });
    }
    #[cfg(not(feature = "metrics"))]
    let _ = class;
}

/// Registers the counters that have no class label at 0.
fn begin_counters() {
    #[cfg(feature = "metrics")]
    foreign::call(WATCHERS, || {
        for name in [
            "lockcore_hand_offs_total",
            "lockcore_skipped_total",
            "lockcore_positions_lost_total",
            "lockcore_not_released_total",
        ] {
            metrics::counter!(name).increment(0);
        }
        for outcome in ["renewed", "failed"] {
            metrics::counter!("lockcore_renewals_total", "outcome" => outcome).increment(0);
        }
    });
}

/// Emits the events and metrics of a node or a quorum, and remembers which warnings were logged.
///
/// A request to a quorum goes to several nodes. So that it is counted once, only the quorum's
/// observer counts outcomes of requests and ends of holds. The observers of the quorum's nodes do
/// not, and add the field `primary` to their events.
///
/// No `Debug`, because it knows names that may have to be redacted.
pub(crate) struct Observer {
    node: NodeId,
    primary: Option<usize>,
    redact_names: bool,
    trace_links: Option<Arc<dyn TraceLinks>>,
    unreachable_waiters: UnreachableWaiters,
    warnings: WarningPace,
    behind_own: WarnedNames,
    pub(crate) heat: Heat,
    is_of_quorum: bool,
    /// True once the warning about an unpolled acquisition was logged.
    has_warned_unpolled: AtomicBool,
}

impl Observer {
    /// Creates a node's observer. `runtime` is where the number of left out warnings is logged.
    pub(super) fn new(node: NodeId, settings: &Settings, runtime: &Handle) -> Self {
        begin_counters();
        Self {
            warnings: WarningPace::new(node.clone(), settings.primary, runtime),
            node,
            primary: settings.primary,
            redact_names: settings.redact_names,
            trace_links: settings.trace_links.clone(),
            unreachable_waiters: UnreachableWaiters::default(),
            behind_own: WarnedNames::default(),
            heat: Heat::new(),
            is_of_quorum: false,
            has_warned_unpolled: AtomicBool::new(false),
        }
    }

    /// Creates a quorum's observer from the settings of one of its nodes.
    pub(crate) fn of_quorum(node: NodeId, settings: &Settings, runtime: &Handle) -> Self {
        let settings = Settings { primary: None, ..settings.clone() };
        Self { is_of_quorum: true, ..Self::new(node, &settings, runtime) }
    }

    fn name<'a>(&self, lock: &'a LockName) -> LoggedName<'a> {
        LoggedName { lock, redact: self.redact_names }
    }

    /// Returns the caller's trace context as a label. `None` if the caller has no context, or no
    /// [`TraceLinks`] are set.
    pub(crate) fn trace_label(&self) -> Option<Label> {
        let links = self.trace_links.as_ref()?;
        let mut current = None;
        foreign::call(WATCHERS, || current = links.current());
        current.map(|context| Label::new(context.as_ref()))
    }

    /// Creates the tracing span for an attempt's wait.
    pub(crate) fn acquiring(&self, lock: &LockName, of: &HoldCell) -> Span {
        tracing::debug_span!(
            "acquire", lock = %self.name(lock), class = of.class_name(),
            position = Empty, holder = Empty, token = Empty, outcome = Empty
        )
    }

    /// Records how a wait has ended in the tracing span of the wait: `Ok` with the fencing token of
    /// the grant, or `Err` with the name of another outcome, such as `busy`.
    pub(crate) fn acquired(&self, span: &Span, of: &HoldCell, outcome: Result<u64, &'static str>) {
        if span.is_disabled() {
            return;
        }
        foreign::call(WATCHERS, || {
            drop(of.take_records_holders());
            span.record("position", of.position());
            span.record("token", outcome.ok());
            span.record("outcome", outcome.err().unwrap_or("granted"));
        });
    }

    /// Records how far the predicted wait was above the actual wait, after a grant. Does nothing
    /// without a prediction.
    pub(crate) fn predicted(&self, of: &HoldCell, waited: Duration) {
        let Some((prediction, ahead)) = of.prediction().zip(of.position()) else { return };
        let error = prediction.wait(ahead).as_secs_f64() - waited.as_secs_f64();
        foreign::call(WATCHERS, || {
            debug!(class = of.class_name(), error_s = error, "predicted");
            record!(of, prediction_error, error);
        });
    }

    /// Records the holders' labels in the tracing span of a wait, and links the span to each label
    /// that is a trace context. `wait` contains the span and the request's own label. The own label
    /// is not linked: the request may itself be among the holders by now.
    pub(crate) fn held_by(&self, wait: (Span, Label), answer: Result<Answer, StoreError>) {
        // Dropping the span also calls the subscriber.
        foreign::call(WATCHERS, move || {
            let (span, own) = wait;
            let Ok(Answer::Inspected(inspection)) = answer else { return };
            let holders = inspection.holds.iter().filter_map(|hold| hold.party.ours());
            let labels: Vec<_> = holders.map(|member| Label::unescape(member.label())).collect();
            span.record("holder", labels.join(" "));
            let Some(links) = &self.trace_links else { return };
            let others = labels.iter().filter(|label| *label != own.as_str());
            let contexts = others.filter_map(|label| label.parse().ok());
            contexts.for_each(|holder| links.link(&span, &holder));
        });
    }

    /// Creates the tracing span for a hold, linked to the wait's span.
    pub(crate) fn holding(
        &self,
        lock: &LockName,
        of: &HoldCell,
        token: FencingToken,
        wait: &Span,
    ) -> Span {
        let mut span = Span::none();
        foreign::call(WATCHERS, || {
            let name = self.name(lock);
            span = tracing::debug_span!("hold", lock = %name, class = of.class_name(), %token);
            span.follows_from(wait);
        });
        span
    }

    /// Reports that a hold has ended. `held` returns how long it lasted; it is only called if a log
    /// or metric needs the value, because it reads the clock.
    pub(crate) fn ended(&self, lock: &LockName, of: &HoldCell, held: impl Fn() -> Duration) {
        foreign::call(WATCHERS, || {
            let (class, primary) = (of.class_name(), self.primary);
            debug!(lock = %self.name(lock), class, primary, held = ?held(), "released");
            if primary.is_none() {
                record!(of, hold, held().as_secs_f64());
            }
        });
    }

    /// Counts an attempt that its caller has dropped. The count is not taken from
    /// `Note::Cancelled`, because attempts that have timed out emit it, too.
    pub(crate) fn cancelled(&self, _of: &HoldCell) {
        if self.primary.is_some() {
            return;
        }
        foreign::call(WATCHERS, || {
            count!("lockcore_cancelled_total", "class" => _of.class_label());
        });
    }

    /// Warns, only once, about an acquisition that was dropped before it was polled. Its `.await`
    /// may be missing, and then the caller's code runs without the lock.
    pub(crate) fn unpolled(&self) {
        if !self.has_warned_unpolled.swap(true, Ordering::Relaxed) {
            foreign::call(WATCHERS, || {
                warn!(node = %self.node, "an acquisition was dropped before it was polled, so nothing was acquired: write `.await` (logged once)");
            });
        }
    }

    /// Adds a wait in a queue to the statistics on the hottest locks. The time of an attempt that
    /// was never queued is not added, except by a quorum's observer: only the primaries know
    /// whether an attempt was queued.
    fn waited(&self, lock: &LockName, of: &HoldCell, waited: Duration) {
        if of.position().is_some() || self.is_of_quorum {
            self.heat.waited(lock, waited);
        }
    }

    /// Logs a warning about refusals because of full queues. Called once a minute at most.
    fn warn_of_full(&self, FullQueues { lock, times, all, within }: &FullQueues) {
        warn!(
            lock = %self.name(lock), times, all_locks = all, ?within,
            "requests were refused because the queue was full (logged once a minute, with the name \
             refused most often)"
        );
    }

    /// Reports an event of the core, the node's state machine, to the log and the metrics.
    pub(crate) fn note(&self, note: &Note<HoldCell>) {
        foreign::call(WATCHERS, || self.report(note));
    }

    fn report(&self, note: &Note<HoldCell>) {
        let primary = self.primary;
        match note {
            Note::Queued { lock, position, of } => {
                let class = of.class_name();
                debug!(lock = %self.name(lock), class, primary, position, "queued");
                record!(of, queue_length, (position + 1) as f64);
            }
            Note::Granted { lock, waited, handed_over, of } => {
                let class = of.class_name();
                debug!(lock = %self.name(lock), class, primary, ?waited, handed_over, "granted");
                if primary.is_none() {
                    record!(of, wait, waited.as_secs_f64());
                    self.waited(lock, of, *waited);
                }
                if *handed_over {
                    count!("lockcore_hand_offs_total");
                }
            }
            Note::Cancelled { lock, waited, of } => {
                let class = of.class_name();
                debug!(lock = %self.name(lock), class, primary, ?waited, "cancelled");
                if primary.is_none() {
                    self.waited(lock, of, *waited);
                }
            }
            Note::Refused { lock, refusal, of } => {
                let cause = cause(of, refusal);
                debug!(lock = %self.name(lock), class = of.class_name(), primary, cause, "refused");
                if primary.is_none() {
                    count!("lockcore_refused_total", "cause" => cause, "class" => of.class_label());
                    if let Some(full) = self.heat.refused(lock, of.class_label(), cause) {
                        self.warn_of_full(&full);
                    }
                }
            }
            Note::PositionLost { lock } => {
                if self.warnings.admits(Warning::PositionLost) {
                    warn!(lock = %self.name(lock), primary, "queue position lost: re-enqueued at the tail");
                }
                count!("lockcore_positions_lost_total");
            }
            Note::Missed { lock } => {
                if self.warnings.admits(Warning::Missed) {
                    warn!(lock = %self.name(lock), primary, "granted, but the future was not polled in time: the lock is released, and the queue position is lost");
                }
                count!("lockcore_positions_lost_total");
            }
            Note::Renewed { lock } => {
                debug!(lock = %self.name(lock), primary, "renewed");
                count!("lockcore_renewals_total", "outcome" => "renewed");
            }
            Note::WaitsBehindOwn { lock, waited } => {
                if self.behind_own.insert(lock) {
                    warn!(
                        lock = %self.name(lock), primary, ?waited,
                        "a request waits for a lock that this process holds: if the holder awaits \
                         this request, both wait forever. Release the guard first, or share it \
                         with `reenter` (logged once for each name)"
                    );
                }
            }
            Note::RenewalFailed { lock, error } => {
                if self.warnings.admits(Warning::RenewalFailed) {
                    warn!(lock = %self.name(lock), primary, kind = ?error.kind, error = %error.detail, "the hold could not be renewed yet");
                }
                count!("lockcore_renewals_total", "outcome" => "failed");
            }
            Note::Lost { lock, held, why, of } if primary.is_some() => {
                debug!(lock = %self.name(lock), class = of.class_name(), primary, ?held, why, "a quorum primary no longer holds the lock");
            }
            Note::Lost { lock, held, why, of } => {
                if self.warnings.admits(Warning::Lost) {
                    warn!(lock = %self.name(lock), class = of.class_name(), ?held, why, "the hold is lost");
                }
                count!("lockcore_lost_total", "class" => of.class_label());
            }
            Note::LeaveFailed { lock, error } => {
                if self.warnings.admits(Warning::LeaveFailed) {
                    warn!(
                        lock = %self.name(lock), primary, kind = ?error.kind, error = %error.detail,
                        "the server did not confirm the release: the lease will expire"
                    );
                }
                count!("lockcore_not_released_total");
            }
            Note::TouchFailed { lock, error } => {
                debug!(lock = %self.name(lock), primary, kind = ?error.kind, error = %error.detail, "the waiters' queue positions could not be refreshed yet");
            }
            Note::Skipped { lock, waiters } => {
                debug!(lock = %self.name(lock), primary, waiters, "waiters skipped: their nodes are not connected");
                #[cfg(feature = "metrics")]
                metrics::counter!("lockcore_skipped_total").increment(*waiters);
                if let Some(lasting) = self.unreachable_waiters.note(Instant::now()) {
                    warn!(
                        lock = %self.name(lock), primary, ?lasting,
                        "waiters have been skipped for longer than a dead process explains: do all \
                         processes that share the lock use the same channel_prefix?"
                    );
                }
            }
            Note::Deaf => {
                if self.warnings.admits(Warning::Deaf) {
                    warn!(node = %self.node, primary, "the server lost this node's subscription: subscribing again");
                }
            }
            Note::ServerAhead { ahead } => {
                warn!(node = %self.node, primary, ?ahead, "the server's clock ran ahead of the local clock: renewing all holds");
            }
        }
    }
}

fn cause(of: &HoldCell, refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Busy => "busy",
        Refusal::Full(_) => cause_of(of.kind_of_full()),
        Refusal::Kind(kind) => cause_of(*kind),
        Refusal::Store(error) => cause_of(error.kind),
    }
}

/// All values of the label `cause` on the counter of refusals.
#[cfg(feature = "metrics")]
const CAUSES: [&str; 11] = [
    "busy",
    "timeout",
    "queue_full",
    "wait_too_long",
    "superseded",
    "unavailable",
    "read_only",
    "denied",
    "out_of_memory",
    "closed",
    "other",
];

/// Returns an error kind's name for metrics, events and spans.
pub(crate) fn cause_of(kind: LockErrorKind) -> &'static str {
    match kind {
        LockErrorKind::Timeout => "timeout",
        LockErrorKind::QueueFull => "queue_full",
        LockErrorKind::WaitTooLong => "wait_too_long",
        LockErrorKind::Superseded => "superseded",
        LockErrorKind::Unavailable => "unavailable",
        LockErrorKind::ReadOnly => "read_only",
        LockErrorKind::Denied => "denied",
        LockErrorKind::OutOfMemory => "out_of_memory",
        LockErrorKind::Closed => "closed",
        _ => "other",
    }
}
