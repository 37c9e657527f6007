//! `MemoryReplays`: a store in this process's memory.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use lockcore::FencingToken;
use tokio::time::Instant;

use crate::later::later;
use crate::record::Record;
use crate::record::key::RecordKey;
use crate::record::outcome::Outcome;
use crate::store::error::StoreError;
use crate::store::{Finish, Finished, ReplayStore, Start, Started, StoreFuture};

/// The default maximum memory for records, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// The memory for a record without an outcome, in bytes: the record and the map entries for it,
/// rounded up.
const EACH: usize = 512;

/// A store that keeps records in this process's memory, for tests and for single-process services.
/// Clones share the records.
///
/// The records end with the process, so the handler runs again for a client that retries after a
/// restart. The store uses tokio's clock, so under paused time a test does not wait for an expiry.
///
/// Works only with [`Locks::in_memory`](lockcore::Locks::in_memory).
#[derive(Clone)]
pub struct MemoryReplays {
    shared: Arc<Shared>,
}

struct Shared {
    max_bytes: usize,
    records: Mutex<Records>,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<RecordKey, Entry>,
    by_expiry: BTreeSet<(Instant, RecordKey)>,
    bytes: usize,
}

struct Entry {
    record: Record,
    expires: Instant,
    bytes: usize,
}

impl MemoryReplays {
    /// Creates an empty store for at most 64 MiB of records.
    pub fn new() -> Self {
        Self::with_max_bytes(MAX_BYTES)
    }

    /// Creates an empty store for at most about this many bytes of records: the stored responses,
    /// and 512 bytes for each record. When the store is full, requests with new keys are refused
    /// with 503, because a request could run twice if its record were removed early. The response
    /// to a request that has begun is always stored.
    pub fn with_max_bytes(max_bytes: usize) -> Self {
        Self { shared: Arc::new(Shared { max_bytes, records: Mutex::default() }) }
    }

    /// Locks the records, and removes the expired records.
    fn records(&self) -> MutexGuard<'_, Records> {
        let mut records = self.shared.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.expire(Instant::now());
        records
    }
}

impl Records {
    fn record(&self, key: &RecordKey) -> Option<&Record> {
        self.by_key.get(key).map(|entry| &entry.record)
    }

    fn put(&mut self, key: RecordKey, record: Record, expiry: Duration) {
        self.remove(&key);
        let expires = later(expiry);
        let bytes = EACH + record.outcome().map_or(0, size);
        self.bytes += bytes;
        self.by_expiry.insert((expires, key));
        self.by_key.insert(key, Entry { record, expires, bytes });
    }

    fn remove(&mut self, key: &RecordKey) {
        if let Some(entry) = self.by_key.remove(key) {
            self.by_expiry.remove(&(entry.expires, *key));
            self.bytes -= entry.bytes;
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((expires, key)) = self.by_expiry.first().copied()
            && expires <= now
        {
            self.remove(&key);
        }
    }
}

/// Returns the number of bytes that an outcome adds to a record: the stored response's headers and
/// body, or 0 if the response is not kept.
fn size(outcome: &Outcome) -> usize {
    let Outcome::Kept(answer) = outcome else { return 0 };
    let headers = answer.headers().iter();
    let headers: usize = headers.map(|(name, value)| name.as_str().len() + value.len()).sum();
    headers + answer.body().len()
}

impl ReplayStore for MemoryReplays {
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async { Ok(self.records().record(key).cloned()) })
    }

    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started> {
        Box::pin(async {
            let mut records = self.records();
            let started = start.judge(records.record(key));
            if let Started::Begun { again } = started {
                if !again && records.bytes + EACH > self.shared.max_bytes {
                    return Err(StoreError::unavailable("the in-memory store is full"));
                }
                let record = Record::new(start.fingerprint, start.token, SystemTime::now());
                records.put(*key, record, start.expiry);
            }
            Ok(started)
        })
    }

    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished> {
        Box::pin(async {
            let mut records = self.records();
            let finished = finish.judge(records.record(key));
            if finished == Finished::Stored
                && let Some(record) = records.record(key)
                && record.outcome().is_none()
            {
                let record = record.clone().finished(finish.outcome.clone());
                records.put(*key, record, finish.expiry);
            }
            Ok(finished)
        })
    }

    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut records = self.records();
            if let Some(record) = records.record(key)
                && record.token() == token
                && record.outcome().is_none()
            {
                records.remove(key);
            }
            Ok(())
        })
    }

    fn is_in_memory(&self) -> bool {
        true
    }
}

impl Default for MemoryReplays {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryReplays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records();
        f.debug_struct("MemoryReplays")
            .field("records", &records.by_key.len())
            .field("bytes", &records.bytes)
            .finish()
    }
}
