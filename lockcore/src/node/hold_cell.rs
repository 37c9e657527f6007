//! The state shared by an attempt and the hold that follows. The core writes it, and the attempt's
//! future and the guards read it without the core's mutex.

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

/// The state shared by an attempt and the hold that follows. The core writes the deadline and the
/// loss under its mutex, and guards read them without a mutex.
#[derive(Default)]
pub(crate) struct Cell {
    /// Waker for the task that waits for the lock or for the release.
    pub(crate) caller: AtomicWaker,
    /// Moment until which the lock is certainly held, in µs since the node's start.
    until: AtomicU64,
    /// True if the last renewal was refused or got no reply.
    is_unanswered: AtomicBool,
    is_lost: AtomicBool,
    /// Release outcome: whether the server still had the hold, or why that is unknown.
    returned: OnceLock<Result<Released, StoreError>>,
    lost: OnceLock<CancellationToken>,
    guards: AtomicUsize,
    /// The request's class; `None` for a cell that no caller has created.
    class: Option<Arc<Class>>,
    /// Number of waiters ahead when the server last queued the attempt, plus one; zero if the
    /// attempt was not queued.
    queued: AtomicU64,
    positions: OnceLock<watch::Sender<Option<u64>>>,
    /// True once the lock was downgraded to a read.
    is_reduced: AtomicBool,
    /// Predicted wait, if the attempt may be refused early.
    prediction: Option<Prediction>,
    /// The wait's tracing span, and the request's label, while the holders' labels are still to be
    /// recorded in the span.
    records_holders: Mutex<Option<(Span, Label)>>,
}

/// A handle on a [`Cell`], shared by its clones.
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
    /// Returns the release outcome; `None` until it is known.
    pub(crate) fn outcome(&self) -> Option<&Result<Released, StoreError>> {
        self.returned.get()
    }

    /// Sets the release outcome, unless it is set, and wakes the caller. Runs foreign code: never
    /// call it under a mutex.
    pub(crate) fn set_returned(&self, outcome: Result<Released, StoreError>) {
        if self.returned.set(outcome).is_ok() {
            foreign::call("a waker", || self.caller.wake());
        }
    }

    pub(crate) fn until(&self) -> Moment {
        Moment::from_micros(self.until.load(Ordering::Acquire))
    }

    /// Returns true if the hold is lost: the core has reported the loss, or the deadline has
    /// passed.
    pub(crate) fn is_lost(&self, now: Moment) -> bool {
        self.is_lost.load(Ordering::Acquire) || now >= self.until()
    }

    /// Returns true if the last renewal was refused or got no reply.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered.load(Ordering::Acquire)
    }

    /// Returns true if the core has reported the loss.
    pub(crate) fn was_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Returns the cancellation token that is cancelled once the hold is lost.
    pub(crate) fn lost(&self) -> &CancellationToken {
        self.lost.get_or_init(CancellationToken::new)
    }

    /// Notifies the guards that the hold is lost. Runs foreign code: never call it under a mutex.
    pub(crate) fn notify_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.lost().cancel();
    }

    /// Returns the request's class.
    pub(crate) fn class(&self) -> Option<&Arc<Class>> {
        self.class.as_ref()
    }

    /// Returns the class name, or an empty text without a class.
    pub(crate) fn class_name(&self) -> &str {
        self.class.as_ref().map_or("", |class| &class.name)
    }

    /// Returns the class name as an owned text, for metric labels.
    pub(crate) fn class_label(&self) -> Arc<str> {
        self.class.as_ref().map_or_else(|| "".into(), |class| Arc::clone(&class.name))
    }

    /// Returns the number of waiters ahead when the server last queued the attempt; `None` if the
    /// attempt was not queued.
    pub(crate) fn position(&self) -> Option<u64> {
        self.queued.load(Ordering::Acquire).checked_sub(1)
    }

    /// Returns a channel on which the queue positions are published, beginning with the current
    /// position.
    pub(crate) fn positions(&self) -> watch::Receiver<Option<u64>> {
        let sender = self.positions.get_or_init(|| watch::Sender::new(None));
        // A position published before the sender existed was lost; publish it again.
        self.publish_position();
        sender.subscribe()
    }

    /// Publishes the queue positions on this channel, unless another channel is set already.
    pub(crate) fn publish_positions_to(&self, positions: watch::Sender<Option<u64>>) {
        let _ = self.positions.set(positions);
    }

    /// Publishes the current queue position, if a channel is set. Runs foreign code: never call it
    /// under a mutex. Of two concurrent calls, the later publishes the latest position in any case.
    pub(crate) fn publish_position(&self) {
        let Some(sender) = self.positions.get() else { return };
        sender.send_if_modified(|published| {
            std::mem::replace(published, self.position()) != *published
        });
    }

    /// Requests that the holders' labels are recorded in this span once the attempt is queued.
    /// `label` is the attempt's own label.
    pub(crate) fn record_holders(&self, span: Span, label: Label) {
        *self.records_holders.lock().unwrap_or_else(PoisonError::into_inner) = Some((span, label));
    }

    /// Takes the tracing span in which the holders' labels are to be recorded, and the request's
    /// own label. `None` if nothing is to be recorded, or after the first call.
    pub(crate) fn take_records_holders(&self) -> Option<(Span, Label)> {
        self.records_holders.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the predicted wait; `None` if the attempt cannot be refused early.
    pub(crate) fn prediction(&self) -> Option<&Prediction> {
        self.prediction.as_ref()
    }

    /// Returns the error kind for a refusal by a full queue. This differs if the queue limit was
    /// predicted, which the server does not know.
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

    /// Returns true if the lock was downgraded to a read.
    pub(crate) fn is_reduced(&self) -> bool {
        self.is_reduced.load(Ordering::Acquire)
    }

    /// Adds one to the number of guards.
    pub(crate) fn add_guard(&self) {
        self.guards.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the number of guards. Returns true if no guard is left.
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
