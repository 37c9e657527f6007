//! `cargo run -p lock-examples --bin moving -- redis://127.0.0.1/ new`: a process migrated from a
//! `SET NX` loop, running beside processes not yet migrated.
//!
//! At the same time, run the same command in another terminal with `old` instead of `new`. Each
//! process pays five times. An overlapping payment would be lost: `redis-cli get paid:42` counts
//! them.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use lockcore::Locks;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

const LOCK: &str = "order:42";
const PAID: &str = "paid:42";
const TURNS: u32 = 5;

/// Acquires the old lock with a `SET NX` loop. `value` is unique to this hold.
async fn set_nx(redis: &mut MultiplexedConnection, value: &str) -> RedisResult<()> {
    let mut set = cmd("SET");
    set.arg(LOCK).arg(value).arg("NX").arg("PX").arg(30_000);
    while set.query_async::<Option<String>>(redis).await?.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Releases the old lock if this hold still owns it.
async fn compare_and_delete(redis: &mut MultiplexedConnection, value: &str) -> RedisResult<()> {
    let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
    cmd("EVAL").arg(script).arg(1).arg(LOCK).arg(value).query_async(redis).await
}

/// Adds a payment: reads the number of payments, waits, and writes the next number. Without a lock,
/// concurrent payments would be lost.
async fn pay(redis: &mut MultiplexedConnection) -> RedisResult<()> {
    let paid: Option<u32> = cmd("GET").arg(PAID).query_async(redis).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    cmd("SET").arg(PAID).arg(paid.unwrap_or(0) + 1).query_async(redis).await
}

/// Pays under the old lock, as all processes do before the migration, and processes not yet
/// migrated during it.
async fn old_turn(redis: &mut MultiplexedConnection, value: &str) -> RedisResult<()> {
    set_nx(redis, value).await?;
    pay(redis).await?;
    compare_and_delete(redis, value).await
}

/// Pays in a migrated process, while other processes still use the old lock. Acquires the new lock,
/// in whose queue migrated processes wait, and inside it the old lock, which excludes the others.
/// After the last of them has stopped, call `pay` instead of `old_turn`.
async fn new_turn(
    redis: &mut MultiplexedConnection,
    value: &str,
    locks: &Locks,
) -> Result<u64, Box<dyn Error>> {
    let guard = locks.lock_timeout(LOCK, Duration::from_secs(30)).await?;
    let token = guard.fencing_token().get();
    old_turn(redis, value).await?;
    guard.release().await?;
    Ok(token)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let has_moved = arguments.next().as_deref() != Some("old");
    let mut redis = redis::Client::open(url.as_str())?.get_multiplexed_async_connection().await?;
    // The namespace separates the new lock from the old lock's key.
    let locks = Locks::builder().namespace("shop").connect(url.as_str()).await?;
    for turn in 1..=TURNS {
        let value = format!("{}-{turn}", std::process::id());
        if has_moved {
            let token = new_turn(&mut redis, &value, &locks).await?;
            println!("new, turn {turn}: token {token}");
        } else {
            old_turn(&mut redis, &value).await?;
            println!("old, turn {turn}");
        }
    }
    Ok(())
}
