//! Attempts that began and left no response.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use http::{Response, StatusCode};
use lock_idempotency::{
    Attempt, Decision, Fingerprint, IdempotencyLayer, RecordKey, ReplayStore as _, Scope, Start,
    Started,
};
use lock_tests::http::{gate, text};
use lockcore::{FencingToken, Locks};

use crate::support::{Spy, counted, layer, payment, payment_of, send, serve, settle, spawn};

/// Writes the record that remains after a process has died in its handler, with this fencing token.
pub(crate) async fn died(store: &Spy, token: u64) {
    let key = RecordKey::new(&Scope::new("ada"), "a1");
    let (parts, _) = payment("a1").into_parts();
    let fingerprint = Fingerprint::new(&parts, b"500 cents");
    let token = FencingToken::try_from(token).unwrap();
    let mut start = Start::new(fingerprint, token, Duration::from_secs(60));
    start.takes_over = true;
    let started = store.records.start(&key, &start).await;
    assert_eq!(started.unwrap(), Started::Begun { again: false });
}

async fn after_a_death(
    set: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer,
) -> (crate::support::Got, usize, crate::support::Service) {
    let store = Spy::default();
    died(&store, 1).await;
    let (service, runs) = counted(&set(layer(&Locks::in_memory(), &store)));
    let got = send(&service, payment("a1")).await;
    (got, runs.load(Ordering::SeqCst), service)
}

