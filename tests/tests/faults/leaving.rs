//! Holds and positions that the server refuses to release for a lasting reason: they are released
//! once the reason is gone.

use lock_tests::{CommandStats, Raw, eventually, queue_key};
use lockcore::{LockErrorKind, Locks};
use redis::cmd;

use crate::common::{LONG, SOON, Setup, held, queue, queued, release, setup};

/// The number of failed requests after which a node has certainly not given up at the first
/// failure.
const SEVERAL: u64 = 3;

/// How many commands the server refused for this reason.
async fn refused(redis: &mut Raw, reason: &str) -> u64 {
    let errors = redis.info("errorstats").await;
    let counted = errors.lines().find_map(|line| {
        line.strip_prefix("errorstat_")?.strip_prefix(reason)?.strip_prefix(":count=")
    });
    counted.map_or(0, |count| count.trim().parse().expect("a number"))
}

async fn nothing_is_open(locks: &Locks) {
    eventually("nothing is open", SOON, async || locks.status().releasing == 0).await;
}

async fn allow_scripts(setup: &mut Setup, sign: char) {
    let mut rights = cmd("ACL");
    rights.arg("SETUSER").arg("default");
    for command in ["evalsha", "eval"] {
        rights.arg(format!("{sign}{command}"));
    }
    setup.redis.ask::<()>(&rights).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_could_not_be_released_without_a_right_are_released_once_it_is_there() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let other = setup.direct().await;
    let dropped = held(&locks, "dropped", LONG).await;
    let released = held(&locks, "released", LONG).await;
    allow_scripts(&mut setup, '-').await;
    let before = refused(&mut setup.redis, "NOPERM").await;
    drop(dropped);
    let error = released.release().await.expect_err("it has no right");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    let redis = &mut setup.redis;
    eventually("both are refused again and again", SOON, async || {
        refused(redis, "NOPERM").await >= before + 2 * SEVERAL
    })
    .await;
    assert_eq!(locks.status().releasing, 2);
    allow_scripts(&mut setup, '+').await;
    nothing_is_open(&locks).await;
    // Their leases are far from their ends.
    for key in ["dropped", "released"] {
        release(other.try_lock(key).await.expect("an answer").expect("given back")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_could_not_leave_a_queue_of_another_type_leaves_it_once_it_is_a_queue_again()
{
    let mut setup = setup().await;
    let holder = setup.direct().await;
    let locks = setup.direct().await;
    let guard = holder.key("k").fixed_lease(LONG * 10).lock().await.expect("free");
    let waiting = queued(&locks, "k", LONG, &mut setup.redis).await;
    let redis = &mut setup.redis;
    let queue_of = queue_key("k");
    let aside = "aside";
    redis.ask::<()>(cmd("RENAME").arg(&queue_of).arg(aside)).await;
    redis.ask::<()>(cmd("SET").arg(&queue_of).arg("a text")).await;
    let before = CommandStats::read(redis).await;
    waiting.abort();
    eventually("it leaves again and again", SOON, async || {
        CommandStats::read(redis).await.since(&before).calls("evalsha") >= SEVERAL
    })
    .await;
    assert_eq!(locks.status().releasing, 1);
    redis.ask::<()>(cmd("RENAME").arg(aside).arg(&queue_of)).await;
    nothing_is_open(&locks).await;
    assert_eq!(queue(redis, "k").await, Vec::<String>::new());
    release(guard).await;
}
