//! Free locks, acquired without a script: events that may interfere with a grant.

use lock_tests::acl::set_user;
use lock_tests::{COUNTER, CommandStats, Raw, RedisServer, lock_key};
use lockcore::{HoldState, LockErrorKind, Locks};
use redis::cmd;

use crate::common::{LONG, held, nothing_left, queue, queue_has, queued, release, setup, soon};

/// The numbers of transactions and scripts since `before`.
async fn ran(redis: &mut Raw, before: &CommandStats) -> (u64, u64) {
    let ran = CommandStats::read(redis).await.since(before);
    (ran.calls("exec"), ran.calls("evalsha") + ran.calls("eval"))
}

#[tokio::test]
async fn a_free_lock_is_acquired_without_a_script_unless_it_was_busy_when_last_asked_for() {
    let mut setup = setup().await;
    let (locks, other) = (setup.direct().await, setup.direct().await);
    let redis = &mut setup.redis;
    release(held(&locks, "first", LONG).await).await; // the counter is there
    let before = CommandStats::read(redis).await;
    let guard = held(&locks, "k", LONG).await;
    assert_eq!(ran(redis, &before).await, (1, 0));
    let waiting = queued(&other, "k", LONG, redis).await;
    release(guard).await;
    release(soon("the grant", waiting).await.expect("no panic").expect("granted")).await;

    // The other node found it busy.
    for expected in [(0, 1), (1, 0)] {
        let before = CommandStats::read(redis).await;
        let guard = held(&other, "k", LONG).await;
        assert_eq!(ran(redis, &before).await, expected);
        release(guard).await;
    }
}

#[tokio::test]
async fn those_who_ask_at_once_for_a_lock_that_is_held_elsewhere_queue_in_their_order() {
    const COUNT: usize = 20;
    let mut setup = setup().await;
    let (near, far) = (setup.direct().await, setup.direct().await);
    release(held(&far, "other", LONG).await).await; // the counter is there
    let guard = held(&near, "k", LONG).await;
    let before = CommandStats::read(&mut setup.redis).await;
    let waiting: Vec<_> = (0..COUNT).map(|_| tokio::spawn(far.lock("k"))).collect();
    queue_has(&mut setup.redis, "k", COUNT).await;
    assert_eq!(ran(&mut setup.redis, &before).await.0, 1, "the first of them has tried");
    let number = |member: &String| -> u64 {
        member.split(':').nth(1).and_then(|number| number.parse().ok()).expect("one of ours")
    };
    let numbers: Vec<u64> = queue(&mut setup.redis, "k").await.iter().map(number).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    release(guard).await;
}

#[tokio::test]
async fn a_token_is_above_all_that_were_seen_also_where_the_counter_is_not() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    let before = guard.fencing_token();
    release(guard).await;
    setup.redis.ask::<()>(cmd("SET").arg(COUNTER).arg(7)).await;
    let guard = held(&locks, "k", LONG).await;
    assert!(guard.fencing_token() > before);
    assert_eq!(guard.state(), HoldState::Held);
    release(guard).await;
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test]
async fn a_counter_that_is_no_number_refuses_a_free_lock_and_leaves_nothing_behind() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    setup.redis.ask::<()>(cmd("SET").arg(COUNTER).arg("a text")).await;
    let error = soon("an answer", locks.lock("k")).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::WrongType, "{error}");
    nothing_left(&mut setup.redis, "k").await;
    assert_eq!(setup.redis.get(COUNTER).await.as_deref(), Some("a text"), "it is not ours");
    setup.redis.ask::<()>(cmd("DEL").arg(COUNTER)).await;
    release(held(&locks, "k", LONG).await).await;
}

#[tokio::test]
async fn a_foreign_key_in_the_place_of_a_free_lock_is_not_touched() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    setup.redis.ask::<()>(cmd("RPUSH").arg(lock_key("k")).arg("theirs")).await;
    let error = soon("an answer", locks.lock("k")).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::WrongType, "{error}");
    assert_eq!(setup.redis.list(&lock_key("k")).await, ["theirs"]);
}

#[tokio::test]
async fn without_the_right_to_a_transaction_a_free_lock_takes_a_script() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    for (more, expected) in [("+multi", (0, 1)), ("+exec", (1, 0))] {
        redis.ask::<()>(&set_user("locker", |_| false)).await;
        redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("locker").arg("+multi").arg(more)).await;
        let url = format!("redis://locker:PASSWORD@{}/", server.address());
        let locks = Locks::builder().namespace("shop").connect(url).await.expect("accepted");
        release(held(&locks, "first", LONG).await).await; // counter and script are there
        let before = CommandStats::read(&mut redis).await;
        let guard = held(&locks, "k", LONG).await;
        assert_eq!(ran(&mut redis, &before).await, expected, "with {more}");
        release(guard).await;
    }
}

// The commands of a transaction run individually if `MULTI` is refused. Without `EXEC`, none runs.
#[tokio::test]
async fn a_lock_is_granted_once_after_the_right_to_a_transaction_was_taken_away() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let url = format!("redis://locker:PASSWORD@{}/", server.address());
    for right in ["multi", "exec"] {
        redis.ask::<()>(&set_user("locker", |_| false)).await;
        redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("locker").arg("+multi").arg("+exec")).await;
        let locks = Locks::builder().namespace("shop").connect(&url).await.expect("accepted");
        let less = format!("-{right}");
        redis.ask::<()>(cmd("ACL").arg("SETUSER").arg("locker").arg(less)).await;
        let first = held(&locks, "k", LONG).await;
        let before = first.fencing_token();
        assert_eq!(first.state(), HoldState::Held);
        release(first).await;
        let second = held(&locks, "k", LONG).await;
        assert!(second.fencing_token() > before);
        release(second).await;
        nothing_left(&mut redis, "shop:k").await;
    }
}

