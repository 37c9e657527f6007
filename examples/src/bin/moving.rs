//! `cargo run -p lock-examples --bin moving -- redis://127.0.0.1/ new`: a process that has moved
//! here from a loop of `SET NX`, beside some that have not.
//!
//! At the same time, in another terminal, the same with `old` in place of `new`. Each process pays
//! five times. A payment that overlaps with another is lost: `redis-cli get paid:42` counts them.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use lockcore::Locks;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

const LOCK: &str = "order:42";
const PAID: &str = "paid:42";
const TURNS: u32 = 5;

/// Acquires the old lock by asking again and again. `value` differs for each hold.
async fn set_nx(redis: &mut MultiplexedConnection, value: &str) -> RedisResult<()> {
    let mut set = cmd("SET");
    set.arg(LOCK).arg(value).arg("NX").arg("PX").arg(30_000);
    while set.query_async::<Option<String>>(redis).await?.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Releases the old lock if it is still this hold's.
async fn compare_and_delete(redis: &mut MultiplexedConnection, value: &str) -> RedisResult<()> {
    let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end";
    cmd("EVAL").arg(script).arg(1).arg(LOCK).arg(value).query_async(redis).await
}

/// Does the work: reads, waits, writes.
async fn pay(redis: &mut MultiplexedConnection) -> RedisResult<()> {
    let paid: Option<u32> = cmd("GET").arg(PAID).query_async(redis).await?;
    tokio::time::sleep(Duration::from_millis(50)).await;
    cmd("SET").arg(PAID).arg(paid.unwrap_or(0) + 1).query_async(redis).await
}

/// The turn of all processes before the move, and of the old ones still.
async fn old_turn(redis: &mut MultiplexedConnection, value: &str) -> RedisResult<()> {
    set_nx(redis, value).await?;
    pay(redis).await?;
    compare_and_delete(redis, value).await
}

/// The middle step: the new lock, in which the new processes queue, and inside it the old one. When
/// the last old process is gone, `pay` takes the place of `old_turn`.
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
    // The namespace keeps the new lock from the old one's key.
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
