//! The requests in flight, each polled by a future or a task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;

use proto::node::Ask;
use proto::{Answer, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::StoreFuture;

pub(super) type Answered = Result<Answer, StoreError>;

/// A command that the store runs.
pub(super) type Calling = StoreFuture<Answer>;

pub(super) type Shared = Mutex<State>;

pub(super) enum State {
    /// Polled by the one that wants the answer, and the waker to be called if a task takes it over.
    Here(Calling, Ask, Option<Waker>),
    /// Finished by a task, which wakes this one.
    TakenOver(Option<Waker>),
    /// Nothing if the runtime ended before the request did.
    Done(Option<Answered>),
    /// The answer was taken, or is not wanted.
    Over,
}

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The requests that were sent lately, oldest first.
pub(super) struct Flights {
    recent: Mutex<VecDeque<(Instant, Weak<Shared>)>>,
    /// Notified when the list becomes non-empty.
    pub(super) wake: Notify,
}

impl Flights {
    pub(super) fn new() -> Self {
        Self { recent: Mutex::new(VecDeque::new()), wake: Notify::new() }
    }

    /// Takes charge of a request.
    pub(super) fn add(&self, calling: Calling, ask: Ask) -> Arc<Shared> {
        let shared = Arc::new(Mutex::new(State::Here(calling, ask, None)));
        let mut recent = self.recent();
        // Most are over in the order in which they were sent. Without them the next ones use the
        // same memory again, which the processor still has at hand.
        while recent.front().is_some_and(|(_, shared)| shared.strong_count() == 0) {
            recent.pop_front();
        }
        let was_idle = recent.is_empty();
        recent.push_back((Instant::now(), Arc::downgrade(&shared)));
        drop(recent);
        if was_idle {
            self.wake.notify_one();
        }
        shared
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<(Instant, Weak<Shared>)>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests that were sent before `limit`, and whether any are left.
    pub(super) fn overdue(&self, limit: Instant) -> (Vec<Arc<Shared>>, bool) {
        let mut recent = self.recent();
        let mut overdue = Vec::new();
        while recent.front().is_some_and(|(sent, _)| *sent <= limit) {
            overdue.extend(recent.pop_front().and_then(|(_, shared)| shared.upgrade()));
        }
        (overdue, !recent.is_empty())
    }
}
