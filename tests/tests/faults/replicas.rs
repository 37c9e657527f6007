//! Grants and renewals that count only once replicas have them.

use std::time::Duration;

use lock_tests::{
    COUNTER, CommandStats, Fault, Front, Log, Proxy, Raw, RedisServer, eventually, holds_key,
    lock_key,
};
use lockcore::{HoldState, LockError, LockErrorKind, Locks, LocksBuilder};
use proto::Topology;
use proto::wire::scripts;
use redis::cmd;

use crate::common::{LONG, SOON, queued, soon};
use crate::script::runs;

/// The timeout for a replica on a busy machine.
const PATIENT: Duration = Duration::from_millis(1_500);
/// A lease whose end a test awaits.
const LEASE: Duration = Duration::from_secs(9);

/// A primary and its replica, which has all its data.
pub(crate) struct Pair {
    pub(crate) primary: RedisServer,
    pub(crate) replica: RedisServer,
    pub(crate) at_primary: Raw,
    at_replica: Raw,
}

pub(crate) async fn pair() -> Pair {
    let primary = RedisServer::options().arg("repl-diskless-sync-delay", "0").start();
    let source = format!("127.0.0.1 {}", primary.port());
    let replica = RedisServer::options().arg("replicaof", &source).start();
    let mut at_primary = Raw::connect(&primary.url()).await;
    let at_replica = Raw::connect(&replica.url()).await;
    let mut wait = cmd("WAIT");
    wait.arg(1).arg(100);
    let mut attached = false;
    while !attached {
        // The primary counts only replicas that have the writes of this connection.
        at_primary.ask::<()>(cmd("SET").arg("written").arg(1)).await;
        attached = at_primary.ask::<u32>(&wait).await == 1;
    }
    Pair { primary, replica, at_primary, at_replica }
}

impl Pair {
    async fn requiring(&self, count: u32, timeout: Duration) -> Locks {
        build(Locks::builder().require_replicas(count, timeout), &self.primary)
            .await
            .expect("it may")
    }
}

async fn build(builder: LocksBuilder, server: &RedisServer) -> Result<Locks, LockError> {
    soon("a connection", builder.connect(server.url())).await
}

/// Checks that an acquire was refused because of too few replicas, and that its grant is released.
async fn refused_and_given_back<T>(answer: Result<T, LockError>, words: &str, locks: &Locks) {
    let Err(error) = answer else { panic!("it was granted") };
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.is_retryable());
    eventually("it is given back", SOON, async || {
        let status = locks.status();
        let found = locks.inspect("key").await.expect("an inspection");
        found.holders.is_empty() && (status.holding, status.releasing) == (0, 0)
    })
    .await;
}

#[tokio::test]
async fn a_guard_is_there_only_once_the_replica_has_its_hold() {
    let mut pair = pair().await;
    let [a, b] = [pair.requiring(1, PATIENT).await, pair.requiring(1, PATIENT).await];
    let first = soon("a guard", a.lock("key")).await.expect("granted");
    assert!(pair.at_replica.holder("key").await.is_some(), "the replica has it");
    let waiting = queued(&b, "key", LONG, &mut pair.at_primary).await;
    soon("a release", first.release()).await.expect("held until now");
    let second = soon("a guard", waiting).await.expect("no panic").expect("handed over");
    let holder = pair.at_replica.holder("key").await.expect("the replica has it");
    assert!(holder.contains(b.node().as_str()), "{holder}");
    second.release().await.expect("held until now");
    let tried = soon("an answer", a.try_lock("key")).await.expect("granted").expect("free");
    assert!(pair.at_replica.holder("key").await.is_some(), "the replica has it");
    drop(tried);
}

/// Servers and proxies close connections that are idle.
#[tokio::test]
async fn a_connection_for_confirmations_that_was_closed_while_idle_fails_none() {
    let (log, _here) = Log::listen();
    let mut pair = pair().await;
    let locks = pair.requiring(1, PATIENT).await;
    let lease = Duration::from_secs(6);
    let guard = soon("a guard", locks.key("key").lease(lease).lock()).await.expect("granted");
    // The connections confirm in turn.
    for _ in 1..4 {
        let other = soon("a guard", locks.lock("other")).await.expect("granted");
        soon("a release", other.release()).await.expect("held until now");
    }
    assert_eq!(close_confirmations(&mut pair.at_primary).await, 4);
    let before = guard.deadline();
    eventually("a renewal", SOON, async || guard.deadline() > before).await;
    assert_eq!(log.warnings(), [""; 0], "none has failed");
}

