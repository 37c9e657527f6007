//! A server as known to a node: its command connection, the encoding of commands, and the times and
//! tokens received from it.

use std::sync::{Arc, Mutex, PoisonError};

use client::CommandLink;
use proto::node::{RequestGroup, commands};
use proto::wire::{TokenFloors, Wire};
use proto::{Answer, Answers, LockName, StoreError};
use redis::Value;

use super::call::value;
use super::server_time::ServerTime;

/// A Redis server as a node knows it: the command connection, the encoding of commands, and the
/// times and tokens received.
pub(super) struct Server {
    pub(super) wire: Wire,
    pub(super) link: CommandLink,
    pub(super) server_time: Arc<ServerTime>,
    pub(super) loading: Loading,
}

/// The scripts whose source was sent because the server lacked them, and has no response yet. Each
/// with the number of the connection on which the source was sent.
#[derive(Default)]
pub(super) struct Loading(Mutex<Vec<(u64, &'static str)>>);

impl Loading {
    /// Records that a script's source is sent on the connection with this number. Returns false if
    /// it is on its way there already.
    pub(super) fn begin(&self, generation: u64, source: &'static str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !all.iter().any(is(generation, source));
        if is_new {
            all.push((generation, source));
        }
        is_new
    }

    /// Records that the source has its response, or that the connection is broken.
    pub(super) fn end(&self, generation: u64, source: &'static str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = all.iter().position(is(generation, source)) {
            all.swap_remove(at);
        }
    }
}

/// Compares sources by their address, because they are long.
fn is(generation: u64, source: &'static str) -> impl Fn(&(u64, &'static str)) -> bool {
    move |&(number, other)| number == generation && std::ptr::eq(other, source)
}

impl Server {
    /// Returns the token floors for a request group that is sent to the server with this number.
    /// The server draws only tokens above them.
    pub(super) fn floors(&self, group: &RequestGroup, server: u64) -> TokenFloors {
        let slot = group.first().map_or(0, |request| self.slot(&request.lock));
        self.server_time.floors(slot, server)
    }

    /// Decodes the replies to a request group from the server with this number, and records their
    /// times and tokens.
    pub(super) fn answers(
        &self,
        group: &RequestGroup,
        server: u64,
        answer: &Value,
    ) -> Result<Answers, StoreError> {
        let answers = self.wire.answers(&commands(group), &value(answer))?;
        for (request, answer) in group.iter().zip(&answers) {
            if let Ok(answer) = answer {
                self.note(&request.lock, answer, server);
            }
        }
        Ok(answers)
    }

    /// Records the time and the tokens in a reply from the server with this number. From then on,
    /// new tokens for locks with the same counter are above them.
    pub(super) fn note(&self, lock: &LockName, answer: &Answer, server: u64) {
        let slot = self.slot(lock);
        if let Some(now_us) = answer.now_us() {
            self.server_time.note(now_us, (slot, server));
        }
        if let Some(token) = answer.grants().iter().map(|grant| grant.last_token()).max() {
            self.server_time.note_reply_token(token, (slot, server));
        }
    }

    fn slot(&self, lock: &LockName) -> u16 {
        self.wire.topology.slot(lock)
    }
}
