//! The server identity of a primary: its list, and the data age.

use std::time::Duration;

use lock_tests::{Front, Raw, RedisServer, eventually};
use lockcore::{LockErrorKind, Locks, Quorum};
use tokio::time::Instant;

use crate::primaries::{MAX_LEASE, SOON, Three};

async fn mark(server: &RedisServer) -> Option<String> {
    Raw::connect(&server.url()).await.ask(redis::cmd("GET").arg("lockcore:quorum")).await
}

/// The token counter of the epoch that began at this time.
fn counter(written_us: &str) -> String {
    format!("lockcore:quorum:tokens:{written_us}")
}

/// The token counter of a server's current epoch.
async fn present_counter(server: &RedisServer) -> String {
    let mark = mark(server).await.expect("marked");
    let (written_us, _) = mark.split_once(' ').expect("the time stands first");
    counter(written_us)
}

async fn refused(quorum: Quorum) -> lockcore::LockError {
    Locks::builder().lease(MAX_LEASE).connect(quorum).await.expect_err("refused")
}

#[tokio::test]
async fn servers_that_have_just_started_serve_nobody_until_the_longest_lease_is_over() {
    let three = Three::start();
    let began = Instant::now();
    let locks = three.locks().await;
    let error = locks.try_lock("k").await.expect_err("no primary counts yet");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains("0 of 3 primaries"), "{error}");
    let guard =
        locks.key("k").wait(SOON).store_wait(SOON).lock().await.expect("granted in the end");
    assert!(began.elapsed() >= MAX_LEASE, "after {:?}", began.elapsed());
    guard.release().await.expect("held");
}

#[tokio::test]
async fn new_servers_serve_at_once_if_somebody_says_that_they_are() {
    let three = Three::begun().await;
    let locks = three.locks().await;
    locks.try_lock("k").await.expect("an answer").expect("free").release().await.expect("held");
    // A second time, and by another process.
    Locks::builder().lease(MAX_LEASE).init_quorum(three.quorum()).await.expect("their own mark");
    drop(three.locks().await.try_lock("k").await.expect("an answer").expect("free"));
}

#[tokio::test]
async fn servers_that_a_process_has_used_are_not_said_to_be_new() {
    let three = Three::start();
    drop(three.locks().await);
    let before = mark(&three.0[0]).await.expect("marked by the process");
    let init = Locks::builder().lease(MAX_LEASE).init_quorum(three.quorum()).await;
    let error = init.expect_err("they may have granted something");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption);
    assert!(error.to_string().contains("the server is not new"), "{error}");
    assert_eq!(mark(&three.0[0]).await.expect("marked"), before);
}

#[tokio::test]
async fn a_primary_of_another_list_or_with_other_settings_is_refused() {
    let three = Three::begun().await;
    let [a, b, c] = [0, 1, 2].map(|at| three.0[at].url());
    let before = mark(&three.0[0]).await;
    let swapped = Quorum::new([&b, &a, &c]).max_lease(MAX_LEASE);
    let longer = three.quorum().max_lease(2 * MAX_LEASE);
    for other in [swapped.clone(), longer] {
        let error = refused(other).await;
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        assert!(error.to_string().contains("another quorum"), "{error}");
    }
    let error = Locks::builder().lease(MAX_LEASE).init_quorum(swapped).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption);
    assert_eq!(mark(&three.0[0]).await, before, "nothing is overwritten");
    let error = refused(Quorum::new([&a, &a, &c]).max_lease(MAX_LEASE)).await;
    assert_eq!(error.kind(), LockErrorKind::InvalidOption);
    for few in [vec![&a], vec![&a, &b]] {
        assert_eq!(refused(Quorum::new(few)).await.kind(), LockErrorKind::InvalidOption);
    }
    let cluster = format!("redis+cluster://{}", three.0[2].address());
    let error = refused(Quorum::new([&a, &b, &cluster])).await;
    assert_eq!(error.kind(), LockErrorKind::InvalidOption);
}

