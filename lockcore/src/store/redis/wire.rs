//! The wire of a node that remembers the times and tokens that its servers have told.

use std::sync::Arc;

use proto::wire::{Asked, Floors, Wire};
use proto::{Acquired, Answer, Answers, StoreError};
use redis::Value;

use super::call::value;
use super::native::{Acquires, Place};
use super::server_time::ServerTime;

/// The way of a node to write and read, and the tokens and times that it has seen.
pub(super) struct TimedWire {
    pub(super) wire: Wire,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) acquires: Arc<Acquires>,
}

/// Reads the answer to these commands, from the server with this number.
type ReadAnswer<T> = fn(&TimedWire, &Asked, u64, &Value) -> Result<T, StoreError>;

/// The way to read the answer to some commands.
pub(super) struct Reading<T> {
    /// Reads it.
    pub(super) read: ReadAnswer<T>,
    /// The same, where the answer to the only command is read already.
    pub(super) only: fn(Answer) -> T,
}

impl<T> Clone for Reading<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Reading<T> {}

/// The answer to the only command.
pub(super) const ONE: Reading<Answer> = Reading { read: TimedWire::answer, only: |answer| answer };

/// An answer for each command.
pub(super) const EACH: Reading<Answers> =
    Reading { read: TimedWire::answers, only: |answer| vec![Ok(answer)] };

impl TimedWire {
    /// The answer to the only command, from the server with this number.
    pub(super) fn answer(
        &self,
        asked: &Asked,
        server: u64,
        answer: &Value,
    ) -> Result<Answer, StoreError> {
        let answer = self.wire.answer(asked, &value(answer))?;
        self.note(asked, &answer, server);
        if let (Asked::One(lock, _), Answer::Acquired(reply)) = (asked, &answer) {
            self.acquires.note(Place::of(lock), reply.outcome == [Acquired::Granted]);
        }
        Ok(answer)
    }

    /// An answer for each command, from the server with this number.
    pub(super) fn answers(
        &self,
        asked: &Asked,
        server: u64,
        answer: &Value,
    ) -> Result<Answers, StoreError> {
        let answers = self.wire.answers(asked, &value(answer))?;
        for answer in answers.iter().flatten() {
            self.note(asked, answer, server);
        }
        Ok(answers)
    }

    /// The floors of a command to the server with this number.
    pub(super) fn floors(&self, asked: &Asked, server: u64) -> Floors {
        self.server_time.floors(self.slot(asked), server)
    }

    fn slot(&self, asked: &Asked) -> u16 {
        asked.lock().map_or(0, |lock| self.wire.topology.slot(lock))
    }

    /// Remembers the time and the tokens that the server with this number has told.
    pub(super) fn note(&self, asked: &Asked, answer: &Answer, server: u64) {
        let slot = self.slot(asked);
        if let Some(now_us) = answer.now_us() {
            self.server_time.note(now_us, (slot, server));
        }
        if let Some(token) = answer.grants().iter().map(|grant| grant.last_token()).max() {
            self.server_time.note_token(token, (slot, server));
        }
    }
}
