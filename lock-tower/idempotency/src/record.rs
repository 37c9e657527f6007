//! Records: what a store keeps for a key.

pub(crate) mod answer;
pub(crate) mod key;
pub(crate) mod outcome;

use std::time::SystemTime;

use lockcore::FencingToken;

use crate::fingerprint::Fingerprint;
use crate::record::outcome::Outcome;

/// What a store keeps for an idempotency key: the request that has begun, and the outcome once
/// known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    fingerprint: Fingerprint,
    token: FencingToken,
    started: SystemTime,
    outcome: Option<Outcome>,
}

impl Record {
    /// Creates a record without an outcome, for a request that begins at `started` under a lock
    /// with this fencing token.
    pub fn new(fingerprint: Fingerprint, token: FencingToken, started: SystemTime) -> Self {
        Self { fingerprint, token, started, outcome: None }
    }

    /// Returns the same record with this outcome added.
    #[must_use]
    pub fn finished(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
        self
    }

    /// Returns the fingerprint of the request that has begun.
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the fencing token of the lock under which the request began. Only a request with
    /// this token may write the outcome.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns when the request began, by the store's clock.
    pub fn started(&self) -> SystemTime {
        self.started
    }

    /// Returns the outcome. `None` while the handler runs, or if the handler ended without an
    /// outcome, for example because the process died.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }
}
