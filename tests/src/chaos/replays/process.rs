//! A process that serves requests with a key, and dies or is paused where a request says so.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use deadpool_redis::{Config, Pool, PoolError, Runtime};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use lock_idempotency::{
    Attempt, Finish, Finished, IdempotencyLayer, ReadBody, Record, RecordKey, RedisReplays,
    ReplayStore, Scope, Start, Started, StoreError, StoreFuture,
};
use lockcore::{FencingToken, Locks};
use redis::{ErrorKind, RedisError};
use tokio::io::AsyncBufReadExt as _;
use tower::{Layer as _, service_fn};

use super::fault::ReplayFault;
use crate::chaos::dice::Dice;
use crate::chaos::takeover::say;
use crate::http::serve;
use crate::signal;

/// The lease of a key's lock. A busy machine does not stop a process for so long.
pub(super) const LEASE: Duration = Duration::from_secs(3);
pub(super) const SCOPE: &str = "torture";
pub(super) const FAULT: &str = "x-fault";
pub(super) const SIZE: &str = "x-size";
pub(super) const PREFIX: &str = "replay";

/// The work of a key: a list of the steps of its attempts. `KEYS`: the record, the list, the fence;
/// `ARGV`: `began` or `committed`, token, attempt. The step records whether the record had a
/// response.
///
/// A later attempt that has begun fences the commits of earlier attempts.
const WORK: &str = "
local fence = tonumber(redis.call('GET', KEYS[3]) or '0')
if ARGV[1] == 'began' then
    if fence < tonumber(ARGV[2]) then redis.call('SET', KEYS[3], ARGV[2]) end
elseif fence ~= tonumber(ARGV[2]) then
    return 0
end
local answered = redis.call('HEXISTS', KEYS[1], 'outcome')
return redis.call('RPUSH', KEYS[2], table.concat({ARGV[1], ARGV[2], ARGV[3], answered}, ' '))";

/// Serves until standard input ends. `name` identifies this run of the process.
///
/// # Panics
///
/// If it cannot connect.
pub async fn serve_replays(url: &str, name: &str) {
    let locks = Locks::builder().lease(LEASE).connect(url).await.expect("the server is up");
    let pool = Config::from_url(url).create_pool(Some(Runtime::Tokio1)).expect("a pool");
    let faults = Faults::default();
    let store =
        Faulty { inner: RedisReplays::new(pool.clone()).prefix(PREFIX), faults: faults.clone() };
    let layer = IdempotencyLayer::new(locks, store, |_| Ok(Scope::new(SCOPE)))
        .locking(|locks| locks.wait(Duration::from_secs(30)));
    let name: Arc<str> = name.into();
    let service = service_fn(move |request: Request<ReadBody<_>>| {
        let (pool, faults, name) = (pool.clone(), faults.clone(), Arc::clone(&name));
        async move {
            let answer = work(&pool, &faults, &name, &request).await;
            Ok::<_, Infallible>(answer.unwrap_or_else(unavailable))
        }
    });
    let address = serve(layer.layer(service)).await;
    say(&format!("serves {address}"));
    let mut input = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let _ = input.next_line().await;
}

/// The handler: begins, works, commits and responds. The response has random bytes, so that no two
/// attempts have the same response.
async fn work<B>(
    pool: &Pool,
    faults: &Faults,
    name: &str,
    request: &Request<B>,
) -> Result<Response<Full<Bytes>>, RedisError> {
    let attempt = request.extensions().get::<Attempt>().expect("the layer puts it there");
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let fault = header(FAULT).and_then(|fault| fault.parse().ok());
    let size = header(SIZE).and_then(|size| size.parse().ok()).unwrap_or(0);
    let mut dice = Dice::part(u64::from(attempt.fencing_token()), std::process::id().into());
    let itself = format!("{name}-{:016x}", dice.next());
    step(pool, attempt, "began", &itself).await?;
    tokio::time::sleep(Duration::from_millis(dice.of(0..=15))).await;
    match fault {
        Some(ReplayFault::DiesInHandler) => die(ReplayFault::DiesInHandler).await,
        Some(ReplayFault::PausesInHandler) => pause(ReplayFault::PausesInHandler),
        _ => {}
    }
    // A refused commit is ignored: the layer must refuse the response of an overtaken attempt.
    step(pool, attempt, "committed", &itself).await?;
    match fault {
        Some(ReplayFault::DiesCommitted) => die(ReplayFault::DiesCommitted).await,
        Some(ReplayFault::PausesCommitted) => pause(ReplayFault::PausesCommitted),
        _ => {}
    }
    faults.set(*attempt.record_key(), fault);
    let mut body = format!("{itself} ").into_bytes();
    body.extend((0..size).map(|_| dice.next() as u8));
    let answer = Response::builder().header("etag", format!("\"{itself}\""));
    Ok(answer.body(Full::from(body)).expect("text"))
}

