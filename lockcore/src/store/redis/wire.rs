//! `SeenWire`: the wire of a node that remembers what its servers told.

use std::sync::Arc;

use proto::wire::{Asked, Floors, Wire};
use proto::{Answer, Answers, StoreError};
use redis::Value;

use super::call::value;
use super::seen::Seen;

/// The way of a node to write and read, and the tokens and times that it has seen.
pub(super) struct SeenWire {
    pub(super) wire: Wire,
    pub(super) seen: Arc<Seen>,
}

impl SeenWire {
    /// The answer to the only command, from the server with this number.
    pub(super) fn answer(
        &self,
        asked: &Asked,
        (floors, server): (Floors, u64),
        answer: &Value,
    ) -> Result<Answer, StoreError> {
        let answer = self.wire.answer(asked, floors, &value(answer))?;
        self.note(&answer, server);
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
            self.note(answer, server);
        }
        Ok(answers)
    }

    /// Remembers the time and the tokens that it tells.
    fn note(&self, answer: &Answer, server: u64) {
        if let Some(now_us) = answer.now_us() {
            self.seen.note(now_us, server);
        }
        if let Some(token) = answer.grants().iter().map(|grant| grant.token).max() {
            self.seen.note_token(token, server);
        }
    }
}