/// How often the server has refused this command.
async fn rejected(redis: &mut Raw, command: &str) -> u64 {
    let (stats, head) = (redis.info("commandstats").await, format!("cmdstat_{command}:"));
    let Some(stat) = stats.lines().find_map(|line| line.strip_prefix(&*head)) else { return 0 };
    let count = stat.split(',').find_map(|field| field.strip_prefix("rejected_calls="));
    count.expect("it is counted").parse().expect("it is a number")
}

// Each refusal is a round trip, and a line in the server's ACL log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_of_the_fast_path_that_was_taken_away_is_tried_once() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let url = format!("redis://locker:PASSWORD@{}/", server.address());
    let mut rights = vec!["multi", "exec"];
    rights.extend(comparison(&mut redis).await);
    for right in rights.clone() {
        let rule = |sign: char, right: &str| {
            let mut set = cmd("ACL");
            set.arg("SETUSER").arg("locker").arg(format!("{sign}{right}"));
            set
        };
        redis.ask::<()>(&set_user("locker", |_| false)).await;
        for right in &rights {
            redis.ask::<()>(&rule('+', right)).await;
        }
        let locks = Locks::builder().namespace("shop").connect(&url).await.expect("accepted");
        release(held(&locks, "k", LONG).await).await; // counter and scripts are there
        redis.ask::<()>(&rule('-', right)).await;
        let before = rejected(&mut redis, right).await;
        for _ in 0..10 {
            release(held(&locks, "k", LONG).await).await;
        }
        assert_eq!(rejected(&mut redis, right).await - before, 1, "{right}");
    }
}

/// The server's command that deletes a key with a given value.
async fn comparison(redis: &mut Raw) -> Option<&'static str> {
    for name in ["delifeq", "delex"] {
        let known: Vec<Option<Vec<redis::Value>>> =
            redis.ask(cmd("COMMAND").arg("INFO").arg(name)).await;
        if known.iter().flatten().any(|info| !info.is_empty()) {
            return Some(name);
        }
    }
    None
}

/// The numbers of comparing deletions, and of scripts, since `before`.
async fn released(redis: &mut Raw, before: &CommandStats) -> (u64, u64) {
    let ran = CommandStats::read(redis).await.since(before);
    let compared = ran.calls("delifeq") + ran.calls("delex");
    (compared, ran.calls("evalsha") + ran.calls("eval"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_for_which_nobody_waits_is_released_without_a_script_where_the_server_can() {
    let mut setup = setup().await;
    let (locks, other) = (setup.direct().await, setup.direct().await);
    let redis = &mut setup.redis;
    release(held(&locks, "k", LONG).await).await; // counter and script are there
    let compares = comparison(redis).await.is_some();
    let without_a_script = if compares { (1, 0) } else { (0, 1) };

    let guard = held(&locks, "k", LONG).await;
    let before = CommandStats::read(redis).await;
    release(guard).await;
    assert_eq!(released(redis, &before).await, without_a_script);
    nothing_left(redis, "k").await;

    // With a waiter, the script hands off.
    let guard = held(&locks, "k", LONG).await;
    let waiting = queued(&other, "k", LONG, redis).await;
    let before = CommandStats::read(redis).await;
    release(guard).await;
    let granted = soon("the grant", waiting).await.expect("no panic").expect("granted");
    assert_eq!(released(redis, &before).await, (without_a_script.0, 1));
    // Its own acquire found the lock busy: the script is used at once.
    let before = CommandStats::read(redis).await;
    release(granted).await;
    assert_eq!(released(redis, &before).await, (0, 1));
    nothing_left(redis, "k").await;
}

/// On a single worker, nothing would read the reply that must arrive before the script is sent.
#[tokio::test]
async fn on_a_runtime_with_one_worker_a_lock_is_released_by_its_script() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    release(held(&locks, "k", LONG).await).await; // counter and script are there
    let guard = held(&locks, "k", LONG).await;
    let before = CommandStats::read(&mut setup.redis).await;
    release(guard).await;
    assert_eq!(released(&mut setup.redis, &before).await, (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_released_after_the_right_to_compare_was_taken_away() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(&set_user("locker", |_| false)).await;
    let comparison = comparison(&mut redis).await;
    let right = |sign: char| {
        let name = comparison?;
        let mut set = cmd("ACL");
        set.arg("SETUSER").arg("locker").arg(format!("{sign}{name}"));
        Some(set)
    };
    if let Some(allowed) = right('+') {
        redis.ask::<()>(&allowed).await;
    }
    let url = format!("redis://locker:PASSWORD@{}/", server.address());
    let locks = Locks::builder().namespace("shop").connect(&url).await.expect("accepted");
    release(held(&locks, "k", LONG).await).await; // counter and scripts are there
    let guard = held(&locks, "k", LONG).await;
    if let Some(denied) = right('-') {
        redis.ask::<()>(&denied).await;
    }
    let before = CommandStats::read(&mut redis).await;
    release(guard).await;
    assert!(released(&mut redis, &before).await.1 > 0);
    nothing_left(&mut redis, "shop:k").await;
}
