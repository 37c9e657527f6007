//! Scripts dropped by the server (SCRIPT FLUSH).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lock_tests::{Connections, Fault, Flow, eventually};
use lockcore::{LockGuard, Locks};
use redis::cmd;

use crate::common::{
    LONG, SHORT, SOON, Setup, granted, held, holder, nothing_left, queued, release, setup, soon,
};
use crate::script::{Script, runs};
use crate::witness::Witness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_again_and_again_under_load_are_noticed_by_nobody() {
    let mut setup = setup().await;
    let witness = Arc::new(Witness::default());
    let mut workers = Vec::new();
    for _ in 0..2 {
        let locks = setup.direct().await;
        for _ in 0..3 {
            let locks = locks.clone();
            let witness = Arc::clone(&witness);
            workers.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let acquire = locks.key("k").lease(LONG).lock();
                    let guard = soon("the lock", acquire).await.expect("no node notices");
                    let visit = witness.enter(&guard);
                    tokio::task::yield_now().await;
                    drop(visit);
                    release(guard).await;
                    drop(soon("an answer", locks.try_lock("other")).await.expect("an answer"));
                    soon("an answer", locks.inspect("k")).await.expect("an answer");
                }
            }));
        }
    }
    let done = Arc::new(AtomicBool::new(false));
    let flushing = tokio::spawn({
        let mut redis = setup.redis.clone();
        let done = Arc::clone(&done);
        async move {
            let mut flushes = 0;
            while !done.load(Ordering::Relaxed) {
                redis.flush_scripts().await;
                flushes += 1;
                tokio::task::yield_now().await;
            }
            flushes
        }
    });
    for worker in workers {
        soon("everybody's work", worker).await.expect("no panic");
    }
    done.store(true, Ordering::Relaxed);
    let flushes: u32 = flushing.await.expect("no panic");
    assert!(flushes > 20, "only {flushes} flushes");
    assert_eq!(witness.visits(), 120);
    nothing_left(&mut setup.redis, "k").await;
    nothing_left(&mut setup.redis, "other").await;
}

// Each release by its source has more than 20 KB: a few hundred are more than a connection keeps
// unwritten.
#[tokio::test]
async fn thousands_of_releases_of_a_flushed_script_break_no_connection() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let acquire = |number| locks.key(format!("k{number}")).lease(LONG).lock().into_future();
    let guards = soon("the locks", join_all((0..3_000).map(acquire))).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    let accepted = setup.proxy.accepted();
    setup.redis.flush_scripts().await;
    drop(guards);
    eventually("all are released", SOON, async || {
        let status = locks.status();
        (status.holding, status.releasing) == (0, 0)
    })
    .await;
    assert_eq!(setup.proxy.accepted(), accepted, "the connections of the beginning");
    nothing_left(&mut setup.redis, "k2999").await;
}

/// Returns a hold that its node learned of by a message. A touch reports it, too, but that reply
/// stays in flight.
async fn hold_reported_late(setup: &mut Setup, locks: &Locks) -> (Fault, LockGuard) {
    let near = setup.direct().await;
    let before = held(&near, "k", LONG).await;
    // Its claim is 2 s, its touch period 0.8 s.
    let waiting = queued(locks, "k", 3 * SHORT, &mut setup.redis).await;
    setup.proxy.freeze(Connections::Subscriptions, Flow::Replies).await;
    release(before).await;
    let touch = setup.proxy.hold_reply(runs("touch"));
    soon("the touch", touch.struck()).await;
    setup.proxy.thaw();
    (touch, granted(waiting).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_that_tells_of_a_hold_does_not_end_it_before_its_release_on_the_way_does() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let (touch, guard) = hold_reported_late(&mut setup, &locks).await;
    let member = holder(&mut setup.redis, "k").await;
    // The release must be sent a second time, with its source: everything else could overtake it.
    setup.redis.flush_scripts().await;
    let leave = Script::named("leave");
    setup.redis.ask::<()>(cmd("SCRIPT").arg("LOAD").arg(leave.source())).await;
    let forgotten = setup.proxy.hold_reply(runs("unlock"));
    let releasing = tokio::spawn(guard.release());
    soon("the release", async {
        while locks.status().holding > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    touch.release();
    soon("the release", forgotten.struck()).await;
    // The time for an event that must not happen: a longer wait can only find more.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(holder(&mut setup.redis, "k").await, member, "something else gave it back");
    forgotten.release();
    soon("the release", releasing).await.expect("no panic").expect("the hold lasted until then");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_that_tells_of_a_dropped_hold_sends_no_leave_past_its_release() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let (touch, guard) = hold_reported_late(&mut setup, &locks).await;
    let member = holder(&mut setup.redis, "k").await;
    // The release must be sent a second time, with its source; a leave sent later would run at
    // once.
    setup.redis.flush_scripts().await;
    setup.redis.ask::<()>(cmd("CONFIG").arg("RESETSTAT")).await;
    let forgotten = setup.proxy.hold_reply(runs("unlock"));
    drop(guard);
    soon("the release", async {
        let stats = cmd("INFO").arg("errorstats").clone();
        while !setup.redis.ask::<String>(&stats).await.contains("NOSCRIPT") {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let leave = Script::named("leave");
    setup.redis.ask::<()>(cmd("SCRIPT").arg("LOAD").arg(leave.source())).await;
    touch.release();
    soon("the release", forgotten.struck()).await;
    // The time for an event that must not happen: a longer wait can only find more.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(holder(&mut setup.redis, "k").await, member, "a leave has overtaken it");
    forgotten.release();
    nothing_left(&mut setup.redis, "k").await;
}
