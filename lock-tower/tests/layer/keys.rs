//! Refused keys, and several keys at once.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use lock_tower::{Cause, ExtractKey, ExtractKeyExt as _, KeyError, Keys, LockError, LockLayer};
use lockcore::Locks;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

#[tokio::test]
async fn an_error_chain_of_a_refusal_says_each_thing_once() {
    let read = Locks::in_memory().read("a").await.unwrap();
    let downgrade = read.downgrade().await.unwrap_err();
    let empty = || lockcore::LockKey::new("").unwrap_err();
    let errors: [Box<dyn Error>; 5] = [
        Box::new(LockError::from(lockcore::LockError::from(empty()))),
        Box::new(LockError::from(KeyError::new("there is no account"))),
        Box::new(LockError::from(KeyError::from(empty()))),
        Box::new(KeyError::from(empty())),
        Box::new(downgrade),
    ];
    for error in errors {
        assert!(error.source().is_none(), "{error}");
    }
}

#[tokio::test]
async fn a_bad_key_is_refused_and_leaves_nothing_behind() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), |key: &Option<String>| {
        key.clone().ok_or(KeyError::new("there is none"))
    });
    let service = layer.layer(service_fn(|_: Option<String>| async move { Ok::<_, BoxError>(()) }));
    let bad = [None, Some(String::new()), Some("x".repeat(513)), Some("a\nb".to_owned())];
    for key in bad {
        let error = service.clone().oneshot(key).await.unwrap_err();
        assert_eq!(error.downcast_ref::<LockError>().unwrap().cause(), Cause::BadKey);
    }
    let status = locks.status();
    assert_eq!((status.waiting, status.holding, status.releasing), (0, 0, 0));
    service.oneshot(Some("x".repeat(512))).await.unwrap();
}

#[tokio::test]
async fn several_keys_are_acquired_in_one_order_so_that_nobody_deadlocks() {
    let locks = Locks::in_memory();
    let from = |pair: &(u8, u8)| format!("account:{}", pair.0);
    let to = |pair: &(u8, u8)| Some(format!("account:{}", pair.1));
    let layer = LockLayer::new(locks.clone(), (from, to)).wait(Duration::from_secs(20));
    let service = layer.layer(service_fn(|_: (u8, u8)| async move {
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(())
    }));
    let transfers = (0..200u8).map(|n| (n % 3, (n / 3) % 3));
    let calls = transfers.map(|pair| tokio::spawn(service.clone().oneshot(pair)));
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().expect("no deadlock");
    }
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn all_locks_of_a_request_are_held_together_and_seen_through_its_handle() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), |(): &()| Keys::one("b").and("a").and("b"));
    let inner = locks.clone();
    let service = layer.layer(service_fn(move |()| {
        let locks = inner.clone();
        async move {
            let busy = [locks.try_lock("a").await?.is_none(), locks.try_lock("b").await?.is_none()];
            Ok::<_, BoxError>(busy)
        }
    }));
    assert_eq!(service.oneshot(()).await.unwrap(), [true, true]);
    assert_eq!(locks.status().holding, 0);
}

