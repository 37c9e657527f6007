//! The survey of all locks, and inspections in parts.

use std::collections::BTreeMap;
use std::task::Poll;

use futures_util::poll;
use lock_tests::{CommandStats, Raw, RedisServer, eventually, lock_key, queue_key};
use lockcore::operate::{BusyLock, Survey};
use lockcore::{Demand, LockErrorKind, LockGuard, Locks};
use redis::{cmd, pipe};

use crate::backend::{Backend, SOON, granted, ms, until_nothing_is_left, wait_as};

on_every_store!(
    a_survey_finds_each_lock_that_is_held_or_waited_for_once,
    a_survey_shows_how_each_lock_is_held_and_its_next_waiter,
    a_survey_that_is_dropped_at_any_point_reads_its_page_again,
    a_survey_of_a_closed_node_is_refused,
    an_inspection_in_parts_shows_any_part_of_the_queue_and_counts_all;
    not_on_a_cluster:
    a_survey_stays_in_its_namespace,
    a_survey_does_not_name_what_is_to_be_redacted,
    a_survey_beside_jvms_is_unsupported,
);

async fn all(survey: &mut Survey) -> Vec<BusyLock> {
    let mut found = Vec::new();
    while let Some(page) = survey.next_page().await.expect("an answer") {
        assert!(page.len() <= 64, "a page has an end");
        found.extend(page);
    }
    found
}

/// The locks by name.
async fn found(locks: &Locks) -> BTreeMap<String, BusyLock> {
    let found = all(&mut locks.survey()).await;
    let named = |lock: BusyLock| (lock.lock.clone().expect("its name"), lock);
    let all = found.len();
    let by_name: BTreeMap<_, _> = found.into_iter().map(named).collect();
    assert_eq!(by_name.len(), all, "each is told once");
    by_name
}

async fn names(locks: &Locks) -> Vec<String> {
    found(locks).await.into_keys().collect()
}

async fn hold(locks: &Locks, keys: impl Iterator<Item = String>) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for key in keys {
        guards.push(locks.lock(key).await.expect("free"));
    }
    guards
}

async fn a_survey_finds_each_lock_that_is_held_or_waited_for_once(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    assert_eq!(names(&a).await, Vec::<String>::new());
    let keys = (0..150).map(|number| format!("key:{number:03}"));
    let guards = hold(&b, keys.clone()).await;
    a.lock("given back").await.expect("free").release().await.expect("held until now");
    let held: Vec<String> = keys.map(|key| backend.named(&key)).collect();
    assert_eq!(names(&a).await, held, "those of the other node as well");
    drop(guards);
    until_nothing_is_left(&b, "key:149").await;
    assert_eq!(names(&a).await, Vec::<String>::new());
    assert!(a.survey().next_page().await.expect("an answer").is_some_and(|page| page.is_empty()));
}

async fn a_survey_shows_how_each_lock_is_held_and_its_next_waiter(backend: &Backend) {
    let [a, b] = backend.nodes().await;
    let alone = a.key("alone").label("100% sure: a\nb").lock().await.expect("free");
    let next = wait_as(1, &b, "alone").await;
    let last = wait_as(2, &b, "alone").await;
    let reads = [a.read("parts").await.expect("free"), b.read("parts").await.expect("free")];
    let found = found(&a).await;
    let at = |key: &str| &found[&backend.named(key)].inspection;
    let holder = &at("alone").holders[0];
    assert_eq!(holder.label.as_deref(), Some("100% sure: a\nb"));
    assert_eq!(holder.node.as_ref(), Some(a.node()));
    assert_eq!((holder.demand, at("alone").holding), (Demand::EXCLUSIVE, 1));
    assert!(holder.age.is_some() && holder.lease_left > ms(100_000));
    assert_eq!((at("alone").waiters.len(), at("alone").waiting), (1, 2));
    let whole = a.inspect("alone").await.expect("an inspection");
    assert_eq!(at("alone").waiters[0].member, whole.waiters[0].member, "the next one");
    assert_eq!((at("parts").holders.len(), at("parts").holding, at("parts").waiting), (1, 2, 0));
    assert_eq!(at("parts").holders[0].demand, Demand::READ);
    drop((alone, reads));
    granted(next).await.release().await.expect("held until now");
    granted(last).await.release().await.expect("held until now");
}

