//! `ReplayStore`: the interface for stores that keep records, with the two included stores.

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

/// A boxed future of a store operation's result. The methods of [`ReplayStore`] return it, so that
/// the layer can use any store as a trait object.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store that keeps a [`Record`] for each idempotency key. Each method is an atomic operation.
///
/// The layer calls [`start`](Self::start), [`finish`](Self::finish) and [`end`](Self::end) while it
/// holds the record's lock. A lock can be lost unnoticed, so these operations carry the lock's
/// fencing token. By comparing it with the token in the record, the store recognizes a request that
/// a later request has overtaken, and does not let it write.
///
/// If a future is dropped, the operation may or may not have been done.
pub trait ReplayStore: Send + Sync + fmt::Debug + 'static {
    /// Reads the record with this name, and changes nothing. Returns `None` if there is none. The
    /// layer also calls this method without the lock.
    ///
    /// # Errors
    /// The store is unavailable, or the stored value is not a record of this version.
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>>;

    /// Writes a record for a request that begins, unless an existing record forbids it:
    ///
    /// | the record | the operation |
    /// |---|---|
    /// | none | writes a new record: [`Started::Begun`] |
    /// | has an outcome, or another fingerprint | writes nothing: [`Started::Found`] |
    /// | has a higher token and no outcome | writes nothing: [`Started::Overtaken`] |
    /// | has the same token and no outcome | writes the record again: [`Started::Begun`] |
    /// | has a lower token and no outcome | writes the new token if [`Start::takes_over`]: [`Started::Begun`]; otherwise [`Started::Found`] |
    ///
    /// # Errors
    /// The same as for [`look_up`](Self::look_up), or the store is full. After an error the record
    /// may have been written.
    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started>;

    /// Writes the outcome into the record, if the record has the token of `finish`. An existing
    /// outcome is not overwritten.
    ///
    /// # Errors
    /// The store is unavailable. The outcome may have been written.
    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished>;

    /// Removes the record if it has this token and no outcome. The layer calls this after a request
    /// that did nothing, so that the next request with the key starts anew. It does not call this
    /// if an earlier request left the record without an outcome. The layer also calls this after a
    /// [`start`](Self::start) without [`Start::takes_over`] that found the store unavailable: such
    /// a start may have written this request's record, but not replaced an earlier request's.
    ///
    /// # Errors
    /// The store is unavailable. The record may have been removed.
    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()>;

    /// Returns true if the records are in memory, and so end with this process; `false` by default.
    /// The layer accepts such a store only together with in-memory locks, whose tokens restart in
    /// each process.
    fn is_in_memory(&self) -> bool {
        false
    }
}

/// A request that has its lock and is about to run the handler. The argument of
/// [`ReplayStore::start`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Start {
    /// The fingerprint of the request. If an existing record has another fingerprint, the key was
    /// used for a different request.
    pub fingerprint: Fingerprint,
    /// The fencing token of the lock under which the request begins.
    pub token: FencingToken,
    /// The time until the store removes the record, unless it is written again.
    pub expiry: Duration,
    /// Whether the request may begin although an earlier request has left the record without an
    /// outcome.
    pub takes_over: bool,
}

/// Whether the handler may run, and if not, why: an existing record forbids it, or a later request
/// has begun. The result of [`ReplayStore::start`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Started {
    /// The record is written, so the handler may run.
    Begun {
        /// Whether an earlier request left the record without an outcome. Its work may have been
        /// done, in part or completely.
        again: bool,
    },
    /// The record exists and is unchanged, because it has an outcome or another fingerprint, or
    /// because [`Start::takes_over`] is false.
    Found(Record),
    /// The record has a higher token, because this request has lost its lock and a later request
    /// has begun. Nothing is written.
    Overtaken,
}

/// A request whose outcome is known and is to be stored. The argument of [`ReplayStore::finish`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Finish {
    /// The fencing token of the lock under which the request began.
    pub token: FencingToken,
    /// The outcome to write into the record.
    pub outcome: Outcome,
    /// The time until the store removes the record.
    pub expiry: Duration,
}

/// Whether the outcome is stored, and if not, why. The result of [`ReplayStore::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finished {
    /// The record has the outcome of this request.
    Stored,
    /// The record has another token, because a later request has begun. Nothing is written.
    Overtaken,
    /// There is no record, because the store has lost it. Nothing is written.
    Forgotten,
}

impl Start {
    /// Creates the start of a request that does not take over. For tests of a store: to let it take
    /// over, set [`takes_over`](Self::takes_over).
    pub fn new(fingerprint: Fingerprint, token: FencingToken, expiry: Duration) -> Self {
        Self { fingerprint, token, expiry, takes_over: false }
    }

    /// Returns the result that [`ReplayStore::start`] must have for the stored record, or for
    /// `None` if there is none. For implementations of a store: the caller writes the record.
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
    /// Creates the finish of a request with this outcome. For tests of a store.
    pub fn new(token: FencingToken, outcome: Outcome, expiry: Duration) -> Self {
        Self { token, outcome, expiry }
    }

    /// Returns the result that [`ReplayStore::finish`] must have for the stored record, or for
    /// `None` if there is none. For implementations of a store: if the result is
    /// [`Finished::Stored`] and the record has no outcome yet, the caller writes the outcome.
    pub fn judge(&self, record: Option<&Record>) -> Finished {
        match record {
            None => Finished::Forgotten,
            Some(record) if record.token() == self.token => Finished::Stored,
            Some(_) => Finished::Overtaken,
        }
    }
}