// Once, nothing was granted any more: the server counted as another server.
#[tokio::test]
async fn grants_are_confirmed_although_the_right_to_info_has_changed() {
    let (log, _here) = Log::listen();
    let mut pair = pair().await;
    let locks = pair.requiring(1, PATIENT).await;
    for (right, is_reconnected) in [("-info", false), ("-info", true), ("+info", false)] {
        pair.at_primary.ask::<()>(cmd("ACL").arg("SETUSER").arg("default").arg(right)).await;
        if is_reconnected {
            pair.at_primary.kill_the_command_connection().await;
            eventually("it is connected again", SOON, async || locks.ping().await.is_ok()).await;
        }
        close_confirmations(&mut pair.at_primary).await;
        for _ in 0..4 {
            let guard = soon("a guard", locks.lock("key")).await.expect(right);
            soon("a release", guard.release()).await.expect("held until now");
        }
    }
    let failed = |line: &String| line.contains("another server");
    assert!(!log.warnings().iter().any(failed), "{:?}", log.warnings());
}

/// Makes the server close all connections for confirmations. Returns their number.
async fn close_confirmations(at: &mut Raw) -> usize {
    let clients: String = at.ask(cmd("CLIENT").arg("LIST")).await;
    let idle: Vec<_> = clients
        .lines()
        .filter(|line| line.contains("cmd=wait"))
        .filter_map(|line| line.split_whitespace().find_map(|word| word.strip_prefix("id=")))
        .collect();
    for id in &idle {
        at.ask::<u32>(cmd("CLIENT").arg("KILL").arg("ID").arg(id)).await;
    }
    idle.len()
}

/// The other server has all data and a replica, and would confirm writes that the primary never
/// had.
#[tokio::test]
async fn a_name_that_leads_to_another_server_confirms_nothing_there() {
    let (log, _here) = Log::listen();
    let mut pair = pair().await;
    let source = format!("127.0.0.1 {}", pair.replica.port());
    let _its_replica = RedisServer::options().arg("replicaof", &source).start();
    let name = Front::start(pair.primary.address()).await;
    let builder = Locks::builder().require_replicas(1, PATIENT);
    let locks = soon("a connection", builder.connect(name.url())).await.expect("it may");
    let guard = soon("a guard", locks.key("key").lease(LEASE).lock()).await.expect("granted");
    eventually("its replica is attached", SOON, async || {
        pair.at_replica.clone().info("replication").await.contains("state=online")
    })
    .await;
    pair.at_replica.ask::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    name.leads_to(pair.replica.address());
    close_confirmations(&mut pair.at_primary).await;
    eventually("it is refused", SOON, async || {
        log.warnings().iter().any(|line| line.contains("another server"))
    })
    .await;
    soon("a reply", locks.inspect("key")).await.expect("the primary stays");
    soon("the loss", guard.lost()).await;
    name.leads_to(pair.primary.address());
    pair.at_replica.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(pair.primary.port())).await;
    let other = soon("a guard", locks.lock("other")).await.expect("confirmed");
    soon("a release", other.release()).await.expect("held until now");
}

/// The replica says nothing about its primary.
#[tokio::test]
async fn a_name_that_leads_to_a_replica_takes_no_commands_from_their_primary() {
    let (log, _here) = Log::listen();
    let mut pair = pair().await;
    let name = Front::start(pair.primary.address()).await;
    let builder = Locks::builder().require_replicas(1, PATIENT);
    let locks = soon("a connection", builder.connect(name.url())).await.expect("it may");
    let guard = soon("a guard", locks.key("key").lease(LEASE).lock()).await.expect("granted");
    name.leads_to(pair.replica.address());
    close_confirmations(&mut pair.at_primary).await;
    eventually("it is refused", SOON, async || {
        log.warnings().iter().any(|line| line.contains("is a replica"))
    })
    .await;
    soon("a reply", locks.inspect("key")).await.expect("the primary was not left");
    name.leads_to(pair.primary.address());
    let before = guard.deadline();
    eventually("it is renewed", SOON, async || guard.deadline() > before).await;
    soon("a release", guard.release()).await.expect("held until now");
}