async fn a_survey_that_is_dropped_at_any_point_reads_its_page_again(backend: &Backend) {
    let locks = backend.node().await;
    let _guards = hold(&locks, (0..100).map(|number| number.to_string())).await;
    for polls in 0..8 {
        let mut survey = locks.survey();
        let mut found = 0;
        let mut page = Box::pin(survey.next_page());
        for _ in 0..polls {
            if let Poll::Ready(page) = poll!(page.as_mut()) {
                found = page.expect("an answer").map_or(0, |page| page.len());
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(page);
        assert_eq!(found + all(&mut survey).await.len(), 100, "after {polls} polls");
    }
}

async fn an_inspection_in_parts_shows_any_part_of_the_queue_and_counts_all(backend: &Backend) {
    let locks = backend.node().await;
    let readers = [locks.read("key").await.expect("free"), locks.read("key").await.expect("free")];
    let mut waiting = Vec::new();
    for length in 1..=7 {
        waiting.push(wait_as(length, &locks, "key").await);
    }
    let whole = locks.inspect("key").await.expect("an inspection");
    assert_eq!((whole.holders.len(), whole.holding), (2, 2));
    assert_eq!((whole.waiters.len(), whole.waiting), (7, 7));
    for (from, most) in [(0, 1), (0, 3), (2, 3), (6, 5), (7, 1), (100, 100), (0, 0)] {
        let part = locks.inspect_part("key", from, most).await.expect("an inspection");
        let shown = (most as usize).max(1);
        let expected: Vec<_> = whole.waiters.iter().skip(from as usize).take(shown).collect();
        let members: Vec<_> = part.waiters.iter().map(|waiter| &waiter.member).collect();
        assert_eq!(members, expected.iter().map(|waiter| &waiter.member).collect::<Vec<_>>());
        assert_eq!((part.holding, part.waiting), (2, 7), "from {from}, at most {most}");
        assert_eq!(part.holders.len(), shown.min(2));
        assert_eq!(part.holders[0].member, whole.holders[0].member);
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop(readers);
    until_nothing_is_left(&locks, "key").await;
}

async fn a_survey_stays_in_its_namespace(backend: &Backend) {
    // As patterns, each of these would match the others.
    let namespaces = ["a", "ab", "a*", "a?", "[a]", "a\\", "\\a", "a^-b"];
    let mut nodes = Vec::new();
    for namespace in namespaces {
        let locks = backend.build(Locks::builder().namespace(namespace)).await;
        let guard = locks.lock("x").await.expect("free");
        nodes.push((namespace, locks, guard));
    }
    let outside = backend.node().await;
    let _guard = outside.lock("a").await.expect("free");
    for (namespace, locks, _) in &nodes {
        assert_eq!(names(locks).await, [format!("{namespace}:x")]);
    }
    assert_eq!(names(&outside).await.len(), namespaces.len() + 1, "without one, all are its own");
}

async fn a_survey_does_not_name_what_is_to_be_redacted(backend: &Backend) {
    let locks = backend.build(Locks::builder().redact_names(true).label("web-1")).await;
    let _guard = locks.lock("secret").await.expect("free");
    let found = all(&mut locks.survey()).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].lock, None);
    assert_eq!(found[0].inspection.holders[0].label.as_deref(), Some("web-1"));
}

async fn a_survey_beside_jvms_is_unsupported(backend: &Backend) {
    let locks = backend.build(Locks::builder().redisson_peers(true)).await;
    let _guard = locks.lock("key").await.expect("free");
    let error = locks.survey().next_page().await.expect_err("it cannot");
    assert_eq!(error.kind(), LockErrorKind::Unsupported);
    assert!(error.to_string().contains("inspect them by name"), "{error}");
    let found = locks.inspect_part("key", 0, 10).await.expect("an inspection");
    assert_eq!((found.holding, found.waiting), (1, 0));
}

fn server(backend: &Backend) -> &RedisServer {
    let Backend::Redis(server) = backend else { unreachable!() };
    server
}

#[tokio::test]
async fn keys_of_other_programs_and_lock_keys_that_are_free_are_no_locks_of_a_survey() {
    let backend = Backend::redis();
    let locks = backend.node().await;
    let mut redis = Raw::connect(&server(&backend).url()).await;
    let guard = locks.lock("mine").await.expect("free");
    let (member, _) = redis.hold("mine").await.expect("held");
    let mut other = pipe();
    for number in 0..5_000 {
        other.cmd("SET").arg(format!("session:{number}")).arg("x").ignore();
    }
    for (key, text) in [
        ("lock:{text}", "hello"),
        ("lock:{empty}", ""),
        ("lock:{parts}", "*1:x"),
        ("lock:{a}:{b}", &member),
        ("lock:{open", &member),
        ("lock:x", &member),
    ] {
        other.cmd("SET").arg(key).arg(text).ignore();
    }
    other.cmd("SET").arg("lock:{bytes}").arg(b"\xff\xfe".as_slice()).ignore();
    other.cmd("SET").arg(b"lock:{\xff}".as_slice()).arg(&member).ignore();
    other.cmd("HSET").arg("lock:{hash}").arg("field").arg("value").ignore();
    other.cmd("SET").arg("lock:{beside}").arg(&member).ignore();
    other.cmd("SET").arg("lock:{beside}:queue").arg("another program's").ignore();
    // The lease of a flagged lock key ended a minute before the lock key; with only tombstones the
    // lock is free.
    other.cmd("SET").arg("lock:{ended}").arg(format!("+{member}")).arg("PX").arg(50_000).ignore();
    other.cmd("SET").arg("lock:{free}").arg("-*0:0").arg("PX").arg(90_000).ignore();
    redis.run(&other).await;
    let before: usize = redis.ask(&cmd("DBSIZE")).await;
    assert_eq!(names(&locks).await, ["mine"]);
    assert_eq!(redis.ask::<usize>(&cmd("DBSIZE")).await, before, "nothing was taken away");
    let mut survey = locks.survey();
    assert_eq!(all(&mut survey).await.len(), 1);
    assert_eq!(survey.unreadable(), 5, "text, empty, parts, bytes, beside");

    // A lock key of ours counts even if another program has removed its expiry.
    redis.ask::<()>(cmd("PERSIST").arg(lock_key("mine"))).await;
    assert_eq!(names(&locks).await, ["mine"]);
    drop(guard);
    until_nothing_is_left(&locks, "mine").await;
}

#[tokio::test]
async fn a_lock_that_was_left_with_waiters_alone_is_found() {
    let backend = Backend::redis();
    let locks = backend.node().await;
    let mut redis = Raw::connect(&server(&backend).url()).await;
    let guard = locks.lock("key").await.expect("free");
    let waiting = wait_as(1, &locks, "key").await;
    let (member, _) = redis.hold("key").await.expect("held");
    let value: String = redis.ask(cmd("GET").arg(lock_key("key"))).await;
    let mut ended = pipe();
    ended.cmd("SET").arg("lock:{other}").arg(&value).arg("PX").arg(50_000).ignore();
    ended.cmd("ZADD").arg(queue_key("other")).arg(1).arg(&member).ignore();
    redis.run(&ended).await;
    let found = found(&locks).await;
    assert!(found["other"].inspection.holders.is_empty());
    assert_eq!(found["other"].inspection.waiting, 1);
    drop(guard);
    granted(waiting).await.release().await.expect("held until now");
}

#[tokio::test]
async fn a_page_of_a_survey_is_one_scan_or_64_inspections() {
    let backend = Backend::redis();
    let locks = backend.node().await;
    let mut redis = Raw::connect(&server(&backend).url()).await;
    let _guards = hold(&locks, (0..200).map(|number| number.to_string())).await;
    let mut other = pipe();
    for number in 0..5_000 {
        other.cmd("SET").arg(format!("session:{number}")).arg("x").ignore();
    }
    redis.run(&other).await;
    let mut survey = locks.survey();
    let (mut pages, mut seen) = (0, 0);
    loop {
        let before = CommandStats::read(&mut redis).await;
        let Some(page) = survey.next_page().await.expect("an answer") else { break };
        let sent = CommandStats::read(&mut redis).await.since(&before);
        assert!(sent.calls("scan") <= 1, "one scan, and not {}", sent.calls("scan"));
        assert!(sent.calls("evalsha") + sent.calls("eval") <= 2 * 64 && page.len() <= 64);
        assert_eq!(sent.calls("keys"), 0);
        pages += 1;
        seen += page.len();
    }
    assert_eq!(seen, 200);
    assert!(pages >= 5, "5 200 keys are some steps: {pages}");
}

#[tokio::test]
async fn a_survey_of_a_server_that_was_replaced_ends_with_an_error() {
    let mut backend = Backend::redis();
    let locks = backend.node().await;
    let mut redis = Raw::connect(&server(&backend).url()).await;
    let mut other = pipe();
    for number in 0..5_000 {
        other.cmd("SET").arg(format!("session:{number}")).arg("x").ignore();
    }
    redis.run(&other).await;
    let mut survey = locks.survey();
    assert!(survey.next_page().await.expect("an answer").is_some());
    let Backend::Redis(server) = &mut backend else { unreachable!() };
    server.restart();
    let answers = async || locks.ping().await.is_ok();
    eventually("it is connected again", SOON, answers).await;
    let error = survey.next_page().await.expect_err("its cursor is none of this server");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(survey.next_page().await.expect("no more servers").is_none());
    assert_eq!(names(&locks).await, Vec::<String>::new(), "a new survey searches the new server");
}

async fn a_survey_of_a_closed_node_is_refused(backend: &Backend) {
    let locks = backend.node().await;
    let mut survey = locks.survey();
    locks.shutdown(ms(0)).await;
    let error = survey.next_page().await.expect_err("closed");
    assert_eq!(error.kind(), LockErrorKind::Closed);
}
