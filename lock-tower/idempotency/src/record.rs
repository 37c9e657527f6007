//! Records: what a store keeps for a key.

pub(crate) mod answer;
pub(crate) mod key;
pub(crate) mod outcome;

use std::time::SystemTime;

use lockcore::FencingToken;

use crate::fingerprint::Fingerprint;
use crate::record::outcome::Outcome;

/// The record of one key: the request begun with it, and the outcome once known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    fingerprint: Fingerprint,
    token: FencingToken,
    started: SystemTime,
    outcome: Option<Outcome>,
}

impl Record {
    /// Creates the record of a request that begins now, under the lock with this token.
    pub fn new(fingerprint: Fingerprint, token: FencingToken, started: SystemTime) -> Self {
        Self { fingerprint, token, started, outcome: None }
    }

    /// Adds the outcome to the record.
    #[must_use]
    pub fn finished(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Returns the fingerprint of the request.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the token of the hold that began the record. Only this hold may write the outcome.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the start time, by the clock of the store.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns the outcome; `None` while the handler runs, and permanently if the process has died.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }
}
