//! A reply that goes missing on a connection that stays open: without a defence, every later
//! request gets the reply to another request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lock_tests::{Request, eventually};
use lockcore::{LockErrorKind, Locks};
use tokio::time::{Instant, sleep};

use crate::common::{LONG, SHORT, SOON, granted, held, queue_has, queued, release, setup, soon};
use crate::script::runs;

/// How long after the missing reply requests may fail.
const HEALED: Duration = Duration::from_secs(5);

// T5: `x` got the grant of `free2`, with its token, while another process held `x`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lock_gets_the_grant_of_another_one() {
    no_other_grant(true, runs("lock")).await;
    for command in ["MULTI", "SET", "INCR", "GET", "EXEC"] {
        no_other_grant(false, |request| request.is(command)).await;
    }
}

/// Swallows a reply of the acquire of a free lock: with `was_busy`, the lock was busy at the last
/// request and so takes a script.
async fn no_other_grant(was_busy: bool, is_struck: impl Fn(&Request) -> bool + Send + 'static) {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    release(held(&far, "other", LONG).await).await; // the counter is there
    if was_busy {
        let guard = held(&near, "free1", LONG).await;
        assert!(soon("an answer", far.try_lock("free1")).await.expect("an answer").is_none());
        release(guard).await;
    }
    let guard = held(&near, "x", LONG).await;
    let fault = setup.proxy.swallow_reply(is_struck);
    let first = tokio::spawn(far.lock("free1"));
    soon("the fault", fault.struck()).await;
    let x = tokio::spawn(far.lock("x"));
    queue_has(&mut setup.redis, "x", 1).await;
    let second = tokio::spawn(far.lock("free2"));
    // An attempt that received another's reply may end with an error.
    for free in [first, second] {
        match soon("an answer", free).await.expect("no panic") {
            Ok(guard) => release(guard).await,
            Err(error) => assert_eq!(error.kind(), LockErrorKind::Protocol, "{error}"),
        }
    }
    assert!(!guard.is_lost());
    let ended = x.is_finished();
    release(guard).await;
    match soon("an answer", x).await.expect("no panic") {
        Ok(_) if ended => panic!("x was held by another process"),
        Ok(guard) => release(guard).await,
        Err(error) => assert_eq!(error.kind(), LockErrorKind::Protocol, "{error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_whose_answer_went_missing_does_not_stay_behind() {
    let setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    // The reply to an acquire that removes an expired hold contains its grant in a list of holds.
    let lapsed = near.key("second").fixed_lease(SHORT).permits(1, 1);
    let lapsed = soon("a permit", lapsed).await.expect("free");
    eventually("its lease ends", SOON, async || lapsed.is_lost()).await;
    sleep(SHORT / 2).await;
    let fault = setup.proxy.swallow_reply(runs("acquire"));
    let first = tokio::spawn(far.permit("first", 1));
    soon("the fault", fault.struck()).await;
    let second = tokio::spawn(far.permit("second", 1));
    // It receives the grant of the second.
    let error = soon("an answer", first).await.expect("no panic").expect_err("another's grant");
    assert_eq!(error.kind(), LockErrorKind::Protocol, "{error}");
    release(soon("an answer", second).await.expect("no panic").expect("it is asked again")).await;
    // Long before the lease would end.
    release(soon("the first", near.permit("first", 1)).await.expect("it was given back")).await;
}

// The reply to the release of `b` reached the release of `a`: the token of `c` was counted from the
// older token floor, and so below the token of `b`, or equal to the token of `x`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_token_falls_after_a_missing_answer_to_a_release() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    // Each release sends a request to the server.
    let url = setup.proxy.url();
    let far = soon("a connection", Locks::builder().batch_limit(1).connect(&url)).await;
    let far = far.expect("the server accepts us");
    let a = held(&far, "k", LONG).await;
    let x = queued(&near, "k", LONG, &mut setup.redis).await;
    let b = queued(&far, "k", LONG, &mut setup.redis).await;
    let c = queued(&far, "k", LONG, &mut setup.redis).await;
    let fault = setup.proxy.swallow_reply(runs("unlock"));
    let mut releases = vec![tokio::spawn(a.release())];
    soon("the fault", fault.struck()).await;
    let x = granted(x).await;
    let token_of_x = x.fencing_token();
    release(x).await;
    let b = granted(b).await;
    let token_of_b = b.fencing_token();
    releases.push(tokio::spawn(b.release()));
    let c = granted(c).await;
    let tokens = [token_of_x, token_of_b, c.fencing_token()];
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
    releases.push(tokio::spawn(c.release()));
    for released in releases {
        // The last of them gets no reply.
        let _ = soon("its end", released).await.expect("no panic");
    }
}

/// The turns of many tasks, and when the last turn failed.
struct Traffic {
    ends: Arc<AtomicBool>,
    failed_ms: Arc<AtomicU64>,
    tasks: Vec<tokio::task::JoinHandle<u64>>,
}

impl Traffic {
    fn start(locks: &Locks) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let failed_ms = Arc::new(AtomicU64::new(0));
        let began = Instant::now();
        let task = |number: usize| {
            let locks = locks.clone();
            let ends = Arc::clone(&ends);
            let failed_ms = Arc::clone(&failed_ms);
            tokio::spawn(async move {
                let mut turns = 0;
                while !ends.load(Ordering::SeqCst) {
                    let key = format!("t{}", number % 5);
                    let is_permit = number.is_multiple_of(2);
                    let turn = async {
                        if is_permit {
                            locks.permit(&*key, 3).await?.release().await
                        } else {
                            locks.lock(&*key).await?.release().await
                        }
                    };
                    match turn.await {
                        Ok(()) => turns += 1,
                        Err(_) => {
                            failed_ms.store(began.elapsed().as_millis() as u64, Ordering::SeqCst);
                        }
                    }
                    sleep(Duration::from_millis(5)).await;
                }
                turns
            })
        };
        let tasks = (0..10).map(task).collect();
        Self { ends, failed_ms, tasks }
    }
}

