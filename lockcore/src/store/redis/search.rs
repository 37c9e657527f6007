//! Searches a server for lock keys by SCAN, which examines some of the database's keys in each
//! step.
//!
//! # Implementation notes
//!
//! - A cursor is only valid on a single server: if another server takes over, the search fails.

use std::fmt;

use client::CommandLink;
use futures_util::FutureExt as _;
use proto::wire::keys::lock_keys_pattern;
use proto::{LockErrorKind, LockName, StoreError};
use redis::Value;

use super::failure;
use super::run::Run as _;
use crate::store::{Search, StoreFuture};

/// Number of keys that the server examines in each step. A step takes the server a fraction of a
/// millisecond.
const STEP: usize = 1_000;

/// A search for lock keys on a server.
pub(super) struct RedisSearch {
    link: CommandLink,
    /// The number of the searched server. If another server takes over, the search fails.
    server: u64,
    pattern: String,
}

impl RedisSearch {
    pub(super) fn new(link: &CommandLink, namespace: Option<&str>) -> Self {
        Self { link: link.clone(), server: link.servers(), pattern: lock_keys_pattern(namespace) }
    }
}

impl Search for RedisSearch {
    fn step(&self, cursor: u64) -> StoreFuture<(Vec<LockName>, u64)> {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(STEP);
        scan.arg("TYPE").arg("string");
        let (link, server) = (self.link.clone(), self.server);
        let request = async move {
            let sender = link.sender().await.map_err(failure::of_client)?;
            if sender.server != server {
                let detail = "another server has replaced the searched server";
                return Err(StoreError::refused(LockErrorKind::Unavailable, detail));
            }
            let answer = link.run_on(sender, scan).await?;
            read(&answer).ok_or_else(|| {
                let detail = "unexpected reply to SCAN";
                StoreError::refused(LockErrorKind::Protocol, detail)
            })
        };
        request.boxed()
    }
}

/// Reads the reply to SCAN. Returns the names of the locks whose keys were found, and the next
/// cursor. `None` if the reply has another form.
fn read(answer: &Value) -> Option<(Vec<LockName>, u64)> {
    let (cursor, keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value_ref(answer).ok()?;
    let name = |key: &Vec<u8>| LockName::of_lock_key(std::str::from_utf8(key).ok()?);
    Some((keys.iter().filter_map(name).collect(), cursor))
}

impl fmt::Debug for RedisSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSearch").field("pattern", &self.pattern).finish_non_exhaustive()
    }
}