/// A silent server would take the timeout of a request twice.
#[tokio::test]
async fn nothing_is_confirmed_after_scripts_without_a_reply() {
    let pair = pair().await;
    let proxy = Proxy::start(pair.primary.address());
    let builder = Locks::builder().request_timeout(PATIENT).require_replicas(1, PATIENT / 2);
    let locks = soon("a connection", builder.connect(proxy.url())).await.expect("it may");
    let silent = proxy.hold_reply(runs("confirm"));
    let waiting = tokio::spawn(locks.lock("key"));
    soon("the renewal", silent.struck()).await;
    let wait = proxy.hold_request(|request| request.is("WAIT"));
    let again = proxy.hold_reply(runs("confirm"));
    soon("the next renewal", again.struck()).await;
    assert!(!wait.has_struck(), "it has waited for copies of nothing");
    [silent, wait, again].iter().for_each(Fault::release);
    let guard = soon("a guard", waiting).await.expect("no panic").expect("granted");
    soon("a release", guard.release()).await.expect("held until now");
}

/// The whole batch is one hold: its members wait for the replica once.
#[tokio::test]
async fn the_members_of_a_batch_are_served_once_the_replica_has_its_hold() {
    let mut pair = pair().await;
    let a = pair.requiring(1, PATIENT).await;
    let builder = Locks::builder().require_replicas(1, PATIENT).batch_limit(8);
    let b = build(builder, &pair.primary).await.expect("it may");
    let held = soon("a guard", a.lock("key")).await.expect("granted");
    let mut waiting = Vec::new();
    for length in 1..=3 {
        waiting.push(tokio::spawn(b.lock("key")));
        eventually("it waits", SOON, async || {
            a.inspect("key").await.expect("an inspection").waiters.len() == length
        })
        .await;
    }
    let before = CommandStats::read(&mut pair.at_primary).await;
    soon("a release", held.release()).await.expect("held until now");
    for one in waiting {
        let guard = soon("a guard", one).await.expect("no panic").expect("handed over");
        let holder = pair.at_replica.holder("key").await.expect("the replica has it");
        assert!(holder.contains(b.node().as_str()), "{holder}");
        drop(guard);
    }
    let ran = CommandStats::read(&mut pair.at_primary).await.since(&before);
    assert_eq!(ran.calls("wait"), 1, "one WAIT for the batch");
}

#[tokio::test]
async fn reads_and_permits_are_there_only_once_the_replica_has_them() {
    let mut pair = pair().await;
    let locks = pair.requiring(1, PATIENT).await;
    let read = soon("a read", locks.read("doc")).await.expect("granted");
    let permit = soon("a permit", locks.permit("smtp", 3)).await.expect("granted");
    for name in ["doc", "smtp"] {
        assert!(pair.at_replica.exists(&holds_key(name)).await, "{name}");
    }
    read.release().await.expect("held until now");
    permit.release().await.expect("held until now");
}

#[tokio::test]
async fn a_grant_that_too_few_replicas_have_is_released_and_says_how_many_came() {
    let pair = pair().await;
    let locks = pair.requiring(2, PATIENT).await;
    let answer = soon("an answer", locks.lock("key")).await;
    refused_and_given_back(answer, "1 of 2 replicas", &locks).await;
    let answer = soon("an answer", locks.try_lock("key")).await;
    refused_and_given_back(answer, "1 of 2 replicas", &locks).await;
}

#[tokio::test]
async fn without_its_replica_a_primary_grants_nothing_and_with_it_again_it_does() {
    let mut pair = pair().await;
    let locks = pair.requiring(1, PATIENT).await;
    drop(soon("a guard", locks.lock("key")).await.expect("granted"));
    pair.replica.freeze();
    let answer = soon("an answer", locks.lock("key")).await;
    refused_and_given_back(answer, "0 of 1 replicas", &locks).await;
    pair.replica.thaw();
    eventually("the replica follows again", SOON, async || {
        pair.at_primary.ask::<()>(cmd("SET").arg("written").arg(2)).await;
        pair.at_primary.ask::<u32>(cmd("WAIT").arg(1).arg(100)).await == 1
    })
    .await;
    let _guard = soon("a guard", locks.lock("key")).await.expect("granted");
}

#[tokio::test]
async fn many_grants_at_once_wait_for_their_replicas_together() {
    let mut pair = pair().await;
    let locks = pair.requiring(1, PATIENT).await;
    drop(soon("a guard", locks.lock("warm")).await.expect("granted"));
    let before = CommandStats::read(&mut pair.at_primary).await;
    let all = (0..400).map(|number| locks.lock(format!("key {number}")));
    let guards = soon("all guards", futures_util::future::join_all(all)).await;
    assert!(guards.iter().all(Result::is_ok));
    let ran = CommandStats::read(&mut pair.at_primary).await.since(&before);
    let asked = ran.calls("wait");
    assert!((1..200).contains(&asked), "{asked} WAITs for 400 grants");
}