/// Returns the response of a process paused while it waited for the server.
fn unavailable(_: RedisError) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer
}

async fn step(pool: &Pool, attempt: &Attempt, step: &str, itself: &str) -> Result<(), RedisError> {
    let record = attempt.record_key();
    let mut connection = pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => error,
        error => RedisError::from((ErrorKind::Io, "no connection", error.to_string())),
    })?;
    let script = redis::Script::new(WORK);
    let mut script = script.prepare_invoke();
    for kind in [PREFIX, "work", "fence"] {
        script.key(format!("{kind}:{record}"));
    }
    script.arg(step).arg(u64::from(attempt.fencing_token())).arg(itself);
    let _: i64 = script.invoke_async(&mut connection).await?;
    Ok(())
}

/// Reports the fault to the parent process, and kills this process.
async fn die(fault: ReplayFault) {
    say(&format!("fault {fault}"));
    signal::kill(std::process::id());
    std::future::pending().await
}

/// Reports the fault to the parent process, and stops this process until the parent resumes it.
fn pause(fault: ReplayFault) {
    say(&format!("fault {fault}"));
    signal::stop_self();
}

/// The faults that strike while a response is stored, by record.
#[derive(Clone, Debug, Default)]
struct Faults(Arc<Mutex<HashMap<RecordKey, ReplayFault>>>);

impl Faults {
    fn set(&self, record: RecordKey, fault: Option<ReplayFault>) {
        if let Some(fault) = fault {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(record, fault);
        }
    }

    fn take(&self, record: &RecordKey) -> Option<ReplayFault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(record)
    }
}

/// A store that kills the process where a fault says so.
#[derive(Debug)]
struct Faulty {
    inner: RedisReplays,
    faults: Faults,
}

impl ReplayStore for Faulty {
    fn look_up<'a>(&'a self, key: &'a RecordKey) -> StoreFuture<'a, Option<Record>> {
        self.inner.look_up(key)
    }

    fn start<'a>(&'a self, key: &'a RecordKey, start: &'a Start) -> StoreFuture<'a, Started> {
        self.inner.start(key, start)
    }

    fn finish<'a>(&'a self, key: &'a RecordKey, finish: &'a Finish) -> StoreFuture<'a, Finished> {
        Box::pin(async move {
            let fault = self.faults.take(key);
            if fault == Some(ReplayFault::DiesStoring) {
                // The kill may come at any time from before the request to after the reply.
                let mut dice = Dice::part(finish.token.get(), 0);
                let within = Duration::from_micros(dice.of(0..=1_000));
                std::thread::spawn(move || {
                    std::thread::sleep(within);
                    say(&format!("fault {}", ReplayFault::DiesStoring));
                    signal::kill(std::process::id());
                });
            }
            let finished: Result<Finished, StoreError> = self.inner.finish(key, finish).await;
            match fault {
                Some(ReplayFault::DiesStored) => die(ReplayFault::DiesStored).await,
                Some(ReplayFault::DiesStoring) => std::future::pending().await,
                _ => {}
            }
            finished
        })
    }

    fn end<'a>(&'a self, key: &'a RecordKey, token: FencingToken) -> StoreFuture<'a, ()> {
        self.inner.end(key, token)
    }
}
