//! Attempts that are given up: by their future, by their time, or by the end of the node.

use std::sync::{Arc, MutexGuard};

use crate::engine::Engine;
use crate::error::{LockError, LockErrorKind, StoreError};
use crate::observe;
use crate::reaper::Job;
use crate::store::Link;
use crate::waiters::{Phase, Waiter, Waiters};

impl Engine {
    /// The future of an attempt was dropped, or its time is up. Nothing of it stays behind. Returns
    /// why the store was away, if it was.
    pub(crate) fn cancel(&self, ticket: u64) -> Option<StoreError> {
        let mut waiters = self.waiters();
        let number = waiters.number_of(ticket);
        let waiter = waiters.get_mut(number)?;
        let away = match &waiter.phase {
            Phase::Asking => {
                // Its answer will find it cancelled.
                waiter.future = None;
                // One without an answer for a whole request timeout was set aside with that error.
                return waiter.last_error.take().or_else(|| self.disconnected());
            }
            Phase::Parked => waiter.last_error.take(),
            Phase::Waiting | Phase::Confirming => self.disconnected(),
        };
        self.give_up(waiters, number);
        away
    }

    /// Why no command gets through; none while the connection stands, however slow the server is.
    fn disconnected(&self) -> Option<StoreError> {
        match &*self.store.commands().borrow() {
            Link::Up => None,
            Link::Down { reason } => {
                Some(StoreError::refused(LockErrorKind::Unavailable, Arc::clone(reason)))
            }
        }
    }

    /// Ends every attempt with the same error.
    pub(crate) fn cancel_all(&self, kind: LockErrorKind) -> usize {
        let numbers = self.waiters().numbers();
        let mut ended = 0;
        for number in numbers {
            let mut waiters = self.waiters();
            let Some(waiter) = waiters.get_mut(number) else { continue };
            let Some(future) = waiter.future.take() else { continue };
            ended += 1;
            match waiter.phase {
                // Its answer will find it cancelled.
                Phase::Asking => drop(waiters),
                _ => self.give_up(waiters, number),
            }
            let _ = future.send(Err(LockError::new(kind)));
        }
        ended
    }

    /// Takes an attempt out, here and on the server.
    pub(crate) fn give_up(&self, mut waiters: MutexGuard<'_, Waiters>, number: u64) {
        let Some(waiter) = waiters.take(number) else { return };
        let was_never_sent = waiter.phase == Phase::Parked && !waiter.ambiguous;
        if !was_never_sent {
            self.leave(&waiter);
        }
        drop(waiters);
        observe::cancelled(self, &waiter);
    }

    /// Called with the waiters still locked from taking this one out: a shutdown that looks finds the one or the other.
    pub(crate) fn leave(&self, waiter: &Waiter) {
        self.reaper.send(Job::leave(waiter.lock.clone(), waiter.member.clone(), waiter.ambiguous));
    }
}
