//! Records: what a store keeps of a key.

pub(crate) mod answer;
pub(crate) mod key;
pub(crate) mod outcome;

use std::time::SystemTime;

use lockcore::FencingToken;

use crate::fingerprint::Fingerprint;
use crate::record::outcome::Outcome;

/// The record of one key: the request that was begun with it, and its outcome once there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    fingerprint: Fingerprint,
    token: FencingToken,
    started: SystemTime,
    outcome: Option<Outcome>,
}

impl Record {
    /// The record of a request that begins now, under the lock with this token.
    pub fn new(fingerprint: Fingerprint, token: FencingToken, started: SystemTime) -> Self {
        Self { fingerprint, token, started, outcome: None }
    }

    /// The same record with its outcome.
    #[must_use]
    pub fn finished(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// The fingerprint of its request.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// The token of the hold under which it was begun. Only that hold may write its outcome.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The time at which it was begun, by the clock of the store.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Its outcome; `None` as long as the handler runs, and for good if its process has died.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }
}
