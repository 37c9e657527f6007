//! `RedisReplays`: a store on Redis.

mod asking;
mod connect;
mod fields;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use deadpool::managed::{Manager, Object, Pool};
use lockcore::FencingToken;
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Script, ServerErrorKind, Value, cmd};

use self::asking::{Asking, is_of_the_connection, is_wrong_type};
use self::connect::{Connect, PoolConnect};
use crate::record::Record;
use crate::record::key::RecordKey;
use crate::record::outcome::MAX_OUTCOME_BYTES;
use crate::store::error::StoreError;
use crate::store::{Finish, Finished, ReplayStore, Start, Started, StoreFuture};

/// A store that keeps records on Redis or Valkey, for services with any number of processes.
///
/// Each record is a hash at a separate Redis key, so a Redis Cluster can be used. Each operation is
/// one script. Records expire. A server that removes keys before they expire, because of a
/// `maxmemory-policy` other than `noeviction`, lets requests run twice.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lock_idempotency::RedisReplays;
///
/// let config = deadpool_redis::Config::from_url("redis://127.0.0.1/");
/// let pool = config.create_pool(Some(deadpool_redis::Runtime::Tokio1))?;
/// let replays = RedisReplays::new(pool).prefix("shop:replay");
/// # drop(replays);
/// # Ok(())
/// # }
/// ```
///
/// The pool reads the URL itself: write user, password and database as `user:password@host/db`, not
/// as options, which it ignores. Over Sentinel use `deadpool_redis::sentinel::Config`, on a Cluster
/// `deadpool_redis::cluster::Config`, of the features with these names. For TLS enable the feature
/// `tokio-rustls-comp`.
///
/// A Redis user with the rights for locks needs these rules besides:
///
/// ```text
/// ~idempotency:* +hmget +hset +hsetnx +hstrlen
/// ```
#[derive(Clone)]
#[must_use = "a store does nothing until it is given to a layer"]
pub struct RedisReplays {
    connect: Arc<dyn Connect>,
    prefix: Arc<str>,
}

/// A Lua script for a store operation. A second run returns the same result as the first, because
/// clients repeat a command whose reply was lost: this store does, and so does a Cluster client.
struct Step {
    code: &'static str,
    /// The SHA-1 of the script, by which `EVALSHA` runs it.
    hash: LazyLock<String>,
}

macro_rules! step {
    ($file:literal) => {
        Step {
            code: include_str!($file),
            hash: LazyLock::new(|| Script::new(include_str!($file)).get_hash().to_owned()),
        }
    };
}

static LOOK_UP: Step = step!("redis/look_up.lua");
static START: Step = step!("redis/start.lua");
static FINISH: Step = step!("redis/finish.lua");
static END: Step = step!("redis/end.lua");

impl RedisReplays {
    /// Creates a store on the server of `pool`: a `deadpool_redis::Pool`, or a pool for Redis
    /// Cluster or Sentinel. Redis keys of records begin with `idempotency:`.
    ///
    /// All operations share one connection, which the pool's manager opens without taking a pool
    /// slot. After an error the next operation opens a new connection. So it does after an
    /// operation that was dropped, for example after
    /// [`store_within`](crate::IdempotencyLayer::store_within), and has no reply 500 ms later. An
    /// operation that fails on an older connection is tried once more, because the server may have
    /// closed that connection meanwhile. A refusal by the server, such as for lack of memory or of
    /// a right, does neither.
    ///
    /// The timeouts of the pool's manager limit each try. They are those of redis-rs by default:
    /// 500 ms for a reply, and 1 s for a new connection. If the store may take longer, as a longer
    /// `store_within` permits, create the pool from a `deadpool_redis::Manager::from_config` with
    /// longer timeouts.
    pub fn new<M, W>(pool: Pool<M, W>) -> Self
    where
        M: Manager<Type: ConnectionLike + Clone + Send + 'static, Error: fmt::Display> + 'static,
        W: From<Object<M>> + Send + 'static,
    {
        Self { connect: Arc::new(PoolConnect::new(pool)), prefix: "idempotency".into() }
    }

    /// Sets the prefix of the records' Redis keys; `idempotency` by default. A colon and the record
    /// name follow the prefix.
    pub fn prefix(mut self, prefix: impl AsRef<str>) -> Self {
        self.prefix = prefix.as_ref().into();
        self
    }

    /// Runs a script on the record with this name, and returns the reply. `arguments` appends the
    /// script's arguments to the command. If the script fails on a connection that was opened
    /// earlier, runs it once more on a new connection, unless the server refuses it.
    async fn run(
        &self,
        step: &Step,
        key: &RecordKey,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let (mut is_known, mut is_last) = (true, false);
        loop {
            let mut call = match is_known {
                true => cmd("EVALSHA").arg(&*step.hash).take(),
                false => cmd("EVAL").arg(step.code).take(),
            };
            call.arg(1).arg(format!("{}:{key}", self.prefix));
            arguments(&mut call);
            let lent = self.connect.connect().await?;
            let is_new = lent.is_new;
            match Asking::new(&self.connect, lent, call).await {
                Ok(answer) => return Ok(answer),
                Err(error)
                    if is_known && error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
                {
                    is_known = false;
                }
                Err(error) if is_wrong_type(&error) => {
                    return Err(StoreError::malformed("the key has another type"));
                }
                Err(error) if is_new || is_last || !is_of_the_connection(&error) => {
                    return Err(StoreError::unavailable(error));
                }
                Err(_) => is_last = true,
            }
        }
    }
}

/// Converts an expiry to whole milliseconds: at least 1, because Redis removes a record whose
/// expiry is zero, and at most a hundred years.
fn millis(time: Duration) -> u64 {
    // A hundred years, so that the sum with the server's current time does not overflow.
    const MOST: u64 = 100 * 365 * 24 * 60 * 60 * 1_000;
    u64::try_from(time.as_millis()).unwrap_or(MOST).clamp(1, MOST)
}

impl ReplayStore for RedisReplays {
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async {
            let arguments = |call: &mut Cmd| {
                call.arg(MAX_OUTCOME_BYTES);
            };
            fields::looked_up(self.run(&LOOK_UP, key, arguments).await?)
        })
    }

    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started> {
        Box::pin(async {
            let arguments = |call: &mut Cmd| {
                call.arg(MAX_OUTCOME_BYTES).arg(start.fingerprint.as_bytes());
                call.arg(start.token.get()).arg(millis(start.expiry));
                call.arg(u8::from(start.takes_over));
            };
            fields::started(self.run(&START, key, arguments).await?)
        })
    }

    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished> {
        Box::pin(async {
            let outcome = finish.outcome.encode();
            let arguments = |call: &mut Cmd| {
                call.arg(finish.token.get()).arg(millis(finish.expiry)).arg(&outcome[..]);
            };
            fields::finished(self.run(&FINISH, key, arguments).await?)
        })
    }

    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let arguments = |call: &mut Cmd| {
                call.arg(token.get());
            };
            self.run(&END, key, arguments).await.map(drop)
        })
    }
}

impl fmt::Debug for RedisReplays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisReplays").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
