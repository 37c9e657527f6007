//! A server that refuses operations, on each connection in the same way.

use lock_idempotency::{ReplayStore as _, StoreErrorKind};
use lock_tests::{Proxy, Raw, RedisServer};
use redis::{Cmd, cmd};

use crate::support::{finish, key, replays_at, start};

fn set(option: &str, value: u64) -> Cmd {
    cmd("CONFIG").arg("SET").arg(option).arg(value).take()
}

fn right(rule: &str) -> Cmd {
    cmd("ACL").arg("SETUSER").arg("default").arg(rule).take()
}

// Once, each refusal gave up two connections, and lookups waited until new ones were open.
#[tokio::test]
async fn a_refused_operation_keeps_the_connection_and_records_are_still_looked_up() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let mut redis = Raw::connect(&server.url()).await;
    let replays = replays_at(&proxy.url());
    let (stored, refused) = (key("a1"), key("a2"));
    replays.start(&stored, &start(1, true)).await.unwrap();
    replays.finish(&stored, &finish(1, "paid")).await.unwrap();
    for (refuse, permit) in [
        (set("min-replicas-to-write", 1), set("min-replicas-to-write", 0)),
        (set("maxmemory", 1), set("maxmemory", 0)),
        (right("-hset"), right("+hset")),
    ] {
        redis.ask::<()>(&refuse).await;
        for _ in 0..10 {
            let error = replays.start(&refused, &start(2, true)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
        let record = replays.look_up(&stored).await.unwrap().expect("it is stored");
        assert!(record.outcome().is_some());
        assert_eq!(proxy.accepted(), 1, "{refuse:?}");
        redis.ask::<()>(&permit).await;
    }
    replays.start(&refused, &start(2, true)).await.unwrap();
}