#[tokio::test]
async fn a_key_of_another_program_in_place_of_a_mark_is_left_alone() {
    for command in [["SET", "lockcore:quorum", "theirs"], ["RPUSH", "lockcore:quorum", "theirs"]] {
        let three = Three::start();
        for at in [0, 1] {
            let mut redis = Raw::connect(&three.0[at].url()).await;
            let _: redis::Value = redis.ask(redis::cmd(command[0]).arg(&command[1..])).await;
        }
        let mut redis = Raw::connect(&three.0[1].url()).await;
        let before: Vec<u8> = redis.ask(redis::cmd("DUMP").arg("lockcore:quorum")).await;
        let kind = refused(three.quorum()).await.kind();
        assert!(
            [LockErrorKind::InvalidOption, LockErrorKind::WrongType].contains(&kind),
            "{kind:?}"
        );
        let began = Locks::builder().lease(MAX_LEASE).init_quorum(three.quorum()).await;
        assert!(began.is_err());
        assert_eq!(mark(&three.0[2]).await, None, "nothing is written");
        let after: Vec<u8> = redis.ask(redis::cmd("DUMP").arg("lockcore:quorum")).await;
        assert_eq!(before, after);
    }
}

#[tokio::test]
async fn a_majority_with_replicas_is_refused() {
    let three = Three::begun().await;
    let _replicas = [replica_of(&three.0[1]).await, replica_of(&three.0[2]).await];
    let error = refused(three.quorum()).await;
    assert_eq!(error.kind(), LockErrorKind::Unsupported);
    assert!(error.to_string().contains("replicas"), "{error}");
}

/// A replica of this server, once it is connected.
pub(crate) async fn replica_of(server: &RedisServer) -> RedisServer {
    let port = server.port().to_string();
    let replica = RedisServer::options().arg("replicaof", &format!("127.0.0.1 {port}")).start();
    let mut redis = Raw::connect(&server.url()).await;
    eventually("the replica is connected", SOON, async || {
        redis.info("replication").await.contains("connected_slaves:1")
    })
    .await;
    replica
}

#[tokio::test]
async fn a_process_with_an_old_list_marks_no_server_that_was_emptied() {
    let three = Three::begun().await;
    let locks = three.locks().await;
    // An old list had two of the three, and a server that is out of use.
    let old = RedisServer::start();
    let list = [three.0[0].url(), three.0[1].url(), old.url()];
    let old_list = Quorum::new(&list).max_lease(MAX_LEASE);
    let _: redis::Value = Raw::connect(&three.0[0].url()).await.ask(&redis::cmd("FLUSHALL")).await;
    let stray = Locks::builder().lease(MAX_LEASE).connect(old_list.clone()).await;
    assert_eq!(mark(&three.0[0]).await, None, "it claims the emptied server");
    // The list is contradicted by one server of three: no majority, but it may write no identity,
    // and so use nothing.
    assert_eq!(stray.expect_err("refused").kind(), LockErrorKind::InvalidOption);
    // With the identity that it once wrote to the third server, it is refused as well.
    let agreed = format!(
        "2 {} {}",
        MAX_LEASE.as_millis(),
        [&three.0[0], &three.0[1], &old].map(|server| format!("{}/0", server.address())).join(",")
    );
    let mut redis = Raw::connect(&old.url()).await;
    let text = format!("1700000000000000 run 1700000000000000 {agreed}");
    let _: redis::Value = redis.ask(redis::cmd("SET").arg("lockcore:quorum").arg(text)).await;
    let count = counter("1700000000000000");
    let _: redis::Value =
        redis.ask(redis::cmd("SET").arg(count).arg(1_700_000_000_000_000_u64)).await;
    assert!(Locks::builder().lease(MAX_LEASE).connect(old_list).await.is_err());
    assert_eq!(mark(&three.0[0]).await, None, "it claims the emptied server");
    // The nodes of the right list write the identity, as before.
    drop(three.locks().await);
    assert!(mark(&three.0[0]).await.is_some());
    drop(locks);
}

