//! Names and namespaces.

use lock_tests::Raw;
use lockcore::{LockKey, Locks};

use crate::backend::Backend;

on_every_store!(
    distinct_names_are_distinct_locks,
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
        "redisson_lock_queue:{a}",
        "redisson_lock_token:{a}",
        "redisson_lock_timeout:{a}",
        "redisson_lock_gone:{a}:x",
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
    assert_eq!((one.key(), two.key(), three.key()), ("key", "shop:key", "bank:key"));
    assert!(shop_too.try_lock("key").await.expect("an answer").is_none());
    for guard in [one, two, three] {
        guard.release().await.expect("held until now");
    }
}

async fn a_foreign_name_is_outside_every_namespace(backend: &Backend) {
    let plain = backend.node().await;
    let shop = backend.build(Locks::builder().namespace("shop")).await;
    let key = LockKey::foreign("{tenant}:x").expect("a name");
    let guard = shop.lock(&key).await.expect("free");
    assert_eq!(guard.key(), "{tenant}:x");
    assert!(plain.try_lock(&key).await.expect("an answer").is_none());
    assert!(plain.try_lock("{tenant}:x").await.expect("an answer").is_some());
    guard.release().await.expect("held until now");
}

// L3: all that is left of many locks are the tokens, and they expire.
#[tokio::test]
async fn locks_that_are_free_leave_only_token_keys_that_expire() {
    let backend = Backend::redis();
    let Backend::Redis(server) = &backend else { unreachable!() };
    let locks = backend.build(Locks::builder().namespace("shop")).await;
    for number in 0..50 {
        let guard = locks.lock(format!("order:{{{number}}}")).await.expect("free");
        guard.release().await.expect("held until now");
    }
    let mut redis = Raw::connect(&server.url()).await;
    let keys = redis.keys("*").await;
    assert_eq!(keys.len(), 50, "{keys:?}");
    for key in keys {
        assert!(key.starts_with("redisson_lock_token:{shop:order:%7B"), "{key}");
        assert!((1..=125_000).contains(&redis.pttl(&key).await), "{key}");
    }
}
