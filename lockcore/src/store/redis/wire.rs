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

impl TimedWire {
    /// The answer to the only command, from the server with this number.
    pub(super) fn answer(
        &self,
        asked: &Asked,
        (floors, server): (Floors, u64),
        answer: &Value,
    ) -> Result<Answer, StoreError> {
        let answer = self.wire.answer(asked, floors, &value(answer))?;
        self.note(&answer, (self.slot(asked), server));
        if let (Asked::One(lock, _), Answer::Acquired(reply)) = (asked, &answer) {
            self.acquires.note(Place::of(lock), reply.outcome == [Acquired::Granted]);
        }
        Ok(answer)
    }

    /// An answer for each command, from the server with this number.
    pub(super) fn answers(
        &self,
        asked: &Asked,
        (floors, server): (Floors, u64),
        answer: &Value,
    ) -> Result<Answers, StoreError> {
        let answers = self.wire.answers(asked, floors, &value(answer))?;
        for answer in answers.iter().flatten() {
            self.note(answer, (self.slot(asked), server));
        }
        Ok(answers)
    }

    /// The floors of a command to the server with this number.
    pub(super) fn floors(&self, asked: &Asked, server: u64) -> Floors {
        self.server_time.floors(self.slot(asked), server)
    }

    fn slot(&self, asked: &Asked) -> u16 {
        asked.lock().map_or(0, |lock| self.wire.slot(lock))
    }

    /// Remembers the time and the tokens that it tells of a lock in this slot.
    fn note(&self, answer: &Answer, (slot, server): (u16, u64)) {
        if let Some(now_us) = answer.now_us() {
            self.server_time.note(now_us, (slot, server));
        }
        if let Some(token) = answer.grants().iter().map(|grant| grant.last_token()).max() {
            self.server_time.note_token(token, (slot, server));
        }
    }
}
