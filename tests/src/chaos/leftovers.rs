//! What may be left in Redis when all clients have gone: nothing of those that ended, and of those
//! that were killed only what ends by itself.

use std::collections::HashSet;
use std::time::Duration;

use lockcore::Locks;
use redis::cmd;
use tokio::time::sleep;

use super::client::{LOCKS, lock_name, read_label};
use super::trace::member_label;
use super::violation::{Violation, What};
use crate::{Raw, RedisServer};

/// A waiter's deadline, at most; and a hold's, with the leases of these runs.
const LONGEST_MS: i64 = 15_000;

/// Looks at once for what nobody may have left.
pub(super) async fn of_the_living(redis: &mut Raw, killed: &HashSet<u32>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut say = |detail: String| found.push(Violation::new(What::LeftBehind, detail));
    let now_ms = (redis.time_us().await / 1_000) as f64;
    for lock in 0..LOCKS {
        let name = lock_name(lock);
        let mut members: Vec<String> =
            redis.hash(&name).await.into_iter().map(|(member, _)| member).collect();
        members.extend(redis.list(&format!("redisson_lock_queue:{{{name}}}")).await);
        let scores = redis.scores(&format!("redisson_lock_timeout:{{{name}}}")).await;
        for (member, deadline) in &scores {
            if *deadline > now_ms + LONGEST_MS as f64 {
                say(format!("{member} is patient until {deadline}, now is {now_ms}"));
            }
        }
        members.extend(scores.into_iter().map(|(member, _)| member));
        for member in members {
            let child = member_label(&member).and_then(read_label).map(|(child, _)| child);
            if child.is_none_or(|child| !killed.contains(&child)) {
                say(format!("{member} in lock {lock}"));
            }
        }
    }
    for key in redis.keys("*").await {
        if redis.pttl(&key).await == -1 {
            say(format!("{key} never expires"));
        }
    }
    found
}

/// Waits until everything of the dead has ended by itself, then takes every lock once: after that
/// only tokens and tombstones remain.
pub(super) async fn of_the_dead(server: &RedisServer, redis: &mut Raw) -> Vec<Violation> {
    let mut found = Vec::new();
    sleep(Duration::from_millis(last_end_ms(redis).await)).await;
    let locks = Locks::connect(server.url()).await.expect("the server accepts a node");
    for lock in 0..LOCKS {
        match locks.try_lock(lock_name(lock)).await {
            Ok(Some(guard)) => guard.release().await.expect("held until now"),
            other => found.push(Violation::new(
                What::LeftBehind,
                format!("lock {lock} cannot be had after the end of all: {other:?}"),
            )),
        }
    }
    locks.shutdown(Duration::from_secs(5)).await;
    let expected = ["redisson_lock_token:{", "redisson_lock_gone:{"];
    for key in redis.keys("*").await {
        if !expected.iter().any(|prefix| key.starts_with(prefix)) {
            found.push(Violation::new(What::LeftBehind, key));
        }
    }
    found
}

/// How long until the last hold and the last deadline are over.
async fn last_end_ms(redis: &mut Raw) -> u64 {
    let now_ms = (redis.time_us().await / 1_000) as f64;
    let mut last = 0;
    for lock in 0..LOCKS {
        let name = lock_name(lock);
        last = last.max(redis.ask::<i64>(cmd("PTTL").arg(&name)).await);
        for (_, deadline) in redis.scores(&format!("redisson_lock_timeout:{{{name}}}")).await {
            last = last.max((deadline - now_ms) as i64);
        }
    }
    u64::try_from(last).unwrap_or(0) + 1
}
