//! Locks that are lost while the handler runs, and handlers that run too long.

use std::sync::atomic::Ordering;
use std::sync::{Arc, atomic::AtomicUsize};
use std::time::Duration;

use http::{Response, StatusCode};
use lock_idempotency::{RecordKey, Scope};
use lock_tests::http::{gate, text};
use lock_tower::LockScopeLayer;
use lockcore::Locks;

use crate::support::{Spy, gated, layer, payment, send, serve, settle, spawn};

#[tokio::test(start_paused = true)]
async fn whoever_was_overtaken_stores_nothing_and_answers_lock_lost() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let service = serve(&layer(&locks, &Spy::default()), move |_| {
        let (gate, run) = (gate.clone(), counter.fetch_add(1, Ordering::SeqCst) + 1);
        async move {
            // The first run is paused, and the second is not.
            if run == 1 {
                gate.pass().await;
            }
            Response::new(text(format!("run {run}")))
        }
    });
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    let key = format!("idempotency:lock:{}", RecordKey::new(&Scope::new("ada"), "a1"));
    assert!(locks.force_release(key).await.unwrap());
    assert_eq!(send(&service, payment("a1")).await.body, "run 2");
    keeper.let_one_on();
    let first = first.await.unwrap();
    assert_eq!((first.status, first.code().as_str()), (500, "lock-lost"));
    let third = send(&service, payment("a1")).await;
    assert_eq!((third.body.as_str(), third.is_replayed()), ("run 2", true), "the answer stays");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_and_not_taken_over_does_not_stop_the_work() {
    let locks = Locks::in_memory();
    let (service, mut keeper) = gated(&layer(&locks, &Spy::default()));
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    let key = format!("idempotency:lock:{}", RecordKey::new(&Scope::new("ada"), "a1"));
    assert!(locks.force_release(key).await.unwrap());
    settle().await;
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().body, "paid", "nobody has begun since: its record is its own");
    assert!(send(&service, payment("a1")).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn an_overtaken_handler_that_did_nothing_does_not_remove_the_answer_of_the_later_one() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&runs);
    let service = serve(&layer(&locks, &Spy::default()), move |_| {
        let (gate, run) = (gate.clone(), counter.fetch_add(1, Ordering::SeqCst) + 1);
        async move {
            gate.pass().await;
            let status = if run == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            Response::builder().status(status).body(text(format!("run {run}"))).unwrap()
        }
    });
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    let key = format!("idempotency:lock:{}", RecordKey::new(&Scope::new("ada"), "a1"));
    assert!(locks.force_release(key).await.unwrap());
    let second = spawn(&service, payment("a1"));
    keeper.entered().await;
    keeper.let_one_on(); // the first request, in order of arrival
    assert_eq!(first.await.unwrap().status, 503);
    keeper.let_one_on();
    assert_eq!(second.await.unwrap().body, "run 2");
    assert!(send(&service, payment("a1")).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_is_stopped_and_leaves_no_answer() {
    let locks = Locks::in_memory();
    let layer =
        layer(&locks, &Spy::default()).max_run(Duration::from_secs(3)).remember_starts(true);
    let service = serve(&layer, async |_| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Response::new(text("late"))
    });
    let stopped = send(&service, payment("a1")).await;
    assert_eq!((stopped.status, stopped.code().as_str()), (500, "idempotency-run-too-long"));
    settle().await;
    assert_eq!(locks.status().holding, 0);
    assert_eq!(send(&service, payment("a1")).await.code(), "idempotency-outcome-unknown");
}

// Once, the hold ended by itself, and the repeat ran the handler beside the first request.
#[tokio::test(start_paused = true)]
async fn no_limit_of_a_hold_lets_a_repeat_run_beside_the_first_request() {
    const LIMIT: Duration = Duration::from_secs(1);
    type Set = fn(LockScopeLayer) -> LockScopeLayer;
    let cases: [(Locks, Set); 4] = [
        (Locks::builder().max_hold(LIMIT).in_memory().unwrap(), |locks| locks),
        (Locks::builder().fixed_lease(LIMIT).in_memory().unwrap(), |locks| locks),
        (Locks::in_memory(), |locks| locks.max_hold(LIMIT)),
        (Locks::in_memory(), |locks| locks.fixed_lease(LIMIT)),
    ];
    for (case, (locks, set)) in cases.into_iter().enumerate() {
        let (service, mut keeper) = gated(&layer(&locks, &Spy::default()).locking(set));
        let first = spawn(&service, payment("a1"));
        keeper.entered().await;
        let repeat = spawn(&service, payment("a1"));
        tokio::time::sleep(3 * LIMIT).await;
        assert!(keeper.is_alone(), "case {case}: two handlers run");
        keeper.let_one_on();
        assert_eq!(first.await.unwrap().body, "paid", "case {case}");
        assert!(repeat.await.unwrap().is_replayed(), "case {case}");
    }
}
