//! An application record whose key is also the name of a lock: found by outsiders in this project,
//! which gave the record a lease and so deleted it.

use std::time::Duration;

use lock_tests::{eventually, lock_key};
use lockcore::{LockError, LockErrorKind, Locks};
use redis::cmd;

use crate::common::{SHORT, SOON, held, setup, soon};

const USER: &str = "user:42";

#[track_caller]
fn is_refused<T>(result: Result<T, LockError>) {
    let error = result.err().expect("the name is an application's");
    assert_eq!(error.kind(), LockErrorKind::WrongType);
    assert!(
        error.to_string().contains("hash") && error.to_string().contains("namespace"),
        "{error}"
    );
    assert!(!error.is_retryable());
}

fn record() -> [(&'static str, &'static str); 2] {
    [("name", "Ada"), ("", "an empty field")]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_an_application_and_a_lock_of_its_name_know_nothing_of_each_other() {
    let mut setup = setup().await;
    let () = setup.redis.ask(cmd("HSET").arg(USER).arg(&record())).await;
    let before = (setup.redis.hash(USER).await, setup.redis.pttl(USER).await);
    let locks = setup.direct().await;
    let short = || locks.key(USER).lease(Duration::from_millis(200));
    let guard = short().try_lock().await.expect("an answer").expect("free");
    assert!(!locks.inspect(USER).await.expect("an inspection").holders.is_empty());
    // Longer than the lease: it is renewed.
    tokio::time::sleep(Duration::from_millis(400)).await;
    guard.release().await.expect("held until now");
    let leaked = short().lock().await.expect("free").leak();
    tokio::time::sleep_until(leaked).await;
    let read = locks.read(USER).await.expect("free");
    assert!(locks.force_release(USER).await.expect("an answer"));
    drop(read);
    locks.shutdown(Duration::from_secs(5)).await;
    assert_eq!((setup.redis.hash(USER).await, setup.redis.pttl(USER).await), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_an_application_survives_every_call_on_a_lock_of_its_name_beside_jvms() {
    let mut setup = setup().await;
    let () = setup.redis.ask(cmd("HSET").arg(USER).arg(&record())).await;
    let before = (setup.redis.hash(USER).await, setup.redis.pttl(USER).await);
    let url = setup.server.url();
    let locks = Locks::builder().redisson_peers(true).connect(&url).await.expect("connected");
    let short = || locks.key(USER).lease(Duration::from_millis(200));

    is_refused(short().try_lock().await);
    is_refused(short().wait(Duration::from_secs(10)).lock().await);
    is_refused(locks.force_release(USER).await);
    is_refused(locks.inspect(USER).await);
    // Longer than the lease that the record was given.
    tokio::time::sleep(Duration::from_millis(400)).await;
    locks.shutdown(Duration::from_secs(5)).await;
    assert_eq!((setup.redis.hash(USER).await, setup.redis.pttl(USER).await), before);
    assert_eq!(setup.redis.keys("*").await, [USER]);

    // In a namespace the same name is a separate lock.
    let builder = Locks::builder().namespace("shop").redisson_peers(true);
    let shop = builder.connect(&url).await.expect("connected");
    let guard = shop.try_lock(USER).await.expect("no error").expect("free");
    guard.release().await.expect("it lasted");
    assert_eq!(setup.redis.hash(USER).await, before.0);
}

// The node's connection is not desynchronised: only one of its locks belongs to another program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_and_touches_at_another_program_s_key_cost_no_connection() {
    for peers in [false, true] {
        let mut setup = setup().await;
        let builder = Locks::builder().redisson_peers(peers);
        let locks = builder.connect(&setup.server.url()).await.expect("connected");
        let other = held(&locks, "another lock", SHORT).await;
        let guard = held(&locks, USER, SHORT).await;
        // Longer than the time between two touches.
        let waiting = tokio::spawn(locks.key(USER).wait(Duration::from_secs(7)).lock());
        eventually("it waits", SOON, async || locks.status().waiting == 1).await;
        let accepted = async |redis: &mut lock_tests::Raw| {
            let info = redis.info("stats").await;
            let line = info.lines().find(|line| line.starts_with("total_connections_received:"));
            line.expect("it is counted").to_owned()
        };
        let before = accepted(&mut setup.redis).await;
        let key = if peers { USER.to_owned() } else { lock_key(USER) };
        let () = setup.redis.ask(cmd("SET").arg(&key).arg("a cache entry")).await;
        soon("the loss", guard.lost()).await;
        let error = soon("an answer", waiting).await.expect("no panic").expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::Timeout);
        soon("the release", other.release()).await.expect("it was renewed beside the lost one");
        assert_eq!(accepted(&mut setup.redis).await, before);
        assert_eq!(setup.redis.get(&key).await.as_deref(), Some("a cache entry"));
    }
}
