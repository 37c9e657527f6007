//! The keys that may remain in Redis when all clients are gone: no keys of clients that ended, and
//! of killed clients only keys that expire by themselves.

use std::collections::HashSet;
use std::time::Duration;

use lockcore::Locks;
use proto::Demand;
use tokio::time::sleep;

use super::client::{LOCKS, lock_name};
use super::trace::who;
use super::violation::{Violation, What};
use crate::{
    COUNTER, PATIENCE_MS, Raw, RedisServer, aside_key, holds_key, lock_key, patience_key,
    tombstones_key,
};

/// Returns the holders with unexpired leases, the waiters, and the skipped members.
async fn members(redis: &mut Raw, lock: u32, now_ms: i64) -> Vec<String> {
    let name = lock_name(lock);
    let holds = redis.scores(&holds_key(&name)).await.into_iter();
    // An expired part stays until it is in the way of another hold.
    let live = holds.filter(|(_, end)| *end as i64 > now_ms).map(|(member, _)| member);
    let mut members: Vec<String> = live.collect();
    members.extend(redis.holder(&name).await);
    members.extend(redis.queue(&name).await);
    for key in redis.keys(&aside_key(&name, "*")).await {
        members.extend(redis.scores(&key).await.into_iter().map(|(member, _)| member));
    }
    members
}

/// Reads the members right after the run, and returns those that no living process may have left
/// behind.
pub(super) async fn of_the_living(redis: &mut Raw, killed: &HashSet<u32>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut say = |detail: String| found.push(Violation::new(What::LeftBehind, detail));
    let now_ms = now_ms(redis).await;
    for lock in 0..LOCKS {
        for key in redis.keys(&patience_key(&lock_name(lock), "*")).await {
            let left = redis.pttl(&key).await;
            if left > PATIENCE_MS {
                say(format!("{key} lasts for {left} ms more"));
            }
        }
        for member in members(redis, lock, now_ms).await {
            let child = who(&member).map(|(child, _)| child);
            if child.is_none_or(|child| !killed.contains(&child)) {
                say(format!("{member} in lock {lock}"));
            }
        }
    }
    for key in redis.keys("*").await {
        if key != COUNTER && redis.pttl(&key).await == -1 {
            say(format!("{key} never expires"));
        }
    }
    found
}

/// Waits until everything of the dead has expired, then locks every lock once: afterwards only
/// tombstones remain, behind flagged lock keys, and the token counter.
pub(super) async fn of_the_dead(server: &RedisServer, redis: &mut Raw) -> Vec<Violation> {
    let mut found = Vec::new();
    sleep(Duration::from_millis(last_end_ms(redis).await)).await;
    let locks = Locks::connect(server.url()).await.expect("the server accepts a node");
    for lock in 0..LOCKS {
        let request = locks.key(lock_name(lock));
        match request.try_acquire(Demand::EXCLUSIVE).await {
            Ok(Some(held)) => held.release().await.expect("held until now"),
            other => found.push(Violation::new(
                What::LeftBehind,
                format!("lock {lock} cannot be had after the end of all: {other:?}"),
            )),
        }
    }
    locks.shutdown(Duration::from_secs(5)).await;
    let mut expected = vec![COUNTER.to_owned()];
    for lock in 0..LOCKS {
        let lock_key = lock_key(&lock_name(lock));
        let gone = tombstones_key(&lock_name(lock));
        if redis.exists(&gone).await {
            let text = redis.get(&lock_key).await;
            if text.as_deref().is_none_or(|text| !text.starts_with("-*0:")) {
                let detail = format!("{text:?} at {lock_key}, with tombstones");
                found.push(Violation::new(What::LeftBehind, detail));
            }
            expected.extend([lock_key, gone]);
        }
    }
    for key in redis.keys("*").await {
        if !expected.contains(&key) {
            found.push(Violation::new(What::LeftBehind, key));
        }
    }
    found
}

async fn now_ms(redis: &mut Raw) -> i64 {
    (redis.time_us().await / 1_000) as i64
}

/// Returns the time, in ms, until the last lease and the last liveness deadline have passed.
async fn last_end_ms(redis: &mut Raw) -> u64 {
    let now_ms = now_ms(redis).await;
    let mut last = 0;
    for lock in 0..LOCKS {
        let name = lock_name(lock);
        last = last.max(redis.hold(&name).await.map_or(0, |(_, left)| left));
        for key in redis.keys(&format!("{}:p*", lock_key(&name))).await {
            last = last.max(redis.pttl(&key).await);
        }
        for (_, end) in redis.scores(&holds_key(&name)).await {
            last = last.max(end as i64 - now_ms);
        }
    }
    u64::try_from(last).unwrap_or(0) + 1
}
