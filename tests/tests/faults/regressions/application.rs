//! An application's record whose key is also the name of a lock: found by outsiders in this
//! project, which gave it a lease and so deleted it.

use std::time::Duration;

use lockcore::{LockError, LockErrorKind, Locks};
use redis::cmd;

use crate::common::setup;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_of_an_application_survives_every_call_on_a_lock_of_its_name() {
    for peers in [false, true] {
        let mut setup = setup().await;
        let record = [("name", "Ada"), ("", "an empty field")];
        let () = setup.redis.ask(cmd("HSET").arg(USER).arg(&record)).await;
        let before = (setup.redis.hash(USER).await, setup.redis.pttl(USER).await);
        let url = setup.server.url();
        let locks = Locks::builder().redisson_peers(peers).connect(&url).await.expect("connected");
        let short = || locks.key(USER).lease(Duration::from_millis(200));

        is_refused(short().try_lock().await);
        is_refused(short().wait(Duration::from_secs(10)).lock().await);
        is_refused(locks.force_release(USER).await);
        is_refused(locks.inspect(USER).await);
        // Longer than the lease that it was given.
        tokio::time::sleep(Duration::from_millis(400)).await;
        locks.shutdown(Duration::from_secs(5)).await;
        assert_eq!((setup.redis.hash(USER).await, setup.redis.pttl(USER).await), before);
        assert_eq!(setup.redis.keys("*").await, [USER]);

        // In a namespace the same name is a lock of its own.
        let url = setup.server.url();
        let shop = Locks::builder().namespace("shop").connect(&url).await.expect("connected");
        let guard = shop.try_lock(USER).await.expect("no error").expect("free");
        guard.release().await.expect("it lasted");
        assert_eq!(setup.redis.hash(USER).await, before.0);
    }
}
