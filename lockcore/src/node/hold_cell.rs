//! An attempt's mirror, shared with the hold and guards outside the table.

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

/// The deadline and the loss are written within the table's critical sections, so that a guard
/// reports its state without a mutex.
#[derive(Default)]
pub(crate) struct Cell {
    /// The waiting caller's waker.
    pub(crate) caller: AtomicWaker,
    /// Until when the hold is certain, in µs.
    until: AtomicU64,
    /// A renewal was refused or got no reply, and no later renewal got a reply.
    is_unanswered: AtomicBool,
    is_lost: AtomicBool,
    /// The release outcome: whether the server still had the hold.
    returned: OnceLock<Result<Released, StoreError>>,
    lost: OnceLock<CancellationToken>,
    guards: AtomicUsize,
    /// The request's class; `None` without a caller.
    class: Option<Arc<Class>>,
    /// The number of waiters ahead when the server queued the attempt, plus one; zero if it was not
    /// queued.
    queued: AtomicU64,
    positions: OnceLock<watch::Sender<Option<u64>>>,
    /// The lock was downgraded to a read.
    is_reduced: AtomicBool,
    /// The predicted wait, if the attempt may be refused early.
    prediction: Option<Prediction>,
    /// The wait span, if it is to record the holders' labels, and the request's label.
    records_holders: Mutex<Option<(Span, Label)>>,
}

/// An attempt's cell; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct HoldCell(Arc<Cell>);

impl HoldCell {
    /// Creates a cell for an attempt in this class.
    pub(crate) fn of(class: Arc<Class>) -> Self {
        Self(Arc::new(Cell { class: Some(class), ..Cell::default() }))
    }

    /// Sets the predicted wait, before the attempt begins.
    pub(crate) fn predict(&mut self, prediction: Prediction) {
        let cell = Arc::get_mut(&mut self.0).expect(
            "the cell is not shared before the attempt \
            begins",
        );
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
    /// Returns the release outcome, once known.
    pub(crate) fn outcome(&self) -> Option<&Result<Released, StoreError>> {
        self.returned.get()
    }

    /// Publishes the release outcome, unless published before. Runs foreign code: never call it
    /// under a mutex.
    pub(crate) fn tell_returned(&self, outcome: Result<Released, StoreError>) {
        if self.returned.set(outcome).is_ok() {
            foreign::call("a waker", || self.caller.wake());
        }
    }

    pub(crate) fn until(&self) -> Moment {
        Moment::from_micros(self.until.load(Ordering::Acquire))
    }

    /// Whether the hold is over, reported or not.
    pub(crate) fn is_lost(&self, now: Moment) -> bool {
        self.is_lost.load(Ordering::Acquire) || now >= self.until()
    }

    /// Whether the last renewal was refused or got no reply.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered.load(Ordering::Acquire)
    }

    /// Whether the table has reported the loss.
    pub(crate) fn was_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Returns the token that is cancelled once the hold is lost.
    pub(crate) fn lost(&self) -> &CancellationToken {
        self.lost.get_or_init(CancellationToken::new)
    }

    /// Notifies the guards. Runs foreign code: never call it under a mutex.
    pub(crate) fn tell_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.lost().cancel();
    }

    /// Returns the request's class.
    pub(crate) fn class(&self) -> Option<&Arc<Class>> {
        self.class.as_ref()
    }

    /// Returns the class name.
    pub(crate) fn class_name(&self) -> &str {
        self.class.as_ref().map_or("", |class| &class.name)
    }

    /// Returns the class name, to keep.
    pub(crate) fn class_label(&self) -> Arc<str> {
        self.class.as_ref().map_or_else(|| "".into(), |class| Arc::clone(&class.name))
    }

    /// Returns the number of waiters ahead when the server last queued the attempt.
    pub(crate) fn position(&self) -> Option<u64> {
        self.queued.load(Ordering::Acquire).checked_sub(1)
    }

    /// Returns the channel of positions, beginning with the current position.
    pub(crate) fn positions(&self) -> watch::Receiver<Option<u64>> {
        let sender = self.positions.get_or_init(|| watch::Sender::new(None));
        // A position published before the sender existed was lost; publish it again.
        self.tell_position();
        sender.subscribe()
    }

    /// Publishes positions on this channel, if no channel is set yet.
    pub(crate) fn tell_positions(&self, positions: watch::Sender<Option<u64>>) {
        let _ = self.positions.set(positions);
    }

    /// Publishes the position. Runs foreign code: never call it under a mutex. The later of two
    /// concurrent calls publishes the latest position in any case.
    pub(crate) fn tell_position(&self) {
        let Some(sender) = self.positions.get() else { return };
        sender.send_if_modified(|told| std::mem::replace(told, self.position()) != *told);
    }

    /// Sets the span to record the holders' labels in once the attempt is queued, and the attempt's
    /// label.
    pub(crate) fn record_holders(&self, span: Span, label: Label) {
        *self.records_holders.lock().unwrap_or_else(PoisonError::into_inner) = Some((span, label));
    }

    /// Takes the span to record the holders' labels in, and the request's label. The span is open
    /// until then.
    pub(crate) fn take_records_holders(&self) -> Option<(Span, Label)> {
        self.records_holders.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the predicted wait, if the attempt may be refused early.
    pub(crate) fn prediction(&self) -> Option<&Prediction> {
        self.prediction.as_ref()
    }

    /// Returns the error kind for a full queue: the server does not know the reason for the limit.
    pub(crate) fn kind_of_full(&self) -> LockErrorKind {
        match self.prediction() {
            Some(Prediction { is_limit: true, .. }) => LockErrorKind::WaitTooLong,
            _ => LockErrorKind::QueueFull,
        }
    }

    /// Records that the lock was downgraded to a read.
    pub(crate) fn reduce(&self) {
        self.is_reduced.store(true, Ordering::Release);
    }

    /// Whether the lock was downgraded to a read.
    pub(crate) fn is_reduced(&self) -> bool {
        self.is_reduced.load(Ordering::Acquire)
    }

    /// Counts another guard.
    pub(crate) fn add_guard(&self) {
        self.guards.fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts a guard. Returns whether it was the last.
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
