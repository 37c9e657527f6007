//! The mirror of an attempt, shared with its hold and guards outside the table.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures_util::task::AtomicWaker;
use proto::node::{Mirror, Moment};
use proto::{Label, LockErrorKind, Released, StoreError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use super::foreign;
use crate::node::class::{Class, Prediction};

/// The deadline and the loss are written in the table's own sections, so that a guard needs no
/// mutex to report its state.
#[derive(Default)]
pub(crate) struct Cell {
    /// The waker of the caller that waits.
    pub(crate) caller: AtomicWaker,
    /// The moment until which the hold is certain, µs.
    until: AtomicU64,
    /// A renewal was refused or not answered, and none was answered since.
    is_unanswered: AtomicBool,
    is_lost: AtomicBool,
    /// Whether the server still had the hold when its guard gave it back.
    returned: OnceLock<Result<Released, StoreError>>,
    lost: OnceLock<CancellationToken>,
    guards: AtomicUsize,
    /// The class of its request; nothing where there is no caller.
    class: Option<Arc<Class>>,
    /// One more than the number of waiters that were ahead when the server queued it; zero if it
    /// was not queued.
    queued: AtomicU64,
    positions: OnceLock<watch::Sender<Option<u64>>>,
    /// The lock was made a read.
    is_reduced: AtomicBool,
    /// The prediction of the wait, if it is to be refused early.
    prediction: Option<Prediction>,
    /// The span of the wait, if it is to have the labels of the holders, and its request's label.
    records_holders: Mutex<Option<(Span, Label)>>,
}

/// The cell of one attempt; clones are the same cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct HoldCell(Arc<Cell>);

impl HoldCell {
    /// The cell of an attempt of this class.
    pub(crate) fn of(class: Arc<Class>) -> Self {
        Self(Arc::new(Cell { class: Some(class), ..Cell::default() }))
    }

    /// Sets the prediction of the wait, before the attempt begins.
    pub(crate) fn predict(&mut self, prediction: Prediction) {
        let cell = Arc::get_mut(&mut self.0).expect("nobody has it before the attempt begins");
        cell.prediction = Some(prediction);
    }
}

impl Deref for HoldCell {
    type Target = Cell;

    fn deref(&self) -> &Cell {
        &self.0
    }
}

impl Mirror for HoldCell {
    fn certain_until(&self, until: Moment, is_answered: bool) {
        self.is_unanswered.store(!is_answered, Ordering::Release);
        self.until.store(until.as_micros(), Ordering::Release);
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    fn queued(&self, ahead: u64) {
        self.queued.store(ahead.saturating_add(1), Ordering::Release);
    }

    fn returned(&self, outcome: Result<Released, StoreError>) {
        let _ = self.returned.set(outcome);
    }
}

impl Cell {
    /// Whether the server still had the hold that was given back, once this is known.
    pub(crate) fn outcome(&self) -> Option<&Result<Released, StoreError>> {
        self.returned.get()
    }

    /// Tells the caller whether the server still had the hold, unless it was told before. Wakes
    /// foreign code: never under a mutex.
    pub(crate) fn tell_returned(&self, outcome: Result<Released, StoreError>) {
        if self.returned.set(outcome).is_ok() {
            foreign::call("a waker", || self.caller.wake());
        }
    }

    pub(crate) fn until(&self) -> Moment {
        Moment::from_micros(self.until.load(Ordering::Acquire))
    }

    /// Whether the hold is over, told or not.
    pub(crate) fn is_lost(&self, now: Moment) -> bool {
        self.is_lost.load(Ordering::Acquire) || now >= self.until()
    }

    /// Whether the last renewal was refused or not answered.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered.load(Ordering::Acquire)
    }

    /// Whether the table has said so.
    pub(crate) fn was_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Cancelled once the hold is lost.
    pub(crate) fn lost(&self) -> &CancellationToken {
        self.lost.get_or_init(CancellationToken::new)
    }

    /// Tells the guards. Wakes foreign code: never under a mutex.
    pub(crate) fn tell_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.lost().cancel();
    }

    /// The class of its request.
    pub(crate) fn class(&self) -> Option<&Arc<Class>> {
        self.class.as_ref()
    }

    /// The name of the class.
    pub(crate) fn class_name(&self) -> &str {
        self.class.as_ref().map_or("", |class| &class.name)
    }

    /// The name of the class, to keep.
    pub(crate) fn class_label(&self) -> Arc<str> {
        self.class.as_ref().map_or_else(|| "".into(), |class| Arc::clone(&class.name))
    }

    /// The number of waiters that were ahead when the server last queued it.
    pub(crate) fn position(&self) -> Option<u64> {
        self.queued.load(Ordering::Acquire).checked_sub(1)
    }

    /// The positions that are told from now on, with the present one.
    pub(crate) fn positions(&self) -> watch::Receiver<Option<u64>> {
        let sender = self.positions.get_or_init(|| watch::Sender::new(None));
        // One that is told before the sender is there tells nobody: this does.
        self.tell_position();
        sender.subscribe()
    }

    /// Has the positions told on this channel, if none is there yet.
    pub(crate) fn tell_positions(&self, positions: watch::Sender<Option<u64>>) {
        let _ = self.positions.set(positions);
    }

    /// Tells the position to those that watch it. Wakes foreign code: never under a mutex. Of two
    /// at once, the later one has the latest position in any case.
    pub(crate) fn tell_position(&self) {
        let Some(sender) = self.positions.get() else { return };
        sender.send_if_modified(|told| std::mem::replace(told, self.position()) != *told);
    }

    /// Has the labels of the holders recorded in this span once the attempt is queued, which has
    /// this label.
    pub(crate) fn record_holders(&self, span: Span, label: Label) {
        *self.records_holders.lock().unwrap_or_else(PoisonError::into_inner) = Some((span, label));
    }

    /// Takes the span in which the labels of the holders are to be recorded, and the label of its
    /// request. The span is open until then.
    pub(crate) fn take_records_holders(&self) -> Option<(Span, Label)> {
        self.records_holders.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The prediction of the wait, if it is to be refused early.
    pub(crate) fn prediction(&self) -> Option<&Prediction> {
        self.prediction.as_ref()
    }

    /// The error of a full queue: the server knows no reason for the queue limit.
    pub(crate) fn kind_of_full(&self) -> LockErrorKind {
        match self.prediction() {
            Some(Prediction { is_limit: true, .. }) => LockErrorKind::WaitTooLong,
            _ => LockErrorKind::QueueFull,
        }
    }

    /// Notes that the lock was made a read.
    pub(crate) fn reduce(&self) {
        self.is_reduced.store(true, Ordering::Release);
    }

    /// Whether the lock was made a read.
    pub(crate) fn is_reduced(&self) -> bool {
        self.is_reduced.load(Ordering::Acquire)
    }

    /// Counts one more guard.
    pub(crate) fn add_guard(&self) {
        self.guards.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one guard less. Returns whether it was the last.
    pub(crate) fn drop_guard(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldCell")
            .field("until", &self.until())
            .field("is_lost", &self.was_lost())
            .field("guards", &self.guards())
            .finish_non_exhaustive()
    }
}
