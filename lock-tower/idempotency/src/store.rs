//! Stores of records: the store contract, and the two included stores.

pub(crate) mod error;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use lockcore::FencingToken;

use crate::fingerprint::Fingerprint;
use crate::record::Record;
use crate::record::key::RecordKey;
use crate::record::outcome::Outcome;
use crate::store::error::StoreError;

/// The future of a store operation.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of records. Each method is an atomic operation.
///
/// The layer calls [`start`](Self::start), [`finish`](Self::finish) and [`end`](Self::end) under
/// the record's lock. A holder may not notice the loss of its hold, so each operation carries the
/// fencing token, and only the hold with the record's token may write the record.
///
/// If a future is dropped, the operation may or may not have been done.
pub trait ReplayStore: Send + Sync + fmt::Debug + 'static {
    /// Reads the record, without a lock and without changes.
    ///
    /// # Errors
    /// The store is unavailable, or the stored value is not a record of this version.
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>>;

    /// Records the start of a request, unless an existing record forbids it:
    ///
    /// | the record | the operation |
    /// |---|---|
    /// | none | writes it: [`Started::Begun`] |
    /// | has an outcome, or another fingerprint | writes nothing: [`Started::Found`] |
    /// | has a higher token and no outcome | writes nothing: [`Started::Overtaken`] |
    /// | has the same token and no outcome | writes it again: [`Started::Begun`] |
    /// | has a lower token and no outcome | writes the new token if [`Start::takes_over`]: [`Started::Begun`]; otherwise [`Started::Found`] |
    ///
    /// # Errors
    /// As for [`look_up`](Self::look_up), or the store is full. After an error the record may have
    /// been written.
    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started>;

    /// Writes the outcome, if the record has the request's token.
    ///
    /// # Errors
    /// The store is unavailable. The outcome may have been written.
    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished>;

    /// Removes the record of a request that did nothing, if it has this token and no outcome.
    ///
    /// # Errors
    /// The store is unavailable. The record may have been removed.
    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()>;

    /// Whether the store ends with this process. Such a store requires in-memory locks, whose
    /// tokens restart in each process.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// A request that begins.
#[derive(Debug, Clone)]
pub struct Start {
    /// The request fingerprint.
    pub fingerprint: Fingerprint,
    /// The token of the hold.
    pub token: FencingToken,
    /// How long until the record is removed.
    pub expiry: Duration,
    /// Whether to take over a record left without an outcome by an earlier hold.
    pub takes_over: bool,
}

/// The result of a [`Start`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// The record is written: the handler may run.
    Begun {
        /// Whether an earlier hold left the record without an outcome: the work may have been done,
        /// in part or completely.
        again: bool,
    },
    /// A record that is not taken over.
    Found(Record),
    /// A later hold has begun: this hold is lost.
    Overtaken,
}

/// A finished request.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The token of the hold.
    pub token: FencingToken,
    /// The outcome.
    pub outcome: Outcome,
    /// How long until the record is removed.
    pub expiry: Duration,
}

/// The result of a [`Finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// The outcome is written.
    Stored,
    /// The record belongs to another hold: nothing is written.
    Overtaken,
    /// The store has lost the record: nothing is written.
    Forgotten,
}

impl Start {
    /// Computes the result of [`ReplayStore::start`] for this record, without writing.
    ///
    /// ```
    /// use std::time::SystemTime;
    ///
    /// use lock_idempotency::{Record, Start, Started};
    ///
    /// fn on(record: Option<Record>, start: &Start) -> Started {
    ///     let started = start.judge(record.as_ref());
    ///     if let Started::Begun { .. } = started {
    ///         let new = Record::new(start.fingerprint, start.token, SystemTime::now());
    ///         // write it in the same transaction
    /// #       let _ = new;
    ///     }
    ///     started
    /// }
    /// ```
    pub fn judge(&self, record: Option<&Record>) -> Started {
        let Some(record) = record else { return Started::Begun { again: false } };
        if record.outcome().is_some() || *record.fingerprint() != self.fingerprint {
            return Started::Found(record.clone());
        }
        match record.token().cmp(&self.token) {
            std::cmp::Ordering::Greater => Started::Overtaken,
            std::cmp::Ordering::Equal => Started::Begun { again: false },
            std::cmp::Ordering::Less if self.takes_over => Started::Begun { again: true },
            std::cmp::Ordering::Less => Started::Found(record.clone()),
        }
    }
}

impl Finish {
    /// Computes the result of [`ReplayStore::finish`] for this record, without writing. An existing
    /// outcome is not overwritten.
    pub fn judge(&self, record: Option<&Record>) -> Finished {
        match record {
            None => Finished::Forgotten,
            Some(record) if record.token() == self.token => Finished::Stored,
            Some(_) => Finished::Overtaken,
        }
    }
}
