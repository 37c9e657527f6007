//! `RLock` and `RFencedLock` on the same name: they know no queue, but they exclude us and we them.

use crate::bench::{Bench, KEY, TOKEN, granted, release};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_lock_that_is_not_fair_excludes_us_and_is_excluded() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let locks = bench.locks.clone();
    assert_eq!(jvm.run("plain-lock", "a", "").await, "ok");
    assert!(locks.try_lock(KEY).await.expect("answered").is_none());
    let waiting = bench.wait(&locks).await;
    assert_eq!(jvm.run("plain-unlock", "a", "").await, "ok");
    let guard = granted(waiting).await;
    assert_eq!(jvm.run("plain-try", "a", "").await, "false");
    release(guard).await;
    assert_eq!(jvm.run("plain-try", "a", "").await, "true");
    assert!(locks.try_lock(KEY).await.expect("answered").is_none());
    assert_eq!(jvm.run("plain-unlock", "a", "").await, "ok");
    bench.nothing_is_left().await;
}

/// The guide says so, and gives the advice to use another name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_read_write_lock_of_a_jvm_does_not_respect_our_hold() {
    let bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let _guard = bench.hold().await;
    assert_eq!(jvm.run("plain-try", "a", "").await, "false");
    assert_eq!(jvm.run("write-try", "a", "").await, "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn a_fenced_lock_that_is_deleted_starts_at_one_and_our_tokens_rise_all_the_same() {
    let bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let guard = bench.hold().await;
    let before = guard.fencing_token();
    release(guard).await;
    assert_eq!(jvm.run("fenced-delete", "a", "").await, "true");
    assert_eq!(jvm.run("fenced-lock", "a", "").await, "1");
    assert_eq!(jvm.run("fenced-unlock", "a", "").await, "ok");
    let guard = bench.hold().await;
    assert!(guard.fencing_token() > before);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Java and Maven: scripts/test --interop"]
async fn tokens_rise_from_ours_to_a_fenced_lock_s_and_back_and_are_not_forgotten() {
    let mut bench = Bench::start().await;
    let mut jvm = bench.jvm().await;
    let mut last = 0;
    for _ in 0..5 {
        let theirs: u64 = jvm.run("fenced-lock", "a", "").await.parse().expect("a token");
        assert!(theirs > last, "{theirs} after {last}");
        assert_eq!(jvm.run("fenced-unlock", "a", "").await, "ok");
        let guard = bench.hold().await;
        last = guard.fencing_token().get();
        assert!(last > theirs, "{last} after {theirs}");
        assert_eq!(jvm.run("token", "a", "").await, last.to_string());
        release(guard).await;
        // A minute has passed, as it were: nothing takes the counter away.
        assert_eq!(bench.redis.pttl(TOKEN).await, -1);
    }
}