#[tokio::test]
async fn a_process_that_more_primaries_contradict_than_not_leaves_no_mark() {
    let three = Three::begun().await;
    let more = [RedisServer::start(), RedisServer::start()];
    let five = three.0.iter().chain(&more).map(RedisServer::url);
    let error = refused(Quorum::new(five).max_lease(MAX_LEASE)).await;
    assert_eq!(error.kind(), LockErrorKind::InvalidOption);
    assert!(error.to_string().contains("another quorum"), "{error}");
    for server in &more {
        assert_eq!(mark(server).await, None);
    }
}

#[tokio::test]
async fn a_primary_that_was_emptied_or_restarted_counts_after_the_longest_lease_alone() {
    for loss in ["all keys", "its counter", "its run"] {
        let mut three = Three::begun().await;
        let locks = three.locks().await;
        locks.lock("k").await.expect("free").release().await.expect("held");
        // Only primaries 0 and 1 are left.
        three.0[2].kill();
        if loss == "its run" {
            three.0[1].kill();
            three.0[1].restart();
        } else {
            let mut lose = redis::cmd("FLUSHALL");
            if loss == "its counter" {
                lose = redis::cmd("DEL").arg(present_counter(&three.0[1]).await).to_owned();
            }
            let _: redis::Value = Raw::connect(&three.0[1].url()).await.ask(&lose).await;
        }
        let lost = Instant::now();
        let guard =
            locks.key("k").wait(SOON).store_wait(SOON).lock().await.expect("granted in the end");
        assert!(lost.elapsed() >= MAX_LEASE, "{loss}: after {:?}", lost.elapsed());
        guard.release().await.expect("held");
    }
}

/// Makes the next token of a server higher than this one.
async fn count_from(server: &RedisServer, token: u64) {
    eventually("it is marked", SOON, async || mark(server).await.is_some()).await;
    let counter = present_counter(server).await;
    let mut redis = Raw::connect(&server.url()).await;
    let _: redis::Value = redis.ask(redis::cmd("SET").arg(counter).arg(token)).await;
}

