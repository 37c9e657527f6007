//! `appendfsync always`, on any server with WAITAOF: each kind of grant, and what may interrupt it.

use std::time::Duration;

use lock_tests::{Clustered, CommandStats, RedisOptions, Request, Watched, eventually};
use lockcore::{HoldState, LockErrorKind, Locks};
use proto::Topology;
use proto::wire::scripts;
use redis::cmd;
use tokio::task::JoinHandle;

use crate::common::{SOON, Setup, fsync, refused_and_given_back, setup, soon};

/// Starts an attempt; on return it has its position in the queue.
async fn queued<T: Send + 'static>(
    setup: &mut Setup,
    waiting: impl IntoFuture<Output = T, IntoFuture: Send + 'static>,
    place: usize,
) -> JoinHandle<T> {
    let waiting = tokio::spawn(waiting.into_future());
    eventually("it waits", SOON, async || setup.redis.queue("key").await.len() == place).await;
    waiting
}

/// Switches the append-only file off, which WAITAOF then reports.
async fn switch_off(setup: &mut Setup) {
    setup.redis.configure("appendonly", "no").await;
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_free_lock_a_try_reads_permits_and_a_set_are_on_the_disk_when_they_are_granted() {
    let setup = setup("always").await;
    let locks = setup.node().await;
    let lock = soon("a guard", locks.lock("free")).await.expect("granted");
    let tried = soon("a guard", locks.try_lock("tried")).await.expect("granted");
    let read = soon("a guard", locks.read("read")).await.expect("granted");
    let permit = soon("a guard", locks.permit("permit", 3)).await.expect("granted");
    let set = soon("guards", locks.lock_all(["one", "two"])).await.expect("granted");
    for name in ["free", "tried", "read", "permit", "one", "two"] {
        assert!(setup.disk.has(&format!("lock:{{{name}}}")), "{name} is not on the disk");
    }
    drop((lock, tried, read, permit, set));
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_batch_waits_for_the_disk_once_and_a_hand_off_each_time() {
    let mut setup = setup("always").await;
    let [a, b] = [setup.node().await, setup.node_with(fsync().batch_limit(8)).await];
    let held = soon("a guard", a.lock("key")).await.expect("granted");
    let mut waiting = Vec::new();
    for place in 1..=3 {
        waiting.push(queued(&mut setup, b.lock("key"), place).await);
    }
    let before = CommandStats::read(&mut setup.redis).await;
    soon("a release", held.release()).await.expect("held");
    for one in waiting {
        drop(soon("a guard", one).await.expect("no panic").expect("handed over"));
    }
    let ran = CommandStats::read(&mut setup.redis).await.since(&before);
    assert_eq!(ran.calls("waitaof"), 1, "one WAITAOF for the batch");
    let held = soon("a guard", a.lock("key")).await.expect("granted");
    let waiting = queued(&mut setup, b.lock("key"), 1).await;
    soon("a release", held.release()).await.expect("held");
    drop(soon("a guard", waiting).await.expect("no panic").expect("handed over"));
    let ran = CommandStats::read(&mut setup.redis).await.since(&before);
    assert_eq!(ran.calls("waitaof"), 3, "one WAITAOF for each hand-off");
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn each_member_of_a_batch_that_is_not_on_the_disk_is_refused() {
    let mut setup = setup("always").await;
    let [a, b] = [setup.node().await, setup.node_with(fsync().batch_limit(8)).await];
    let held = soon("a guard", a.lock("key")).await.expect("granted");
    let mut waiting = Vec::new();
    for place in 1..=3 {
        waiting.push(queued(&mut setup, b.lock("key"), place).await);
    }
    switch_off(&mut setup).await;
    soon("a release", held.release()).await.expect("held");
    for one in waiting {
        let answer = soon("an answer", one).await.expect("no panic");
        let error = answer.expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("set appendonly to yes"), "{error}");
    }
    eventually("all is given back", SOON, async || {
        b.inspect("key").await.expect("an inspection").holders.is_empty()
    })
    .await;
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_grant_after_the_file_was_switched_off_is_refused_and_given_back_until_it_is_on_again() {
    let mut setup = setup("always").await;
    let locks = setup.node().await;
    switch_off(&mut setup).await;
    for answer in [
        soon("an answer", locks.lock("key")).await.map(drop),
        soon("an answer", locks.try_lock("key")).await.map(drop),
        soon("an answer", locks.read("key")).await.map(drop),
        soon("an answer", locks.lock_all(["key", "other"])).await.map(drop),
    ] {
        refused_and_given_back(answer, &["WAITAOF", "set appendonly to yes"], &locks).await;
    }
    setup.redis.configure("appendonly", "yes").await;
    let granted =
        lock_tests::eventually_some("it is granted", SOON, async || locks.lock("key").await.ok());
    drop(granted.await);
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_renewal_that_is_not_on_the_disk_does_not_count_though_the_server_has_made_it() {
    const LEASE: Duration = Duration::from_secs(4);
    let mut setup = setup("always").await;
    let builder = fsync().request_timeout(Duration::from_millis(500));
    let locks = setup.node_with(builder).await;
    let guard = soon("a guard", locks.key("key").lease(LEASE).lock()).await.expect("granted");
    let first = guard.deadline();
    switch_off(&mut setup).await;
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.deadline(), first, "no renewal has counted");
    let left = setup.redis.hold("key").await.map_or(0, |(_, left)| left);
    assert!(left > 0, "the server has renewed it: {left} ms");
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_downgraded_hold_is_renewed_on_the_disk_and_lets_reads_in() {
    const LEASE: Duration = Duration::from_secs(4);
    let mut setup = setup("always").await;
    let builder = || fsync().request_timeout(Duration::from_millis(500));
    let [a, b] = [setup.node_with(builder()).await, setup.node_with(builder()).await];
    let write = soon("a guard", a.key("key").lease(LEASE).write()).await.expect("granted");
    let waiting = queued(&mut setup, b.read("key"), 1).await;
    let read = soon("a downgrade", write.downgrade()).await.expect("held");
    let other = soon("a guard", waiting).await.expect("no panic").expect("let in");
    let first = read.deadline();
    eventually("a renewal counts", SOON, async || read.deadline() > first).await;
    switch_off(&mut setup).await;
    soon("the loss", read.lost()).await;
    drop((read, other));
}

/// Matches requests with this command.
fn is(command: &'static str) -> impl Fn(&Request) -> bool + Send + 'static {
    move |request| request.is(command)
}

fn confirms(request: &Request) -> bool {
    let script = scripts::of_queue(Topology::Single).get("confirm").expect("there is one");
    request.mentions(&script.digest) || request.mentions(&script.source)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_lost_answer_to_waitaof_is_no_grant_until_another_one_comes() {
    let mut setup = setup("always").await;
    let locks = setup.node().await;
    drop(soon("a guard", locks.lock("warm")).await.expect("granted"));
    let before = CommandStats::read(&mut setup.redis).await;
    let lost = setup.proxy.lose_reply(is("WAITAOF"));
    let held = setup.proxy.hold_request(confirms);
    let waiting = tokio::spawn(locks.lock("key"));
    soon("the first confirmation", held.struck()).await;
    held.release();
    soon("the loss", lost.struck()).await;
    let guard = soon("a guard", waiting).await.expect("no panic").expect("granted in the end");
    let ran = CommandStats::read(&mut setup.redis).await.since(&before);
    assert!(ran.calls("waitaof") >= 2, "granted by the lost answer");
    assert_eq!(guard.state(), HoldState::Held);
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn with_replicas_required_each_needs_the_write_on_its_own_disk() {
    let mut setup = setup("always").await;
    let source = format!("127.0.0.1 {}", setup.server.port());
    let replica = RedisOptions::default().arg("replicaof", &source).start();
    let mut at_replica = lock_tests::Raw::connect(&replica.url()).await;
    let timeout = Duration::from_millis(1_500);
    eventually("the replica follows", SOON, async || {
        lock_tests::followers(&mut setup.redis, 1).await == 1
    })
    .await;
    let both = setup.node_with(fsync().require_replicas(1, timeout)).await;
    let answer = soon("an answer", both.lock("key")).await;
    refused_and_given_back(answer, &["the disks of 0 of 1 replicas"], &both).await;
    // The replica acknowledges, which is enough without the disk.
    let one = setup.node_with(Locks::builder().require_replicas(1, timeout)).await;
    drop(soon("a guard", one.lock("key")).await.expect("granted"));
    at_replica.configure("appendonly", "yes").await;
    let granted =
        lock_tests::eventually_some("its disk has it", SOON, async || both.lock("key").await.ok());
    drop(granted.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_new_primary_without_an_append_only_file_grants_nothing() {
    let options = RedisOptions::default().arg("appendonly", "yes").arg("appendfsync", "always");
    let watched = Watched::start(options).await;
    let locks = soon("a connection", fsync().connect(watched.url())).await.expect("accepted");
    drop(soon("a guard", locks.lock("key")).await.expect("granted"));
    for replica in [1, 2] {
        watched.raw(replica).await.configure("appendonly", "no").await;
    }
    let new = watched.fail_over(0).await;
    watched.until_named(new).await;
    let mut redis = watched.raw(new).await;
    let refusal =
        lock_tests::eventually_some("the new primary refuses", SOON, async || {
            match locks.key("key").wait(SOON).lock().await {
                Ok(_) if redis.hold("key").await.is_some() => panic!("granted without a disk"),
                Ok(_) => None,
                Err(error) => error.to_string().contains("appendonly").then_some(error),
            }
        })
        .await;
    assert_eq!(refusal.kind(), LockErrorKind::Unavailable);
    redis.configure("appendonly", "yes").await;
    let granted =
        lock_tests::eventually_some("it is granted", SOON, async || locks.lock("key").await.ok());
    drop(granted.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn on_a_cluster_a_primary_without_an_append_only_file_grants_nothing_and_the_others_do() {
    let options = RedisOptions::default().arg("appendonly", "yes").arg("appendfsync", "always");
    let clustered = Clustered::start(options, false, Duration::from_secs(60)).await;
    let locks = soon("a connection", fsync().connect(clustered.url())).await.expect("accepted");
    clustered.raw(2).await.configure("appendonly", "no").await;
    for primary in 0..3 {
        let key = clustered.key_of(primary, 0);
        let answer = soon("an answer", locks.lock(&key)).await;
        match primary {
            2 => {
                let error = answer.expect_err("refused");
                assert_eq!(error.kind(), LockErrorKind::Unavailable);
                assert!(error.to_string().contains("set appendonly to yes"), "{error}");
            }
            _ => drop(answer.expect("granted")),
        }
    }
}

#[tokio::test]
#[ignore = "needs a server with WAITAOF in REDIS_SERVER: scripts/test --servers"]
async fn a_request_with_too_short_a_lease_or_that_goes_on_without_the_lock_is_refused() {
    let setup = setup("always").await;
    let locks = setup.node().await;
    let short = locks.key("key").lease(Duration::from_secs(6)).lock();
    let open = locks.key("key").leave_in_outage(true).lock();
    for (answer, word) in [
        (soon("an answer", short).await, "require_fsync"),
        (soon("an answer", open).await, "fail_open"),
    ] {
        let error = answer.expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        assert!(error.to_string().contains(word), "{error}");
    }
    let mut redis = setup.redis;
    assert_eq!(redis.hold("key").await, None, "nothing was sent");
    let _: () = redis.ask(&cmd("PING")).await;
}