async fn heals(script: &'static str) {
    let setup = setup().await;
    let locks = setup.through().await;
    let began = Instant::now();
    let traffic = Traffic::start(&locks);
    sleep(Duration::from_millis(100)).await;
    let fault = setup.proxy.swallow_reply(runs(script));
    soon("the fault", fault.struck()).await;
    let struck = began.elapsed();
    eventually("the connection was replaced", SOON, async || setup.proxy.accepted() > 2).await;
    sleep((struck + HEALED + Duration::from_secs(1)).saturating_sub(began.elapsed())).await;
    traffic.ends.store(true, Ordering::SeqCst);
    for task in traffic.tasks {
        assert!(soon("its end", task).await.expect("no panic") > 10, "{script}: it has its turns");
    }
    let last = Duration::from_millis(traffic.failed_ms.load(Ordering::SeqCst));
    assert!(last < struck + HEALED, "{script}: a request failed {last:?} in, {struck:?} the fault");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_heals_after_a_missing_answer_to_an_acquire() {
    tokio::join!(heals("lock"), heals("acquire"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn traffic_heals_after_a_missing_answer_to_a_release() {
    tokio::join!(heals("unlock"), heals("release"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_answer_to_a_renewal_costs_no_hold() {
    let setup = setup().await;
    let locks = setup.through().await;
    let fault = setup.proxy.swallow_reply(runs("extend"));
    let guard = held(&locks, "k", Duration::from_secs(6)).await;
    soon("the fault", fault.struck()).await;
    // The PING after the timeout gets no reply either, or the reply to another request.
    eventually("the connection was replaced", SOON, async || {
        setup.proxy.accepted() > 2 && locks.status().is_connected()
    })
    .await;
    release(held(&locks, "other", LONG).await).await;
    sleep(Duration::from_secs(6)).await;
    assert!(!guard.is_lost(), "it was renewed on the new connection");
    release(guard).await;
}

// Chaos: a server that was frozen while its run id was queried counted as another server, and a
// read of it did not share the token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_tell_its_run_in_time_is_no_other_server() {
    let setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let read = soon("a read", near.read("doc")).await.expect("free");
    // Its token is above the token of the read.
    release(held(&far, "other", LONG).await).await;
    let fault = setup.proxy.hold_reply(|request| request.is("INFO"));
    setup.proxy.cut_commands().await;
    soon("the fault", fault.struck()).await;
    let asked = setup.proxy.requests();
    eventually("it waits no longer", SOON, async || setup.proxy.requests() > asked).await;
    fault.release();
    eventually("it is connected", SOON, async || far.status().is_connected()).await;
    let other = soon("another read", far.read("doc")).await.expect("beside the first");
    assert_eq!(other.fencing_token(), read.fencing_token());
}