#[tokio::test(start_paused = true)]
async fn by_default_the_handler_runs_again() {
    let (got, runs, service) = after_a_death(|layer| layer).await;
    assert_eq!((got.status, runs), (200, 1));
    assert!(send(&service, payment("a1")).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn a_remembered_start_refuses_until_its_record_ends() {
    let (got, runs, service) = after_a_death(|layer| layer.remember_starts(true)).await;
    assert_eq!((got.status, got.code().as_str()), (409, "idempotency-outcome-unknown"));
    assert_eq!(runs, 0);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(send(&service, payment("a1")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_function_decides() {
    let ask = |decide: fn() -> Decision| {
        move |layer: IdempotencyLayer| {
            layer.when_unanswered(move |attempt| {
                assert_eq!(attempt.idempotency_key, "a1");
                assert_eq!(*attempt.record_key, RecordKey::new(&Scope::new("ada"), "a1"));
                assert_eq!(attempt.token.get(), 1);
                assert!(attempt.started.elapsed().unwrap() < Duration::from_secs(600));
                assert!(attempt.started <= SystemTime::now());
                assert_eq!(attempt.parts.uri.path(), "/payments");
                Box::pin(async move { decide() })
            })
        }
    };
    let (got, runs, service) = after_a_death(ask(|| Decision::Run)).await;
    assert_eq!((got.status, runs), (200, 1));
    assert!(send(&service, payment("a1")).await.is_replayed());

    let (got, runs, _) = after_a_death(ask(|| Decision::Refuse)).await;
    assert_eq!((got.code().as_str(), runs), ("idempotency-outcome-unknown", 0));

    let answer = || Decision::Answer(http::Response::new("paid before".into()));
    let (got, runs, service) = after_a_death(ask(answer)).await;
    assert_eq!((got.body.as_str(), got.is_replayed(), runs), ("paid before", false, 0));
    let later = send(&service, payment("a1")).await;
    assert_eq!((later.body.as_str(), later.is_replayed()), ("paid before", true), "it is stored");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_older_than_its_record_does_not_begin() {
    let store = Spy::default();
    died(&store, (1 << 53) - 1).await;
    let (service, runs) = counted(&layer(&Locks::in_memory(), &store));
    assert_eq!(send(&service, payment("a1")).await.code(), "lock-lost");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_did_nothing_does_not_hide_an_earlier_one_without_an_answer() {
    let (store, asked) = (Spy::default(), Arc::new(AtomicUsize::new(0)));
    died(&store, 1).await;
    let count = Arc::clone(&asked);
    let layer = layer(&Locks::in_memory(), &store).when_unanswered(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Decision::Run })
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let runs = Arc::clone(&seen);
    let service = serve(&layer, move |request| {
        let mut runs = runs.lock().unwrap();
        runs.push(request.extensions().get::<Attempt>().unwrap().is_again());
        let status = [503, 409, 200][runs.len() - 1];
        async move { Response::builder().status(status).body(text("")).unwrap() }
    });
    for status in [503, 409, 200] {
        assert_eq!(send(&service, payment("a1")).await.status, status);
    }
    assert_eq!(*seen.lock().unwrap(), [true; 3], "only the first attempt knows if it has paid");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert!(send(&service, payment("a1")).await.is_replayed());
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_did_nothing_does_not_hide_an_earlier_one_that_still_runs() {
    let locks = Locks::in_memory();
    let (gate, mut keeper) = gate();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let runs = Arc::clone(&seen);
    let service = serve(&layer(&locks, &Spy::default()), move |request| {
        let mut runs = runs.lock().unwrap();
        runs.push(request.extensions().get::<Attempt>().unwrap().is_again());
        let (gate, run) = (gate.clone(), runs.len());
        async move {
            if run == 1 {
                gate.pass().await;
            }
            // The second run finds the order locked by the first.
            let status = if run == 2 { StatusCode::LOCKED } else { StatusCode::OK };
            Response::builder().status(status).body(text("")).unwrap()
        }
    });
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    let key = format!("idempotency:lock:{}", RecordKey::new(&Scope::new("ada"), "a1"));
    assert!(locks.force_release(key).await.unwrap());
    settle().await;
    assert_eq!(send(&service, payment("a1")).await.status, 423);
    keeper.let_one_on();
    assert_eq!(first.await.unwrap().code(), "lock-lost", "a later attempt has begun");
    assert_eq!(send(&service, payment("a1")).await.status, 200);
    assert_eq!(*seen.lock().unwrap(), [false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_reply_was_lost_is_no_earlier_attempt() {
    let store = Spy::default();
    let (service, runs) = counted(&layer(&Locks::in_memory(), &store).remember_starts(true));
    store.lose_next_reply_to_start();
    let refused = send(&service, payment("a1")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "idempotency-store-unavailable"));
    let got = send(&service, payment("a1")).await;
    assert_eq!((got.status, got.body.as_str()), (200, "run 1"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_reply_was_lost_does_not_hide_an_earlier_attempt() {
    let (store, asked) = (Spy::default(), Arc::new(AtomicUsize::new(0)));
    died(&store, 1).await;
    let (count, of_store) = (Arc::clone(&asked), store.clone());
    let layer = layer(&Locks::in_memory(), &store).when_unanswered(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            of_store.lose_next_reply_to_start(); // the start that takes over
        }
        Box::pin(async { Decision::Run })
    });
    let (service, runs) = counted(&layer);
    store.lose_next_reply_to_start(); // the start that only finds the record
    for status in [503, 503, 200] {
        assert_eq!(send(&service, payment("a1")).await.status, status);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2, "the first attempt may have paid");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_never_comes_ends_with_the_longest_run() {
    let (locks, store) = (Locks::in_memory(), Spy::default());
    died(&store, 1).await;
    let layer = layer(&locks, &store).max_run(Duration::from_secs(3));
    let layer = layer.when_unanswered(|_| Box::pin(std::future::pending()));
    let (service, runs) = counted(&layer);
    let began = tokio::time::Instant::now();
    let sending = tokio::time::timeout(Duration::from_secs(60), send(&service, payment("a1")));
    let got = sending.await.expect("the client has a response");
    assert_eq!((got.status, got.code().as_str()), (409, "idempotency-outcome-unknown"));
    assert_eq!(began.elapsed().as_secs(), 3);
    settle().await;
    assert_eq!((locks.status().holding, runs.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn two_accounts_that_send_the_same_key_are_charged_once_each() {
    // A bank with one key space for all accounts.
    let bank = Arc::new(Mutex::new(BTreeSet::new()));
    let asked = Arc::clone(&bank);
    let layer = layer(&Locks::in_memory(), &Spy::default()).when_unanswered(move |attempt| {
        let is_charged = asked.lock().unwrap().contains(attempt.record_key);
        Box::pin(async move {
            match is_charged {
                true => Decision::Answer(Response::new("charged before".into())),
                false => Decision::Run,
            }
        })
    });
    let charges = Arc::clone(&bank);
    let service = serve(&layer, move |request| {
        let attempt = request.extensions().get::<Attempt>().unwrap();
        // The first attempt fails before the charge.
        let status = if attempt.is_again() { StatusCode::OK } else { StatusCode::BAD_GATEWAY };
        if attempt.is_again() {
            charges.lock().unwrap().insert(*attempt.record_key());
        }
        async move { Response::builder().status(status).body(text("charged")).unwrap() }
    });
    for user in ["ada", "bob"] {
        assert_eq!(send(&service, payment_of(user, "a1", "500 cents")).await.status, 502);
        let paid = send(&service, payment_of(user, "a1", "500 cents")).await;
        assert_eq!((paid.status, paid.body.as_str()), (200, "charged"), "{user}");
    }
    assert_eq!(bank.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_payment_for_the_same_order_under_another_key_is_not_again() {
    let (by_record, by_order) = (Mutex::new(BTreeSet::new()), Mutex::new(BTreeSet::new()));
    let banks = Arc::new((by_record, by_order));
    let charges = Arc::clone(&banks);
    let service = serve(&layer(&Locks::in_memory(), &Spy::default()), move |request| {
        let attempt = request.extensions().get::<Attempt>().unwrap();
        assert!(!attempt.is_again());
        charges.0.lock().unwrap().insert(*attempt.record_key());
        charges.1.lock().unwrap().insert("order-42");
        // The first attempt fails between the charge and the order's row.
        let status = if attempt.idempotency_key() == "a1" { 500 } else { 200 };
        async move { Response::builder().status(status).body(text("")).unwrap() }
    });
    assert_eq!(send(&service, payment("a1")).await.status, 500);
    assert_eq!(send(&service, payment("b2")).await.status, 200);
    assert_eq!(banks.0.lock().unwrap().len(), 2, "the bank cannot know that they are one");
    assert_eq!(banks.1.lock().unwrap().len(), 1);
}