#[tokio::test]
async fn a_hold_that_no_replica_has_renewed_is_lost_though_its_primary_has() {
    // Longer than some renewals that wait for the replica in vain.
    const LEASE: Duration = Duration::from_secs(6);
    let mut pair = pair().await;
    let locks = pair.requiring(1, PATIENT).await;
    let guard = soon("a guard", locks.key("key").lease(LEASE).lock()).await.expect("granted");
    pair.replica.freeze();
    soon("the loss", guard.lost()).await;
    let left = pair.at_primary.hold("key").await.map_or(0, |(_, left)| left);
    assert!(left > 0, "the primary has renewed it: {left} ms");
    pair.replica.thaw();
    assert_eq!(guard.release().await.expect_err("lost").kind(), LockErrorKind::Lost);
}

#[tokio::test]
async fn many_holds_are_renewed_together_and_stay_held() {
    const LEASE: Duration = Duration::from_secs(3);
    let mut pair = pair().await;
    let locks = pair.requiring(1, PATIENT).await;
    let all = (0..300).map(|number| locks.key(format!("key {number}")).lease(LEASE).lock());
    let guards = soon("all guards", futures_util::future::try_join_all(all)).await.expect("free");
    let before = CommandStats::read(&mut pair.at_primary).await;
    // Each hold is renewed at least three times.
    tokio::time::sleep(2 * LEASE).await; // the measured time
    assert!(guards.iter().all(|guard| guard.state() == HoldState::Held));
    let ran = CommandStats::read(&mut pair.at_primary).await.since(&before);
    let asked = ran.calls("evalsha");
    assert!((3..300).contains(&asked), "{asked} scripts for 900 renewals");
}

/// The number of changes counted by the server, from an INFO reply.
fn changes(info: &str) -> u64 {
    let field = "rdb_changes_since_last_save:";
    let number = info.lines().find_map(|line| line.strip_prefix(field)).expect("it counts");
    number.parse().expect("a number")
}

/// WAIT and WAITAOF wait for the last write of their connection: a renewal without a write would be
/// confirmed by any earlier write, while the grant is still on another connection.
#[tokio::test]
async fn a_renewal_of_a_read_is_a_write_even_within_one_millisecond() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = build(Locks::builder(), &server).await.expect("accepted");
    let _read = soon("a read", locks.read("key")).await.expect("granted");
    let (lock_key, holds) = (lock_key("key"), holds_key("key"));
    let [(member, _)] = redis.scores(&holds).await.try_into().expect("one holds");
    let (node, lease) = (locks.node().to_string(), "30000");
    let call = |name: &str| {
        let mut call = cmd("EVAL");
        let script = scripts::of_queue(Topology::Single).get(name).expect("there is one");
        call.arg(&script.source);
        match name {
            "extend" => call.arg(1).arg(&lock_key),
            "renew" => call.arg(1).arg(&lock_key).arg(&[&*node, "0", "0", "lockcore"]),
            _ => call.arg(2).arg(&lock_key).arg(COUNTER).arg(&[&*node, "0", "0", "lockcore"]),
        };
        call.arg(&member).arg(lease).to_owned()
    };
    let info = cmd("INFO").arg("persistence").to_owned();
    for name in ["confirm", "renew", "extend"] {
        for _ in 0..20 {
            redis.ask::<()>(&cmd("MULTI")).await;
            for command in [call(name), info.clone(), call(name), info.clone()] {
                redis.ask::<()>(&command).await;
            }
            let answers: [redis::Value; 4] = redis.ask(&cmd("EXEC")).await;
            let [_, before, _, after] = answers;
            let [before, after] = [before, after]
                .map(|info| redis::from_redis_value::<String>(info).expect("a text"));
            assert!(changes(&after) > changes(&before), "{name} has written nothing");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_required_is_refused_and_named() {
    let server = RedisServer::start();
    let second = Duration::from_secs(1);
    let bad = [(0, second), (17, second), (1, Duration::ZERO), (1, 2 * second)];
    for (count, timeout) in bad {
        let builder = Locks::builder().require_replicas(count, timeout);
        let error = build(builder, &server).await.expect_err("refused");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        assert!(error.to_string().contains("require_replicas"), "{error}");
    }
    let builder = Locks::builder().require_replicas(1, second);
    let error = builder.on_memory(&lockcore::MemoryStore::new()).expect_err("refused");
    assert!(error.to_string().contains("in-memory"), "{error}");
}