#[tokio::test]
async fn a_token_is_above_those_that_an_emptied_primary_has_forgotten() {
    let mut three = Three::begun().await;
    let (one, other) = (three.locks().await, three.locks().await);
    let now_us = Raw::connect(&three.0[0].url()).await.time_us().await;
    let later = |ms: u64| now_us + ms * 1_000;
    // As by a clock that is ahead, by less than the longest lease.
    count_from(&three.0[0], later(2_600)).await;
    // The third primary never sees its tokens.
    three.0[2].kill();
    let guard = one.key("k").fixed_lease(MAX_LEASE).lock().await.expect("free");
    let forgotten = guard.fencing_token();
    assert!(forgotten.get() > later(2_600));
    guard.release().await.expect("held");
    one.shutdown(Duration::ZERO).await;
    three.0[0].kill();
    three.0[1].kill();
    three.0[1].restart();
    three.0[2].restart();
    // Others have received tokens at these two since, by clocks that are behind.
    count_from(&three.0[1], later(2_200)).await;
    count_from(&three.0[2], later(2_400)).await;
    let guard =
        other.key("k").wait(SOON).store_wait(SOON).lock().await.expect("granted in the end");
    assert!(guard.fencing_token() > forgotten, "{} after {forgotten}", guard.fencing_token());
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_primary_whose_counter_began_days_ahead_of_its_clock_is_followed_by_the_others() {
    for primary in 0..3 {
        let three = Three::begun().await;
        let day_us = 24 * 60 * 60 * 1_000_000;
        let ahead = Raw::connect(&three.0[primary].url()).await.time_us().await + 3 * day_us;
        // As by a clock that was set back afterwards.
        count_from(&three.0[primary], ahead).await;
        let locks = three.locks().await;
        let mut last = None;
        for _ in 0..2 {
            let guard = locks.lock_timeout("k", SOON).await.expect("the others follow");
            assert!(last < Some(guard.fencing_token()), "primary {primary}");
            last = Some(guard.fencing_token());
            guard.release().await.expect("held");
        }
        // The third primary is not needed, unless another process gains it later.
        assert!(primary == 2 || last.is_some_and(|last| last.get() > ahead));
    }
}

#[tokio::test]
async fn a_restart_that_keeps_the_mark_is_known_to_a_process_that_comes_later() {
    let mut three = Three::begun().await;
    three.locks().await.lock("k").await.expect("free").release().await.expect("held");
    three.0[2].kill();
    let kept = mark(&three.0[1]).await.expect("marked");
    // As if it was written a minute ago.
    let (written_us, rest) = kept.split_once(' ').expect("the time stands first");
    let written_us = written_us.parse::<u64>().expect("µs") - 60_000_000;
    let (kept, counter) = (format!("{written_us} {rest}"), counter(&written_us.to_string()));
    three.0[1].kill();
    three.0[1].restart();
    let restarted = Instant::now();
    let mut redis = Raw::connect(&three.0[1].url()).await;
    for (key, value) in [("lockcore:quorum", kept), (&counter, written_us.to_string())] {
        let _: redis::Value = redis.ask(redis::cmd("SET").arg(key).arg(value)).await;
    }
    let guard = three
        .locks()
        .await
        .key("k")
        .wait(SOON)
        .store_wait(SOON)
        .lock()
        .await
        .expect("granted in the end");
    assert!(restarted.elapsed() >= MAX_LEASE, "after {:?}", restarted.elapsed());
    guard.release().await.expect("held");
}

/// A quorum whose second primary is behind a front, and a fourth server. The third primary is not
/// there, so that both others are needed.
struct Moving {
    three: Three,
    fourth: RedisServer,
    front: Front,
    quorum: Quorum,
}

impl Moving {
    async fn start() -> Self {
        let (mut three, fourth) = (Three::start(), RedisServer::start());
        let front = Front::start(three.0[1].address()).await;
        let urls = [three.0[0].url(), front.url(), three.0[2].url()];
        let quorum = Quorum::new(urls).max_lease(MAX_LEASE);
        Locks::builder().lease(MAX_LEASE).init_quorum(quorum.clone()).await.expect("new");
        three.0[2].kill();
        Self { three, fourth, front, quorum }
    }

    async fn locks(&self) -> Locks {
        let connected = Locks::builder().lease(MAX_LEASE).connect(self.quorum.clone()).await;
        connected.expect("two of three")
    }

    /// Lets the address of the second primary lead to another server.
    fn lead_to(&self, server: &RedisServer) {
        self.front.leads_to(server.address());
        self.front.cut();
    }
}

/// The time until a lock is granted.
async fn time_until_granted(locks: &Locks) -> Duration {
    let began = Instant::now();
    let guard = locks.key("k").wait(SOON).store_wait(SOON).lock().await.expect("granted");
    guard.release().await.expect("held");
    began.elapsed()
}

#[tokio::test]
async fn a_replacement_with_a_copy_of_the_record_counts_after_the_longest_lease() {
    for is_started_later in [false, true] {
        let moving = Moving::start().await;
        let locks = moving.locks().await;
        assert!(time_until_granted(&locks).await < MAX_LEASE);
        // As if the record was written a minute ago.
        let record = mark(&moving.three.0[1]).await.expect("marked");
        let (written_us, rest) = record.split_once(' ').expect("the time stands first");
        let (run, rest) = rest.split_once(' ').expect("then the run");
        let (_, agreed) = rest.split_once(' ').expect("then the first contact");
        let written_us = written_us.parse::<u64>().expect("µs") - 60_000_000;
        let record = format!("{written_us} {run} {written_us} {agreed}");
        let count = counter(&written_us.to_string());
        let mut redis = Raw::connect(&moving.fourth.url()).await;
        for (key, value) in [("lockcore:quorum", record), (&count, written_us.to_string())] {
            let _: redis::Value = redis.ask(redis::cmd("SET").arg(key).arg(value)).await;
        }
        // Long enough for its uptime.
        tokio::time::sleep(MAX_LEASE + Duration::from_secs(3)).await;
        moving.lead_to(&moving.fourth);
        let locks = if is_started_later { moving.locks().await } else { locks };
        let elapsed = time_until_granted(&locks).await;
        assert!(elapsed >= MAX_LEASE, "started later: {is_started_later}, after {elapsed:?}");
    }
}

// A fail-back: the former server has run all the time, and knows nothing of the holds since.
#[tokio::test]
async fn a_server_that_gets_its_address_back_counts_after_the_longest_lease() {
    let moving = Moving::start().await;
    let locks = moving.locks().await;
    assert!(time_until_granted(&locks).await < MAX_LEASE);
    moving.lead_to(&moving.fourth);
    assert!(time_until_granted(&locks).await >= MAX_LEASE);
    moving.lead_to(&moving.three.0[1]);
    let elapsed = time_until_granted(&locks).await;
    assert!(elapsed >= MAX_LEASE, "after {elapsed:?}");
}

// From Redis 7 on, a server that loads such a file has an earlier replication history, like a
// promoted replica.
#[tokio::test]
async fn a_restart_from_a_file_that_was_written_after_a_backup_is_a_restart_like_any() {
    let directory = std::env::temp_dir().join(format!("lock-tests-{}-saved", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
    let saved = RedisServer::options().arg("dir", directory.to_str().expect("a path is text"));
    let mut three = Three([RedisServer::start(), saved.start(), RedisServer::start()]);
    Locks::builder().lease(MAX_LEASE).init_quorum(three.quorum()).await.expect("they are new");
    drop(replica_of(&three.0[1]).await);
    let mut redis = Raw::connect(&three.0[1].url()).await;
    eventually("the backup is over", SOON, async || {
        redis.info("replication").await.contains("connected_slaves:0")
    })
    .await;
    let _: redis::Value = redis.ask(&redis::cmd("SAVE")).await;
    three.0[1].restart();
    three.0[2].kill();
    let elapsed = time_until_granted(&three.locks().await).await;
    assert!(elapsed >= MAX_LEASE, "after {elapsed:?}");
    std::fs::remove_dir_all(&directory).expect("the directory is ours");
}

#[tokio::test]
async fn a_user_without_the_keys_of_a_primary_is_told_their_rule() {
    let three = Three::begun().await;
    for at in [0, 1] {
        let mut redis = Raw::connect(&three.0[at].url()).await;
        let rules = ["ACL", "SETUSER", "default", "resetkeys", "~lock:*"];
        let _: redis::Value = redis.ask(redis::cmd(rules[0]).arg(&rules[1..])).await;
    }
    let error = refused(three.quorum()).await;
    assert_eq!(error.kind(), LockErrorKind::Denied);
    assert!(error.to_string().contains("~lockcore:quorum*"), "{error}");
}

#[tokio::test]
async fn a_user_that_may_not_know_whether_primaries_have_restarted_is_refused() {
    let three = Three::begun().await;
    for at in [0, 1] {
        let mut redis = Raw::connect(&three.0[at].url()).await;
        let rules = ["ACL", "SETUSER", "default", "-info"];
        let _: redis::Value = redis.ask(redis::cmd(rules[0]).arg(&rules[1..])).await;
    }
    let error = refused(three.quorum()).await;
    assert_eq!(error.kind(), LockErrorKind::Denied);
    assert!(error.to_string().contains("+info"), "{error}");
}

#[tokio::test]
async fn each_namespace_has_a_mark_of_its_own() {
    let three = Three::start();
    let builder = || Locks::builder().namespace("shop").lease(MAX_LEASE);
    builder().init_quorum(three.quorum()).await.expect("they are new");
    let locks = builder().connect(three.quorum()).await.expect("connected");
    locks
        .lock_timeout("k", Duration::from_secs(1))
        .await
        .expect("free")
        .release()
        .await
        .expect("held");
    assert_eq!(mark(&three.0[0]).await, None);
}
