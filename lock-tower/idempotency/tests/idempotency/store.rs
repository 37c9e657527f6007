//! Stores that fail, at each operation.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lock_idempotency::{MemoryReplays, RecordKey, ReplayStore as _, Scope, StoreError};
use lock_tests::http::text;
use lockcore::Locks;

use crate::support::{Spy, counted, gated, layer, payment, send, serve, settle, spawn};

fn down() -> Option<StoreError> {
    Some(StoreError::unavailable("down"))
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_before_the_handler_refuses() {
    for step in ["look_up", "start"] {
        let (locks, store) = (Locks::in_memory(), Spy::default());
        let (service, runs) = counted(&layer(&locks, &store));
        // The test holds the lock for a moment, so that the layer's lookup ends before it calls
        // `start`.
        let key = format!("idempotency:lock:{}", RecordKey::new(&Scope::new("ada"), "a1"));
        let guard = locks.lock(key).await.unwrap();
        store.fail(step, down());
        let refused = spawn(&service, payment("a1"));
        settle().await;
        drop(guard);
        let refused = refused.await.unwrap();
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (503, "idempotency-store-unavailable")
        );
        assert!(refused.headers.contains_key("retry-after"), "{step}");
        store.fail(step, None);
        store.fail("look_up", Some(StoreError::malformed("newer")));
        store.fail("start", Some(StoreError::malformed("newer")));
        let refused = send(&service, payment("a1")).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (500, "idempotency-record-malformed")
        );
        assert_eq!(runs.load(Ordering::SeqCst), 0, "{step}");
        settle().await;
        assert_eq!((locks.status().waiting, locks.status().holding), (0, 0));
        store.fail("look_up", None);
        store.fail("start", None);
        assert_eq!(send(&service, payment("a1")).await.body, "run 1");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_could_not_be_stored_is_sent_and_says_so() {
    let store = Spy::default();
    let (service, _) = counted(&layer(&Locks::in_memory(), &store));
    store.fail("finish", down());
    let sent = send(&service, payment("a1")).await;
    assert_eq!((sent.status, sent.body.as_str()), (200, "run 1"));
    assert_eq!(sent.headers["idempotency-stored"], "no");

    let store = Spy::default();
    let (strict, runs) = counted(&layer(&Locks::in_memory(), &store).strict(true));
    store.fail("finish", down());
    let refused = send(&strict, payment("a1")).await;
    assert_eq!((refused.status, refused.code().as_str()), (500, "idempotency-not-stored"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_the_store_has_lost_is_told_and_the_answer_is_sent() {
    let store = Spy::default();
    let (service, mut keeper) = gated(&layer(&Locks::in_memory(), &store));
    let first = spawn(&service, payment("a1"));
    keeper.entered().await;
    // Remove the record, as if Redis had restarted without its data.
    let key = RecordKey::new(&Scope::new("ada"), "a1");
    let token = store.records.look_up(&key).await.unwrap().unwrap().token();
    store.records.end(&key, token).await.unwrap();
    keeper.let_one_on();
    let first = first.await.unwrap();
    assert_eq!(
        (first.body.as_str(), &first.headers["idempotency-stored"]),
        ("paid", &"no".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_handler_is_sent_although_its_record_stays() {
    let store = Spy::default();
    let service = serve(&layer(&Locks::in_memory(), &store), async |_| {
        http::Response::builder().status(503).body(text("busy")).unwrap()
    });
    store.fail("end", down());
    assert_eq!(send(&service, payment("a1")).await.body, "busy");
    assert_eq!(store.count("end"), 1);
    store.fail("end", None);
    assert_eq!(send(&service, payment("a1")).await.body, "busy", "the handler runs again");
    // For the second run, the record is that of an attempt that may have done the work.
    assert_eq!(store.count("end"), 1);
    let key = RecordKey::new(&Scope::new("ada"), "a1");
    assert_eq!(store.records.look_up(&key).await.unwrap().unwrap().outcome(), None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_waited_for_within_its_time() {
    let store = Spy::default();
    let layer = layer(&Locks::in_memory(), &store).store_within(Duration::ZERO);
    let (service, runs) = counted(&layer);
    let refused = send(&service, payment("a1")).await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "idempotency-store-unavailable"));
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn records_in_memory_are_bounded_and_none_ends_before_its_time() {
    let records = MemoryReplays::with_max_bytes(1_024);
    let hour = Duration::from_secs(3_600);
    let layer = lock_idempotency::IdempotencyLayer::new(
        Locks::in_memory(),
        records,
        crate::support::by_user,
    );
    let (service, _) = counted(&layer.expiry(hour));
    assert_eq!(send(&service, payment("a1")).await.body, "run 1");
    assert_eq!(send(&service, payment("a2")).await.status, 503, "512 bytes and an answer are full");
    assert!(send(&service, payment("a1")).await.is_replayed());
    tokio::time::sleep(hour).await;
    assert_eq!(send(&service, payment("a2")).await.body, "run 2");
}
