//! Records: what a store keeps for a key.

pub(crate) mod answer;
pub(crate) mod key;
pub(crate) mod outcome;

use std::time::SystemTime;

use lockcore::FencingToken;

use crate::fingerprint::Fingerprint;
use crate::record::outcome::Outcome;

/// The record for a key: the request begun with it, and the outcome once known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    fingerprint: Fingerprint,
    token: FencingToken,
    started: SystemTime,
    outcome: Option<Outcome>,
}

impl Record {
    /// Creates a record for a request that begins now, under the lock with this token.
    pub fn new(fingerprint: Fingerprint, token: FencingToken, started: SystemTime) -> Self {
        Self { fingerprint, token, started, outcome: None }
    }

    /// Adds the outcome to the record.
    #[must_use]
    pub fn finished(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Returns the request fingerprint.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the fencing token under which the record was begun. Only the hold with this token
    /// may write the outcome.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the start time, by the store's clock.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns the outcome; `None` while the handler runs, and permanently if the process has died.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }
}
