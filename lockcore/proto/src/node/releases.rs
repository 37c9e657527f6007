//! Holds that are being released, until the server knows.

use std::time::Duration;

use super::Core;
use super::attempts::LAST_RETRY;
use crate::error::{LockErrorKind, StoreError};
use crate::member::Member;
use crate::name::LockName;
use crate::node::effect::{Ask, Effect, Note};
use crate::node::entry::{Entry, Mirror, State};
use crate::node::moment::Moment;
use crate::{Command, Leaving};

impl<P: Mirror> Core<P> {
    /// Returns whether there is something to release.
    pub(super) fn begin_release(&mut self, number: u64, due: Option<Moment>) -> bool {
        let Some(entry) = self.table.get(number) else { return false };
        match &entry.state {
            // By the clock, though no tick came by yet.
            State::Held(lease) if self.now >= lease.until() => {
                self.lose(number, "its deadline has passed");
            }
            State::Held(_) | State::Lost => {}
            _ => return false,
        }
        self.table.change(number, |entry| entry.state = State::Releasing { due });
        true
    }

    pub(super) fn release_request(&self, number: u64, background: bool) -> Ask {
        let entry = &self.table.entries()[&number];
        let Entry { lock, member, .. } = &**entry;
        let command = if entry.may_run_again() {
            Command::Leave { leaving: vec![Leaving { member: member.clone(), ambiguous: true }] }
        } else {
            Command::Release { member: member.clone() }
        };
        Ask { lock: lock.clone(), command, sent: self.now, background }
    }

    /// Ends a release, since the server knows that the member is gone. Returns its number, if it is
    /// known.
    pub(super) fn end(&mut self, member: &Member) -> Option<u64> {
        let number = self.known(member)?;
        self.table.change(number, |entry| {
            if let State::Releasing { .. } | State::Leaving { .. } = entry.state {
                entry.state = State::Over;
            }
        });
        Some(number)
    }

    /// A release found nothing. The hold may have been force-released before a copy of the acquire
    /// ran, which queued the member once more: it leaves.
    pub(super) fn leave_after_release(&mut self, member: &Member) -> Option<u64> {
        let number = self.known(member)?;
        let now = self.now;
        self.table.change(number, |entry| {
            if let State::Releasing { .. } = entry.state {
                entry.state = entry.leaving(now);
            }
        });
        Some(number)
    }

    /// Repeating is harmless: the first copy takes the member away, later ones find nothing.
    pub(super) fn leave_failed(&mut self, member: &Member, lock: &LockName, error: &StoreError) {
        let now = self.now;
        let Some(number) = self.known(member) else { return };
        let is_closed = error.kind == LockErrorKind::Closed;
        let is_last = self.table.change(number, |entry| match &mut entry.state {
            State::Releasing { .. } => {
                entry.state = entry.leaving(now);
                is_closed
            }
            State::Leaving { due, pause_ms, give_up } => {
                *due = Some(now + Duration::from_millis(u64::from(*pause_ms)));
                *pause_ms = (*pause_ms * 2).min(LAST_RETRY.as_millis() as u32);
                is_closed || now >= *give_up
            }
            _ => false,
        });
        if is_last == Some(true) {
            self.table.change(number, |entry| entry.state = State::Over);
            self.table.count_failed();
            let lock = lock.clone();
            self.push(Effect::Observe(Note::LeaveFailed { lock, error: error.clone() }));
        }
    }
}
