//! Parsers for the Lua scripts' replies.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lockcore::FencingToken;
use redis::Value;

use crate::fingerprint::Fingerprint;
use crate::record::Record;
use crate::record::outcome::Outcome;
use crate::store::error::StoreError;
use crate::store::{Finished, Started};

/// The value of the field `version` in records that this version of the crate writes. A record with
/// another value is not read, because its fields may mean something else.
const VERSION: &[u8] = b"1";

/// Parses the reply of `look_up.lua`: the record, or `None` if there is none. Fails if the record
/// or the reply is malformed.
pub(crate) fn looked_up(answer: Value) -> Result<Option<Record>, StoreError> {
    let mut parts = array(answer)?.into_iter();
    match parts.next() {
        None => Ok(None),
        Some(tag) => tagged(&tag, parts).map(Some),
    }
}

/// Parses the reply of `start.lua`. Fails if the reply, or the record in it, is malformed.
pub(crate) fn started(answer: Value) -> Result<Started, StoreError> {
    let mut parts = array(answer)?.into_iter();
    let tag = parts.next().ok_or_else(unknown)?;
    match text(&tag) {
        Some(b"begun") => Ok(Started::Begun { again: parts.next() == Some(Value::Int(1)) }),
        Some(b"overtaken") => Ok(Started::Overtaken),
        _ => tagged(&tag, parts).map(Started::Found),
    }
}

/// Parses the reply of `finish.lua`. Fails if the reply is none of the three results.
pub(crate) fn finished(answer: Value) -> Result<Finished, StoreError> {
    match text(&answer) {
        Some(b"stored") => Ok(Finished::Stored),
        Some(b"overtaken") => Ok(Finished::Overtaken),
        Some(b"forgotten") => Ok(Finished::Forgotten),
        _ => Err(unknown()),
    }
}

/// Parses a reply with this first element and these fields: `record`, followed by the fields of a
/// record. Returns an error for `large`, which means that a field is too large to read.
fn tagged(tag: &Value, fields: impl Iterator<Item = Value>) -> Result<Record, StoreError> {
    match text(tag) {
        Some(b"record") => record(fields),
        Some(b"large") => Err(StoreError::malformed("the record is too large")),
        _ => Err(unknown()),
    }
}

/// Parses a record's fields: version, fingerprint, token, start time, and the outcome if there is
/// one. Fails if the version is not [`VERSION`], or if a field is missing or malformed.
fn record(fields: impl Iterator<Item = Value>) -> Result<Record, StoreError> {
    let mut fields = fields.map(field);
    let mut next = || fields.next().flatten();
    let version = next();
    if version.as_deref() != Some(VERSION) {
        return Err(StoreError::malformed(
            "the record belongs to another version or another \
            program",
        ));
    }
    let head = (|| {
        let fingerprint = Fingerprint::from_bytes(next()?.try_into().ok()?);
        let token = FencingToken::try_from(number(&next()?)?).ok()?;
        let started = Duration::from_millis(number(&next()?)?);
        Some(Record::new(fingerprint, token, SystemTime::UNIX_EPOCH.checked_add(started)?))
    })();
    let record = head.ok_or_else(|| StoreError::malformed("the record is truncated"))?;
    match next() {
        None => Ok(record),
        Some(outcome) => {
            let outcome = Outcome::decode(Bytes::from(outcome)).map_err(StoreError::malformed)?;
            Ok(record.finished(outcome))
        }
    }
}

fn field(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn text(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

fn array(answer: Value) -> Result<Vec<Value>, StoreError> {
    match answer {
        Value::Array(parts) => Ok(parts),
        _ => Err(unknown()),
    }
}

fn unknown() -> StoreError {
    StoreError::malformed("unexpected reply from a script")
}
