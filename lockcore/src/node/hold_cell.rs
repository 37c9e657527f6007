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
use tracing::Span;

use super::loss::Loss;
use crate::foreign;
use crate::node::class::{Class, Prediction};

/// The state that an attempt shares with the hold granted to it. The core, the node's state
/// machine, writes the deadline and the loss under the mutex, and guards read them without a mutex.
#[derive(Default)]
pub(crate) struct Cell {
    /// Waker for the task that waits for the lock or for the release.
    pub(crate) caller: AtomicWaker,
    /// The moment until which the lock is certainly held, in µs since the node's start. Each
    /// successful renewal raises it.
    until: AtomicU64,
    /// True if the last renewal was refused or got no reply, so that the hold is uncertain.
    is_unanswered: AtomicBool,
    is_lost: AtomicBool,
    /// The outcome of the release, once known: whether the server still had the hold, or the error
    /// that leaves this unknown.
    returned: OnceLock<Result<Released, StoreError>>,
    loss: Loss,
    guards: AtomicUsize,
    /// The request's class; `None` if the cell belongs to no attempt of a caller, such as the cell
    /// of an orphan, a member on the server that no attempt here waits for.
    class: Option<Arc<Class>>,
    /// The number of waiters ahead when the server last queued the attempt, plus one; zero if the
    /// server has not queued the attempt.
    queued: AtomicU64,
    /// The channel of the attempt's queue positions, once it was requested. The sender is `None`
    /// once the attempt has ended, so that the channel is closed.
    positions: OnceLock<Mutex<Option<watch::Sender<Option<u64>>>>>,
    /// True once the lock was downgraded to a read.
    is_reduced: AtomicBool,
    /// The predicted wait; `None` if there is no prediction, so that the attempt is not refused
    /// early.
    prediction: Option<Prediction>,
    /// The tracing span of the wait and the request's own label. Present only until the labels of
    /// the lock's holders are requested for the span.
    records_holders: Mutex<Option<(Span, Label)>>,
}

/// A shared reference to a [`Cell`].
#[derive(Debug, Clone, Default)]
pub(crate) struct HoldCell(Arc<Cell>);

impl HoldCell {
    pub(crate) fn of(class: Arc<Class>) -> Self {
        Self(Arc::new(Cell { class: Some(class), ..Cell::default() }))
    }

    /// Sets the predicted wait. Call this before the attempt begins: it panics once the cell is
    /// shared.
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

    /// Sets the outcome of the release, unless it is already set, and wakes the waiting task. A
    /// waker is code from outside this crate, so no mutex may be locked during this call.
    pub(crate) fn set_returned(&self, outcome: Result<Released, StoreError>) {
        if self.returned.set(outcome).is_ok() {
            foreign::call("a waker", || self.caller.wake());
        }
    }

    /// Drops the waker of the task that has waited. Otherwise the hold would keep the waker, and
    /// the core could be the last to drop it, under its mutex. A waker is code from outside this
    /// crate, so no mutex may be locked during this call.
    pub(crate) fn forget_caller(&self) {
        if let Some(waker) = self.caller.take() {
            foreign::call("a waker", || drop(waker));
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

    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered.load(Ordering::Acquire)
    }

    /// Returns true if the core has reported the loss.
    pub(crate) fn was_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Returns the cancellation tokens that are cancelled once the hold is lost.
    pub(crate) fn loss(&self) -> &Loss {
        &self.loss
    }

    /// Marks the hold as lost, and cancels the tokens that guards watch. This runs code from
    /// outside this crate, so no mutex may be locked during this call.
    pub(crate) fn notify_lost(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.loss.cancel();
    }

    pub(crate) fn class(&self) -> Option<&Arc<Class>> {
        self.class.as_ref()
    }

    /// Returns the class name; empty without a class.
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

    /// Returns a channel with the attempt's queue positions, beginning with the current position.
    pub(crate) fn positions(&self) -> watch::Receiver<Option<u64>> {
        self.positions.get_or_init(|| Mutex::new(Some(watch::Sender::new(None))));
        // A position published before the sender existed was lost; publish it again.
        self.publish_position();
        match self.position_sender() {
            Some(sender) => sender.subscribe(),
            None => watch::Sender::new(self.position()).subscribe(),
        }
    }

    /// Sends the queue positions to this channel from now on. Does nothing if they already go to
    /// another channel.
    pub(crate) fn publish_positions_to(&self, positions: watch::Sender<Option<u64>>) {
        let _ = self.positions.set(Mutex::new(Some(positions)));
    }

    /// Closes the channel of the queue positions, if there is one.
    pub(crate) fn close_positions(&self) {
        if let Some(sender) = self.positions.get() {
            let sender = sender.lock().unwrap_or_else(PoisonError::into_inner).take();
            // Dropped outside the mutex, because it wakes receivers.
            foreign::call("a waker", || drop(sender));
        }
    }

    fn position_sender(&self) -> Option<watch::Sender<Option<u64>>> {
        self.positions.get()?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes the current queue position, if there is a channel. If two calls are concurrent,
    /// the later call always publishes the latest position. This runs code from outside this crate,
    /// so no mutex may be locked during this call.
    pub(crate) fn publish_position(&self) {
        let Some(sender) = self.position_sender() else { return };
        sender.send_if_modified(|published| {
            std::mem::replace(published, self.position()) != *published
        });
    }

    /// Requests that the labels of the lock's holders are recorded in this span once the attempt is
    /// queued. `label` is the attempt's own label.
    pub(crate) fn record_holders(&self, span: Span, label: Label) {
        *self.records_holders.lock().unwrap_or_else(PoisonError::into_inner) = Some((span, label));
    }

    /// Takes the tracing span for the labels of the lock's holders, and the request's own label.
    /// Returns `None` if the labels were not requested, or on later calls.
    pub(crate) fn take_records_holders(&self) -> Option<(Span, Label)> {
        self.records_holders.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the predicted wait; `None` if there is no prediction, so that the attempt is not
    /// refused early.
    pub(crate) fn prediction(&self) -> Option<&Prediction> {
        self.prediction.as_ref()
    }

    /// Returns the kind of error for a refusal because of a full queue: `WaitTooLong` if a
    /// prediction has lowered the queue limit, otherwise `QueueFull`. The server cannot distinguish
    /// the two.
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

    pub(crate) fn is_reduced(&self) -> bool {
        self.is_reduced.load(Ordering::Acquire)
    }

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
