//! Names and namespaces.

use std::time::Duration;

use futures_util::future::join_all;
use lock_tests::{COUNTER, Raw, eventually};
use lockcore::{LockErrorKind, LockGuard, LockKey, Locks};

use crate::backend::Backend;

on_every_store!(
    distinct_names_are_distinct_locks,
    a_foreign_name_is_refused_where_no_queue_is_shared_with_jvms;
    not_on_a_cluster:
    a_name_is_its_own_in_each_namespace,
    a_foreign_name_is_outside_every_namespace,
);

async fn distinct_names_are_distinct_locks(backend: &Backend) {
    let locks = backend.node().await;
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "a:b",
        "a:",
        ":a",
        "{a}",
        "{a",
        "a}",
        "}a{",
        "{}a",
        "%7Ba%7D",
        "%257B",
        "{",
        "%7B",
        "%",
        "%25",
        "%%",
        "größe",
        "gröſse",
        "日本",
        "a\u{301}",
        "á",
        "🔒",
        "*",
        "a?",
        "[a]",
        "\\",
        "\"",
        "'",
        "lock:a",
        "lock:{a}",
        "lock:{a}:queue",
        "a:queue",
        "a}:queue",
        "lock:{a}:gone",
        "lock:tokens",
        "tokens",
    ];
    let mut guards = Vec::new();
    for name in names {
        let guard = locks.try_lock(name).await.expect("a name").unwrap_or_else(|| {
            panic!("{name:?} is the same lock as one of {:?}", &names[..guards.len()])
        });
        guards.push(guard);
    }
    for guard in guards {
        guard.release().await.expect("held until now");
    }
}

async fn a_name_is_its_own_in_each_namespace(backend: &Backend) {
    let plain = backend.node().await;
    let shop = backend.build(Locks::builder().namespace("shop")).await;
    let shop_too = backend.build(Locks::builder().namespace("shop")).await;
    let bank = backend.build(Locks::builder().namespace("bank")).await;
    let one = plain.lock("key").await.expect("free");
    let two = shop.try_lock("key").await.expect("an answer").expect("another lock");
    let three = bank.try_lock("key").await.expect("an answer").expect("another lock");
    assert_eq!((one.name(), two.name(), three.name()), ("key", "shop:key", "bank:key"));
    assert_eq!([&one, &two, &three].map(|guard| guard.key()), ["key"; 3]);
    assert!(shop_too.try_lock("key").await.expect("an answer").is_none());
    for guard in [one, two, three] {
        guard.release().await.expect("held until now");
    }
}

async fn a_foreign_name_is_outside_every_namespace(backend: &Backend) {
    let with_peers = || Locks::builder().redisson_peers(true);
    let plain = backend.build(with_peers()).await;
    let shop = backend.build(with_peers().namespace("shop")).await;
    let key = LockKey::foreign("{tenant}:x").expect("a name");
    let guard = shop.lock(&key).await.expect("free");
    assert_eq!(guard.key(), "{tenant}:x");
    assert!(plain.try_lock(&key).await.expect("an answer").is_none());
    assert!(plain.try_lock("{tenant}:x").await.expect("an answer").is_some());
    guard.release().await.expect("held until now");
}

async fn a_foreign_name_is_refused_where_no_queue_is_shared_with_jvms(backend: &Backend) {
    let locks = backend.node().await;
    let key = LockKey::foreign("{tenant}:x").expect("a name");
    let refused = locks.lock(&key).await.expect_err("whose key would it be?");
    assert_eq!(refused.kind(), LockErrorKind::Unsupported);
    assert!(refused.to_string().contains("redisson_peers"), "{refused}");
    assert_eq!(locks.status().waiting, 0);
}

// L3: many free locks leave only the token counter, which they share.
#[tokio::test]
async fn locks_that_are_free_leave_nothing_but_the_counter_of_tokens() {
    let backend = Backend::redis();
    let Backend::Redis(server) = &backend else { unreachable!() };
    let locks = backend.build(Locks::builder().namespace("shop")).await;
    for number in 0..50 {
        let guard = locks.lock(format!("order:{{{number}}}")).await.expect("free");
        guard.release().await.expect("held until now");
    }
    let mut redis = Raw::connect(&server.url()).await;
    assert_eq!(redis.keys("*").await, [COUNTER]);
}

// A renewal leaves no key either.
#[tokio::test]
async fn a_thousand_locks_that_were_renewed_leave_nothing_but_the_counter_of_tokens() {
    const LEASE: Duration = Duration::from_secs(3);
    let backend = Backend::redis();
    let Backend::Redis(server) = &backend else { unreachable!() };
    let locks = backend.build(Locks::builder().namespace("shop")).await;
    let lock = |number| locks.key(format!("order:{number}")).lease(LEASE).lock();
    let guards = join_all((0..1_000).map(lock)).await;
    let guards: Vec<_> = guards.into_iter().map(|guard| guard.expect("free")).collect();
    let first = guards.iter().map(|guard| guard.deadline()).max().expect("some");
    let renewed = async || guards.iter().all(|guard| guard.deadline() > first);
    eventually("each hold is renewed", Duration::from_secs(10), renewed).await;
    for released in join_all(guards.into_iter().map(LockGuard::release)).await {
        released.expect("held until now");
    }
    let mut redis = Raw::connect(&server.url()).await;
    assert_eq!(redis.keys("*").await, [COUNTER]);
}
