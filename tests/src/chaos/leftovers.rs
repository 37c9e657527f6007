//! What may be left in Redis when all clients have gone: nothing of those that ended, and of those
//! that were killed only what ends by itself.

use std::collections::HashSet;
use std::time::Duration;

use lockcore::Locks;
use lockcore::internals::Demand;
use tokio::time::sleep;

use super::client::{LOCKS, lock_name};
use super::form::{Form, Forms};
use super::trace::who;
use super::violation::{Violation, What};
use crate::{Raw, RedisServer};

/// A waiter's deadline, at most; and a hold's, with the leases of these runs.
const LONGEST_MS: i64 = 15_000;

/// The keys of a lock in which members stand: its holds, and who waits with their deadlines.
struct Keys {
    holds: String,
    queue: String,
    deadlines: String,
}

impl Keys {
    fn of(form: Form, lock: u32) -> Self {
        let name = lock_name(lock);
        let (holds, queue, deadlines) = match form {
            Form::Mutex => (name.clone(), "redisson_lock_queue", "redisson_lock_timeout"),
            _ => {
                let holds = format!("lock_permits_holds:{{{name}}}");
                (holds, "lock_permits_queue", "lock_permits_deadlines")
            }
        };
        let key = |prefix: &str| format!("{prefix}:{{{name}}}");
        Self { holds, queue: key(queue), deadlines: key(deadlines) }
    }
}

/// Who holds, with a lease that has not ended, and who waits.
async fn members(redis: &mut Raw, form: Form, keys: &Keys, now_ms: f64) -> Vec<String> {
    let (mut members, queue): (Vec<String>, Vec<String>) = match form {
        Form::Mutex => {
            let hold = redis.hash(&keys.holds).await.into_iter();
            (hold.map(|(member, _)| member).collect(), redis.list(&keys.queue).await)
        }
        _ => {
            // One that has ended stays until it is in the way of another.
            let holds = redis.scores(&keys.holds).await.into_iter();
            let live = holds.filter(|(_, end)| *end > now_ms).map(|(member, _)| member).collect();
            let queue = redis.scores(&keys.queue).await.into_iter();
            (live, queue.map(|(member, _)| member).collect())
        }
    };
    members.extend(queue);
    members.extend(redis.scores(&keys.deadlines).await.into_iter().map(|(member, _)| member));
    members
}

/// Of what is no mutex: the members whose holds were reduced, and the sum of all holds.
async fn state(redis: &mut Raw, lock: u32) -> (Vec<String>, u64) {
    let fields = redis.hash(&format!("lock_permits:{{{}}}", lock_name(lock))).await;
    let used = fields.iter().find(|(field, _)| field == "used");
    let used = used.map_or(0, |(_, used)| used.parse().expect("a sum is a number"));
    let is_own = |field: &String| ["used", "token", "era", "ends"].contains(&field.as_str());
    let reduced = fields.into_iter().map(|(field, _)| field).filter(|field| !is_own(field));
    (reduced.collect(), used)
}

/// Looks at once for what no process may have left.
pub(super) async fn of_the_living(
    redis: &mut Raw,
    forms: Forms,
    killed: &HashSet<u32>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut say = |detail: String| found.push(Violation::new(What::LeftBehind, detail));
    let now_ms = (redis.time_us().await / 1_000) as f64;
    for lock in 0..LOCKS {
        let form = Form::of(forms, lock);
        let keys = Keys::of(form, lock);
        for (member, deadline) in redis.scores(&keys.deadlines).await {
            if deadline > now_ms + LONGEST_MS as f64 {
                say(format!("{member} is patient until {deadline}, now is {now_ms}"));
            }
        }
        for member in members(redis, form, &keys, now_ms).await {
            let child = who(&member).map(|(child, _)| child);
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

/// Waits until everything of the dead has ended by itself, then takes all of every lock once: after
/// that only tokens and tombstones remain.
pub(super) async fn of_the_dead(
    server: &RedisServer,
    redis: &mut Raw,
    forms: Forms,
) -> Vec<Violation> {
    let mut found = Vec::new();
    sleep(Duration::from_millis(last_end_ms(redis, forms).await)).await;
    let locks = Locks::connect(server.url()).await.expect("the server accepts a node");
    for lock in 0..LOCKS {
        let request = locks.key(lock_name(lock));
        match Form::of(forms, lock).try_once(request, Demand::ALONE).await {
            Ok(Some(held)) => held.release().await.expect("held until now"),
            other => found.push(Violation::new(
                What::LeftBehind,
                format!("lock {lock} cannot be had after the end of all: {other:?}"),
            )),
        }
    }
    locks.shutdown(Duration::from_secs(5)).await;
    for lock in 0..LOCKS {
        let (reduced, used) = state(redis, lock).await;
        if used > 0 || !reduced.is_empty() {
            let detail = format!("{used} of lock {lock} in use, {reduced:?} reduced");
            found.push(Violation::new(What::LeftBehind, detail));
        }
    }
    let expected =
        ["redisson_lock_token:{", "redisson_lock_gone:{", "lock_permits:{", "lock_permits_gone:{"];
    for key in redis.keys("*").await {
        if !expected.iter().any(|prefix| key.starts_with(prefix)) {
            found.push(Violation::new(What::LeftBehind, key));
        }
    }
    found
}

/// How long until the last hold and the last deadline are over.
async fn last_end_ms(redis: &mut Raw, forms: Forms) -> u64 {
    let now_ms = (redis.time_us().await / 1_000) as f64;
    let mut last = 0;
    for lock in 0..LOCKS {
        let form = Form::of(forms, lock);
        let keys = Keys::of(form, lock);
        let mut ends = redis.scores(&keys.deadlines).await;
        match form {
            Form::Mutex => last = last.max(redis.pttl(&keys.holds).await),
            _ => ends.extend(redis.scores(&keys.holds).await),
        }
        for (_, end) in ends {
            last = last.max((end - now_ms) as i64);
        }
    }
    u64::try_from(last).unwrap_or(0) + 1
}
