//! Redis keys whose value is not a record of this version: the request is refused, and the value
//! stays.

use std::collections::BTreeMap;

use bytes::Bytes;
use lock_idempotency::{Answer, Outcome, ReplayStore as _, StoreErrorKind};
use lock_tests::{Raw, RedisServer};
use redis::cmd;

use crate::support::{finish, key, replays, start};

#[tokio::test]
async fn what_is_no_record_is_refused_and_nothing_of_it_is_changed() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let store = replays(&server);
    let name = format!("shop:replay:{}", key("a1"));
    let large = vec![b'x'; 10 << 20];
    let set = |field: &str, value: &[u8]| {
        let mut command = cmd("HSET");
        command.arg(&name).arg(field).arg(value);
        command
    };
    let remove = |field: &str| {
        let mut command = cmd("HDEL");
        command.arg(&name).arg(field);
        command
    };
    let changes = [
        ("newer", set("version", b"2")),
        ("no version", remove("version")),
        ("no token", remove("token")),
        ("a token that is no number", set("token", b"x")),
        ("no time", remove("started")),
        ("no fingerprint", remove("fingerprint")),
        ("a cut fingerprint", set("fingerprint", b"abc")),
        ("a cut outcome", set("outcome", &finish(5, "paid").outcome.encode()[..9])),
        ("an outcome of a newer kind", set("outcome", b"\x09\x00\xc8")),
        ("a large outcome, whole as it is", set("outcome", &large_outcome())),
        ("a large field", set("fingerprint", &large)),
    ];
    for (what, change) in changes {
        redis.flush_all().await;
        store.start(&key("a1"), &start(5, true)).await.unwrap();
        redis.ask::<i64>(&change).await;
        is_refused_unchanged(&store, &mut redis, &name, what).await;
    }
    redis.flush_all().await;
    redis.ask::<i64>(cmd("RPUSH").arg(&name).arg("another program's")).await;
    is_refused_unchanged(&store, &mut redis, &name, "another type").await;
}

/// Returns the encoded outcome of a response of 10 MiB, which is too large.
fn large_outcome() -> Bytes {
    let (parts, ()) = http::Response::new(()).into_parts();
    Outcome::Kept(Answer::new(&parts, vec![b'x'; 10 << 20].into())).encode()
}

async fn is_refused_unchanged(
    store: &lock_idempotency::RedisReplays,
    redis: &mut Raw,
    name: &str,
    what: &str,
) {
    let before = content(redis, name).await;
    let looked_up = store.look_up(&key("a1")).await.expect_err(what);
    assert_eq!(looked_up.kind(), StoreErrorKind::Malformed, "{what}: {looked_up}");
    let started = store.start(&key("a1"), &start(6, true)).await.expect_err(what);
    assert_eq!(started.kind(), StoreErrorKind::Malformed, "{what}: {started}");
    let after = content(redis, name).await;
    assert!(before == after, "{what}: it was changed");
}

/// Returns the fields of the hash at this key, or the elements of the list.
async fn content(redis: &mut Raw, name: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    match redis.try_ask(cmd("HGETALL").arg(name)).await {
        Ok(fields) => fields,
        Err(_) => {
            redis.list(name).await.into_iter().map(|one| (one.into_bytes(), vec![])).collect()
        }
    }
}
