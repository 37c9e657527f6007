//! The requests of this process that wait for the response to another request with the same key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::record::key::RecordKey;

/// The requests of this process that wait in a queue, by record. When a response is stored in a
/// record, [`notify`](Self::notify) notifies the requests that wait for it. They look up the
/// response at once, instead of being granted the lock one after another.
#[derive(Debug, Default)]
pub(crate) struct Board {
    waiting: Mutex<HashMap<RecordKey, Weak<Notify>>>,
}

/// A waiting request's registration in the [`Board`]. Dropping it removes the registration.
#[derive(Debug)]
pub(crate) struct Seat {
    board: Arc<Board>,
    key: RecordKey,
    notify: Option<Arc<Notify>>,
}

impl Board {
    /// Registers a request that waits for the response stored in this record.
    pub(crate) fn join(self: &Arc<Self>, key: RecordKey) -> Seat {
        let mut waiting = self.waiting();
        let seats = waiting.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let seats = Arc::new(Notify::new());
            waiting.insert(key, Arc::downgrade(&seats));
            seats
        });
        drop(waiting);
        Seat { board: Arc::clone(self), key, notify: Some(seats) }
    }

    /// Notifies all requests that wait for this record, because the response is stored.
    pub(crate) fn notify(&self, key: &RecordKey) {
        let seats = self.waiting().get(key).and_then(Weak::upgrade);
        if let Some(seats) = seats {
            seats.notify_waiters();
            self.leave(key, seats);
        }
    }

    /// Drops one request's reference to the record's `Notify`, and removes the record from the map
    /// if this was the last reference.
    fn leave(&self, key: &RecordKey, seats: Arc<Notify>) {
        let mut waiting = self.waiting();
        drop(seats);
        if waiting.get(key).is_some_and(|seats| seats.strong_count() == 0) {
            waiting.remove(key);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<RecordKey, Weak<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Returns a future that completes at the next [`notify`](Board::notify) for this record after
    /// this call, even if the future is polled only later.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.notify.as_ref().expect("taken on drop").notified()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(seats) = self.notify.take() {
            self.board.leave(&self.key, seats);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::scope::Scope;

    #[test]
    fn all_that_wait_are_told_and_nothing_stays_behind() {
        let board = Arc::new(Board::default());
        let [key, other] = ["k", "l"].map(|key| RecordKey::new(&Scope::new("a"), key));
        let seats = [board.join(key), board.join(key), board.join(other)];
        let mut waits = seats.each_ref().map(|seat| Box::pin(seat.notified()));
        board.notify(&key);
        let is_notified = waits.each_mut().map(|wait| wait.now_or_never().is_some());
        assert_eq!(is_notified, [true, true, false], "also without a poll before");
        let later = seats[0].notified();
        assert!(pin!(later).now_or_never().is_none(), "of the past, nobody is told");
        drop(waits);
        drop(seats);
        assert!(board.waiting().is_empty());
        board.notify(&key);
        assert!(board.waiting().is_empty());
    }
}
