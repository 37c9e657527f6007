//! Stores of records: what a store promises, and the two that are here.

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

/// The future of a store's step.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of records. Each method is one atomic step.
///
/// The layer calls [`start`](Self::start), [`finish`](Self::finish) and [`end`](Self::end) under
/// the lock of the record. A hold may be lost without its holder knowing, so each of them carries
/// the fencing token of the hold, and a record is written only by the hold whose token it has.
///
/// A future of these may be dropped: then its step was done, or not.
pub trait ReplayStore: Send + Sync + fmt::Debug + 'static {
    /// The record, without a lock. Changes nothing.
    ///
    /// # Errors
    /// The store cannot answer, or what it has is no record of this version.
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>>;

    /// Writes that a request has begun, unless there is a record that forbids it:
    ///
    /// | the record | the step |
    /// |---|---|
    /// | none | writes it: [`Started::Begun`] |
    /// | has an outcome, or another fingerprint | writes nothing: [`Started::Found`] |
    /// | of a higher token, without an outcome | writes nothing: [`Started::Overtaken`] |
    /// | of the same token, without an outcome | writes it again: [`Started::Begun`] |
    /// | of a lower token, without an outcome | writes the new token if [`Start::takes_over`]: [`Started::Begun`]; else [`Started::Found`] |
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up), or the store is full. After an error the record may have been
    /// written.
    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started>;

    /// Writes the outcome of the request whose token the record has.
    ///
    /// # Errors
    /// The store cannot answer. The outcome may have been written.
    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished>;

    /// Removes the record of a request that has done nothing, if it has this token and no outcome.
    ///
    /// # Errors
    /// The store cannot answer. The record may have been removed.
    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()>;

    /// Whether it ends with this process. Such a store goes with locks in memory and with no
    /// others: their tokens begin anew in each process.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// A request that begins.
#[derive(Debug, Clone)]
pub struct Start {
    /// The fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// The token of the hold.
    pub token: FencingToken,
    /// The time after which the record is removed.
    pub expiry: Duration,
    /// Whether a record that an earlier hold has left without an outcome is taken over.
    pub takes_over: bool,
}

/// The answer to a [`Start`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// The record is written: the handler may run.
    Begun {
        /// Whether an earlier hold has left the record without an outcome: its work may have been
        /// done, in part or as a whole.
        again: bool,
    },
    /// A record that is not taken over.
    Found(Record),
    /// A later hold has begun: this one is lost.
    Overtaken,
}

/// A request that is done.
#[derive(Debug, Clone)]
pub struct Finish {
    /// The token of the hold.
    pub token: FencingToken,
    /// The outcome.
    pub outcome: Outcome,
    /// The time after which the record is removed.
    pub expiry: Duration,
}

/// The answer to a [`Finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// The outcome is written.
    Stored,
    /// The record is of another hold: nothing is written.
    Overtaken,
    /// There is no record any more: the store has lost it. Nothing is written.
    Forgotten,
}

impl Start {
    /// The step on this record, as a function: what [`ReplayStore::start`] answers, without its
    /// write.
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
    /// The step on this record, as a function: what [`ReplayStore::finish`] answers, without its
    /// write. A record that has an outcome keeps it.
    pub fn judge(&self, record: Option<&Record>) -> Finished {
        match record {
            None => Finished::Forgotten,
            Some(record) if record.token() == self.token => Finished::Stored,
            Some(_) => Finished::Overtaken,
        }
    }
}
