//! Requests sent more than once, to processes killed and paused at each step: each request is
//! served once, and all responses to it are equal.
//!
//! | module | content |
//! |---|---|
//! | `fault` | the faults of a process, and the steps where they strike |
//! | `process` | a process that serves, with its store and its work |
//! | `keeper` | the processes of a run, restarted when they die |
//! | `client` | the clients of one key |
//! | `verdict` | the laws of the clients' responses and the server's records |

mod client;
mod fault;
mod keeper;
mod process;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;

use crate::chaos::dice::Dice;
use crate::{Raw, RedisServer};

pub use fault::ReplayFault;
pub use process::serve_replays;

/// How many keys are in use at a time.
const AT_ONCE: usize = 16;

/// The figures of a run, and the violations.
#[derive(Clone, Debug, Default)]
pub struct Replays {
    /// The number of keys.
    pub keys: u64,
    /// The responses received by clients: the first per key, and replays.
    pub answers: u64,
    /// How many responses were replays.
    pub replayed: u64,
    /// How many connections were closed by a client before the response.
    pub hung_up: u64,
    /// How many requests were cut off by a process's death.
    pub cut_off: u64,
    /// How many holders were overtaken: `lock-lost`.
    pub overtaken: u64,
    /// How many responses were sent although they could not be stored: the process was paused.
    pub not_stored: u64,
    /// How many attempts began.
    pub began: u64,
    /// How many commits the work made: one per key, and those of attempts without a stored
    /// response.
    pub committed: u64,
    /// How many faults struck, by kind.
    pub faults: BTreeMap<ReplayFault, u64>,
    /// The violations found.
    pub violations: Vec<String>,
}

/// Has clients send `keys` requests, each more than once, to processes of `program` killed and
/// paused; judges the responses and the records.
///
/// # Panics
///
/// If a process does not start.
pub async fn replays(program: &Path, seed: u64, keys: u64) -> Replays {
    let server = RedisServer::start();
    let keeper = Arc::new(keeper::Keeper::start(program, &server.url()).await);
    let clients = (0..keys).map(|number| {
        let mut dice = Dice::part(seed, number);
        let keeper = Arc::clone(&keeper);
        async move { client::send(&keeper, number, &mut dice).await }
    });
    let said: Vec<client::Said> = stream::iter(clients).buffer_unordered(AT_ONCE).collect().await;
    let mut redis = Raw::connect(&server.url()).await;
    let faults = keeper.end().await;
    verdict::judge(&mut redis, &said, &faults).await
}

impl fmt::Display for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, answers, replayed, hung_up, cut_off, overtaken, not_stored, .. } = self;
        let Self { began, committed, faults, violations, .. } = self;
        writeln!(
            f,
            "{keys} keys: {answers} answers, {replayed} of them replays; {hung_up} clients hung \
             up, {cut_off} were cut off; {began} attempts began, {committed} committed; \
             {overtaken} were told that they were overtaken, {not_stored} were not stored"
        )?;
        for (fault, count) in faults {
            writeln!(f, "{fault}: {count} times")?;
        }
        write!(f, "violations: {}", violations.len())
    }
}