#[tokio::test]
async fn who_waits_for_the_second_key_and_goes_releases_the_first() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), |(): &()| Keys::one("a").and("b"));
    let service = layer.layer(service_fn(|()| async move { Ok::<_, BoxError>(()) }));
    let guard = locks.lock("b").await.unwrap();
    let call = tokio::spawn(service.clone().oneshot(()));
    lock_tests::queued(&locks, "b", 1).await;
    assert!(locks.try_lock("a").await.unwrap().is_none());
    call.abort();
    lock_tests::free(&locks, "a").await;
    drop(guard);
    lock_tests::free(&locks, "b").await;
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_for_all_keys_together() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), |(): &()| Keys::one("a").and("b"));
    let service = layer
        .wait(Duration::from_secs(4))
        .layer(service_fn(|()| async move { Ok::<_, BoxError>(()) }));
    let a = locks.lock("a").await.unwrap();
    let _b = locks.lock("b").await.unwrap();
    let start = tokio::time::Instant::now();
    let call = tokio::spawn(service.oneshot(()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(a);
    assert!(call.await.unwrap().is_err());
    assert_eq!(start.elapsed().as_secs(), 4);
}

#[tokio::test]
async fn a_prefix_comes_before_every_name() {
    let locks = Locks::in_memory();
    let key = (|(): &()| Keys::one("1").and("2")).prefix("order");
    let inner = locks.clone();
    let service = LockLayer::new(locks, key).layer(service_fn(move |()| {
        let locks = inner.clone();
        async move { Ok::<_, BoxError>(locks.try_lock("order:2").await?.is_none()) }
    }));
    assert!(service.oneshot(()).await.unwrap());
}

#[test]
fn a_prefix_that_could_meet_another_one_is_refused_and_the_server_is_told_why() {
    // The prefix `a` with the name `b:c`, and the prefix `a:b` with the name `c`, would be the same
    // key.
    for prefix in ["a:b", ""] {
        let key = (|(): &()| "c").prefix(prefix);
        let refused = LockError::from(key.extract_key(&()).unwrap_err());
        assert_eq!(
            refused.cause(),
            Cause::Misconfigured,
            "{prefix:?}: it is not the client's fault"
        );
        let said = refused.to_string();
        assert!(said.contains("colon") && said.contains(&format!("{prefix:?}")), "{said}");
    }
    for prefix in [":", "a::"] {
        (|(): &()| "c").prefix(prefix).extract_key(&()).expect_err("it has one colon too many");
    }
    // A prefix with a colon at the end, as in the names, is accepted.
    let keys = (|(): &()| "c").prefix("order:").extract_key(&()).unwrap().unwrap();
    assert_eq!(keys.names().collect::<Vec<_>>(), ["order:c"]);
    let key = (|(): &()| "b:c").prefix("a").prefix("shop");
    let keys = key.extract_key(&()).unwrap().unwrap();
    assert_eq!(keys.names().collect::<Vec<_>>(), ["shop:a:b:c"]);
}

#[test]
fn an_extractor_may_be_shared_or_chosen_while_the_program_runs() {
    fn names<Req>(key: impl ExtractKey<Req>, request: &Req) -> Vec<String> {
        let keys = key.extract_key(request).unwrap().unwrap();
        keys.names().map(str::to_owned).collect()
    }
    let by_id = |id: &u64| format!("order:{id}");
    assert_eq!(names(Arc::new(by_id), &7), ["order:7"]);
    let shared: Arc<dyn ExtractKey<u64> + Send + Sync> = Arc::new(by_id);
    assert_eq!(names(shared.clone().prefix("shop"), &7), ["shop:order:7"]);
    let chosen: Box<dyn ExtractKey<u64> + Send + Sync> = match names(shared, &7).len() {
        1 => Box::new(by_id),
        _ => Box::new(|_: &u64| "all"),
    };
    assert_eq!(names(chosen, &7), ["order:7"]);
}

#[tokio::test]
async fn keys_are_made_of_names_and_of_errors() {
    assert_eq!(Keys::from("a").names().collect::<Vec<_>>(), ["a"]);
    let key = |(): &()| Keys::from(Err::<String, _>(KeyError::new("there is none"))).and("b");
    let layer = LockLayer::new(Locks::in_memory(), key.prefix("shop"));
    let service = layer.layer(service_fn(|()| async move { Ok::<_, BoxError>(()) }));
    let error = service.oneshot(()).await.unwrap_err();
    let error = error.downcast_ref::<LockError>().unwrap();
    assert_eq!(
        (error.cause(), error.to_string().as_str()),
        (Cause::BadKey, "the lock's key: there is none")
    );
}
