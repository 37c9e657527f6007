//! The result of each store operation, in memory and on Redis.

use lock_idempotency::{Finished, MemoryReplays, Outcome, Record, ReplayStore, Started};
use lock_tests::acl::set_user;
use lock_tests::{LIMIT, Proxy, Raw, RedisServer, eventually};

use crate::support::{fingerprint, finish, key, replays, replays_at, start, token};

/// Returns the token and the outcome of a record, which do not depend on the clock.
fn seen(record: Option<Record>) -> Option<(u64, Option<Outcome>)> {
    record.map(|record| (record.token().get(), record.outcome().cloned()))
}

pub(crate) async fn every_step(store: &dyn ReplayStore) {
    let k = key("a1");
    let answer = |body| finish(0, body).outcome;
    assert_eq!(store.look_up(&k).await.unwrap(), None);
    assert_eq!(store.finish(&k, &finish(5, "x")).await.unwrap(), Finished::Forgotten);
    assert_eq!(store.look_up(&k).await.unwrap(), None, "without a start nothing is written");

    // A start, which is repeated with the same token.
    for _ in 0..2 {
        assert_eq!(
            store.start(&k, &start(5, true)).await.unwrap(),
            Started::Begun { again: false }
        );
        let record = store.look_up(&k).await.unwrap().unwrap();
        assert_eq!(*record.fingerprint(), fingerprint(b"500 cents"));
        assert!(record.started().elapsed().unwrap().as_secs() < 600);
        assert_eq!(seen(Some(record)), Some((5, None)));
    }
    // Further starts: with a lower token, of another request, and with a higher token.
    assert_eq!(store.start(&k, &start(4, true)).await.unwrap(), Started::Overtaken);
    let mut other = start(6, true);
    other.fingerprint = fingerprint(b"900 cents");
    let found = store.start(&k, &other).await.unwrap();
    assert!(
        matches!(found, Started::Found(record) if seen(Some(record.clone())) == Some((5, None)))
    );
    let found = store.start(&k, &start(6, false)).await.unwrap();
    assert!(matches!(found, Started::Found(record) if record.token() == token(5)));
    store.end(&k, token(6)).await.unwrap();
    assert_eq!(seen(store.look_up(&k).await.unwrap()), Some((5, None)), "nothing is written");
    assert_eq!(store.start(&k, &start(6, true)).await.unwrap(), Started::Begun { again: true });

    // With the lower token of an overtaken request, the record can be neither finished nor removed.
    assert_eq!(store.finish(&k, &finish(5, "late")).await.unwrap(), Finished::Overtaken);
    store.end(&k, token(5)).await.unwrap();
    assert_eq!(seen(store.look_up(&k).await.unwrap()), Some((6, None)));
    assert_eq!(store.finish(&k, &finish(6, "paid")).await.unwrap(), Finished::Stored);
    let paid = Some((6, Some(answer("paid"))));
    assert_eq!(seen(store.look_up(&k).await.unwrap()), paid);

    // An outcome stays in the record, regardless of later operations.
    assert_eq!(store.finish(&k, &finish(6, "other")).await.unwrap(), Finished::Stored);
    assert_eq!(store.finish(&k, &finish(7, "other")).await.unwrap(), Finished::Overtaken);
    store.end(&k, token(6)).await.unwrap();
    for number in [5, 6, 7] {
        let found = store.start(&k, &start(number, true)).await.unwrap();
        assert!(matches!(found, Started::Found(record) if seen(Some(record.clone())) == paid));
    }
    assert_eq!(seen(store.look_up(&k).await.unwrap()), paid);

    // A request that did nothing leaves no record.
    let k = key("a2");
    assert_eq!(store.start(&k, &start(8, true)).await.unwrap(), Started::Begun { again: false });
    store.end(&k, token(8)).await.unwrap();
    assert_eq!(store.look_up(&k).await.unwrap(), None);
}

#[tokio::test]
async fn in_memory() {
    every_step(&MemoryReplays::new()).await;
}

#[tokio::test]
async fn on_redis() {
    let server = RedisServer::start();
    every_step(&replays(&server)).await;
}

// A Cluster client sends a command again whose connection broke before the reply.
#[tokio::test]
async fn on_redis_a_start_that_runs_twice_reports_an_earlier_attempt_twice() {
    let server = RedisServer::start();
    let store = replays(&server);
    let k = key("a1");
    for (number, again) in [(5, false), (5, false), (6, true), (6, true), (7, true), (7, true)] {
        let begun = store.start(&k, &start(number, true)).await.unwrap();
        assert_eq!(begun, Started::Begun { again }, "{number}");
    }
    store.end(&k, token(7)).await.unwrap();
    assert_eq!(store.start(&k, &start(8, true)).await.unwrap(), Started::Begun { again: false });
}

// The reply to the start is lost with a connection that was open before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_a_start_whose_reply_is_lost_is_repeated_and_reports_the_earlier_attempt() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let store = replays_at(&proxy.url());
    let k = key("a1");
    store.start(&k, &start(5, true)).await.unwrap();
    proxy.hold_replies().await;
    let starting = tokio::spawn({
        let (store, k) = (store.clone(), k);
        async move { store.start(&k, &start(6, true)).await }
    });
    let direct = replays(&server);
    eventually("the start has run", LIMIT, async || {
        direct.look_up(&k).await.unwrap().is_some_and(|record| record.token() == token(6))
    })
    .await;
    proxy.cut_all().await;
    proxy.release_replies();
    assert_eq!(starting.await.unwrap().unwrap(), Started::Begun { again: true });
}

#[tokio::test]
async fn on_redis_for_a_user_with_only_the_documented_rights() {
    const DOCUMENTATION: &str = include_str!("../../src/store/redis.rs");
    let rules = DOCUMENTATION.lines().find_map(|line| line.strip_prefix("/// ~idempotency:* "));
    let server = RedisServer::start();
    let mut set = set_user("app", |_| false);
    set.arg("~shop:replay:*").arg(rules.unwrap().split(' ').collect::<Vec<_>>());
    Raw::connect(&server.url()).await.ask::<()>(&set).await;
    let url = server.url().replace("redis://", "redis://app:PASSWORD@");
    every_step(&replays_at(&url)).await;
}

#[tokio::test]
async fn on_redis_each_record_is_one_key_that_expires() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let store = replays(&server);
    store.start(&key("a1"), &start(5, true)).await.unwrap();
    let name = format!("shop:replay:{}", key("a1"));
    assert_eq!(redis.keys("*").await, std::slice::from_ref(&name));
    assert!((59_000..=60_000).contains(&redis.pttl(&name).await));
    store.finish(&key("a1"), &finish(5, "paid")).await.unwrap();
    assert_eq!(redis.keys("*").await, std::slice::from_ref(&name));
    assert!((89_000..=90_000).contains(&redis.pttl(&name).await), "it begins anew");
    store.finish(&key("a1"), &finish(5, "paid")).await.unwrap();
    let mut brief = start(9, true);
    brief.expiry = std::time::Duration::ZERO;
    store.start(&key("a2"), &brief).await.unwrap();
}

#[tokio::test]
async fn a_server_that_has_lost_its_scripts_learns_them_again() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let store = replays(&server);
    store.start(&key("a1"), &start(5, true)).await.unwrap();
    redis.flush_scripts().await;
    assert_eq!(store.finish(&key("a1"), &finish(5, "paid")).await.unwrap(), Finished::Stored);
}
