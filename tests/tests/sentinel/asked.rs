//! The node's conclusions from its sentinels' answers, with sentinels that answer as the test
//! wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_tests::{FakeServer, Front, Log, Proxy, Raw, RedisServer, eventually, is_held};
use lockcore::{LockErrorKind, LockOptions, Locks, Sentinels};
use proto::Topology;
use proto::wire::scripts;
use redis::cmd;

use crate::common::{SOON, connect, held, release, soon};

/// The answer of a sentinel that knows a primary at this port.
pub(crate) fn master(words: &[String], port: u16, epoch: u64) -> String {
    let port = port.to_string();
    let epoch = epoch.to_string();
    let fields = match &*words[1] {
        "MASTER" => ["config-epoch", &*epoch],
        _ => ["127.0.0.1", &*port],
    };
    let fields = fields.map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", fields.len(), fields.concat())
}

/// Starts a sentinel that names this primary.
async fn naming(server: &RedisServer, epoch: u64) -> FakeServer {
    let port = server.port();
    FakeServer::start(move |words| master(words, port, epoch)).await
}

/// Starts a sentinel that names the first primary, or the second once the number is 1.
async fn switching(servers: [&RedisServer; 2]) -> (FakeServer, Arc<AtomicUsize>) {
    switching_ports(servers.map(RedisServer::port)).await
}

/// Does the same for servers given by their ports.
async fn switching_ports(ports: [u16; 2]) -> (FakeServer, Arc<AtomicUsize>) {
    let at = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&at);
    let sentinel = FakeServer::start(move |words| {
        let at = current.load(Ordering::Relaxed);
        master(words, ports[at], at as u64)
    })
    .await;
    (sentinel, at)
}

pub(crate) fn url(sentinels: &[&FakeServer]) -> String {
    let addresses: Vec<_> =
        sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
    format!("redis+sentinel://{}/locks", addresses.join(","))
}

#[tokio::test]
async fn the_newest_configuration_counts_whatever_the_other_sentinels_say() {
    let old = RedisServer::start();
    let new = RedisServer::start();
    let cut_off = naming(&old, 4).await;
    let first = naming(&new, 5).await;
    let second = naming(&old, 4).await;
    let locks = connect(&url(&[&cut_off, &first, &second])).await.expect("accepted");
    let _guard = held(&locks, "k").await;
    let there = connect(&new.url()).await.expect("accepted");
    assert!(is_held(&there, "k").await, "it went to the primary of an old configuration");
}

#[tokio::test]
async fn a_sentinel_that_is_down_or_silent_is_no_reason_to_fail() {
    let server = RedisServer::start();
    let silent = FakeServer::start(|_| String::new()).await;
    let down = naming(&server, 1).await;
    let address = down.address();
    drop(down);
    let good = [naming(&server, 1).await, naming(&server, 1).await];
    for away in [silent.address(), address] {
        let [one, other] = [good[0].address(), good[1].address()];
        let url = format!("redis+sentinel://{away},{one},{other}/locks");
        release(held(&connect(&url).await.expect("accepted"), "k").await).await;
    }
}

/// Sentinels have a look's time to answer, a second. With no more time for a connection to them,
/// a crowd never comes back to those that need longer for all.
#[tokio::test]
async fn sentinels_that_need_more_than_a_second_for_a_connection_are_asked() {
    let [old, new] = [RedisServer::start(), RedisServer::start()];
    let is_promoted = Arc::new(AtomicUsize::new(0));
    let ports = [old.port(), new.port()];
    let promoted = Arc::clone(&is_promoted);
    let sentinel = FakeServer::start(move |words| match &*words[0] {
        "AUTH" => "+OK\r\n".to_owned(),
        _ => {
            let number = promoted.load(Ordering::Relaxed);
            master(words, ports[number], number as u64 + 1)
        }
    })
    .await;
    let front = Front::start(sentinel.address()).await;
    front.costs(Duration::from_millis(1_200));
    let sentinels = Sentinels::new("locks", [front.url().replace("//", "//:pw@")]);
    let locks = soon("a connection", Locks::builder().connect(sentinels)).await;
    let locks = locks.expect("accepted");
    front.cut();
    is_promoted.store(1, Ordering::Relaxed);
    eventually("it follows to the new primary", SOON, async || {
        let there = Raw::connect(&new.url()).await;
        connections(&mut { there }).await > 0
    })
    .await;
    release(held(&locks, "k").await).await;
}

#[tokio::test]
async fn the_error_where_no_sentinel_answers_names_the_step_for_each() {
    let silent = FakeServer::start(|_| String::new()).await;
    let sentinels = Sentinels::new("locks", [format!("redis://:pw@{}", silent.address())]);
    let builder = Locks::builder().connect_timeout(Duration::from_millis(200));
    let error = soon("a refusal", builder.connect(sentinels)).await.expect_err("silent");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    let expected =
        format!("{}: no connection in time: the login was not complete", silent.address());
    assert!(error.to_string().contains(&expected), "{error}");
}

// H3: this one may be the one that was cut off.
#[tokio::test]
async fn one_of_three_sentinels_is_not_believed_at_first() {
    let server = RedisServer::start();
    let silent = FakeServer::start(|_| String::new()).await;
    let only = naming(&server, 1).await;
    let error = connect(&url(&[&silent, &only, &silent])).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    let expected = "1 of 3 sentinels replied, the first lookup needs 2";
    assert!(error.to_string().contains(expected), "{error}");
}

/// The number of connections of locks on a server.
async fn connections(raw: &mut Raw) -> usize {
    let clients: String = raw.ask(cmd("CLIENT").arg("LIST")).await;
    clients.lines().filter(|line| line.contains("name=lockcore")).count()
}

// H3.
#[tokio::test]
async fn a_node_never_goes_back_to_an_older_primary_though_only_a_stale_sentinel_answers() {
    for replicas in [0, 1] {
        let [old, new] = [RedisServer::start(), RedisServer::start()];
        let source = |server: &RedisServer| format!("127.0.0.1 {}", server.port());
        let _replicas = [&old, &new]
            .map(|server| RedisServer::options().arg("replicaof", &source(server)).start());
        let stale = naming(&old, 1).await;
        let is_away = Arc::new(AtomicUsize::new(0));
        let port = new.port();
        let away = Arc::clone(&is_away);
        let newest = move |words: &[String]| match away.load(Ordering::Relaxed) {
            0 => master(words, port, 2),
            _ => String::new(),
        };
        let newest = FakeServer::start(newest).await;
        let url = url(&[&stale, &newest]);
        let locks = lock_tests::eventually_some("its replica is there", SOON, async || {
            let builder = Locks::builder();
            let builder = match replicas {
                0 => builder,
                _ => builder.require_replicas(1, Duration::from_secs(1)),
            };
            builder.connect(&url).await.ok()
        })
        .await;
        let there = connect(&new.url()).await.expect("accepted");
        let guard = held(&there, "x").await;
        assert!(soon("an answer", locks.try_lock("x")).await.expect("accepted").is_none());

        is_away.store(1, Ordering::Relaxed);
        let mut raws = [Raw::connect(&old.url()).await, Raw::connect(&new.url()).await];
        raws[1].kill_the_command_connection().await;
        // The node is granted nothing while it looks for a primary, again and again.
        let until = tokio::time::Instant::now() + Duration::from_secs(4);
        while tokio::time::Instant::now() < until {
            let tried = soon("an answer", locks.try_lock("x")).await;
            assert!(
                !matches!(tried, Ok(Some(_))),
                "{replicas} replicas: it is held at the newer primary"
            );
            assert_eq!(connections(&mut raws[0]).await, 0, "{replicas} replicas");
        }
        is_away.store(0, Ordering::Relaxed);
        eventually("it is back at the newer primary", SOON, async || {
            matches!(locks.try_lock("free").await, Ok(Some(_)))
        })
        .await;
        assert!(is_held(&there, "x").await);
        release(guard).await;
    }
}

// H3.
#[tokio::test]
async fn a_stale_sentinel_that_answers_first_does_not_keep_a_node_at_the_old_primary() {
    let old = RedisServer::start();
    let new = RedisServer::start();
    let stale = naming(&old, 1).await;
    let port = new.port();
    let late = async || {
        FakeServer::start_slow(Duration::from_millis(300), move |words| master(words, port, 2))
            .await
    };
    let one = late().await;
    let other = late().await;
    let locks = connect(&url(&[&stale, &one, &other])).await.expect("accepted");
    let _guard = held(&locks, "k").await;
    assert!(is_held(&connect(&new.url()).await.expect("accepted"), "k").await);
}

#[tokio::test]
async fn a_node_follows_its_sentinels_though_the_old_primary_still_answers() {
    let old = RedisServer::start();
    let new = RedisServer::start();
    let (sentinel, at) = switching([&old, &new]).await;
    let locks = connect(&url(&[&sentinel])).await.expect("accepted");
    at.store(1, Ordering::Relaxed);
    let there = connect(&new.url()).await.expect("accepted");
    eventually("the node locks at the new primary", SOON, async || {
        let guard = held(&locks, "k").await;
        let moved = is_held(&there, "k").await;
        // A hold at the old primary is not held at the new one.
        let _ = soon("the release", guard.release()).await;
        moved
    })
    .await;
    // The subscription has followed, though no waiter would find it missing.
    let mut raws = [Raw::connect(&old.url()).await, Raw::connect(&new.url()).await];
    eventually("the node listens there, and there only", SOON, async || {
        let mut listeners = Vec::new();
        for raw in &mut raws {
            let channels: Vec<String> =
                raw.ask(cmd("PUBSUB").arg("CHANNELS").arg("lockcore:grants:*")).await;
            listeners.push(channels.len());
        }
        // `there` listens, too.
        listeners == [0, 2]
    })
    .await;
    let guard = held(&locks, "k").await;
    let waiting = tokio::spawn(locks.lock("k"));
    lock_tests::queued(&there, "k", 1).await;
    release(guard).await;
    release(soon("the grant", waiting).await.expect("no panic").expect("granted")).await;
}

/// An attempt at a frozen server takes up to 16 s, and the pause after it 4 s. Until then no waiter
/// is sent, although the new primary serves.
#[tokio::test]
async fn a_subscription_that_is_being_reopened_follows_the_commands_at_once() {
    let [old, new] = [RedisServer::start(), RedisServer::start()];
    let proxy = Proxy::start(old.address());
    let (sentinel, at) = switching_ports([proxy.address().port(), new.port()]).await;
    // Also the time of an attempt: it is not over by itself.
    let builder = Locks::builder().request_timeout(SOON);
    let locks = soon("a connection", builder.connect(&url(&[&sentinel]))).await.expect("accepted");
    let stuck = proxy.hold_request(|request| request.is("SUBSCRIBE"));
    proxy.cut_subscriptions().await;
    soon("an attempt", stuck.struck()).await;
    assert!(!locks.status().is_connected());
    at.store(1, Ordering::Relaxed);
    eventually("it has followed", SOON / 2, async || locks.status().is_connected()).await;
    assert_eq!(locks.status().servers[0].address, new.address().to_string());
}

/// The connection is set up by several requests, and each may take as long as a request may take.
#[tokio::test]
async fn a_command_connection_that_is_being_set_up_follows_the_sentinels_at_once() {
    for request in ["INFO", "TIME"] {
        let [old, new] = [RedisServer::start(), RedisServer::start()];
        let proxy = Proxy::start(old.address());
        let (sentinel, at) = switching_ports([proxy.address().port(), new.port()]).await;
        // Nothing is over by itself.
        let builder = Locks::builder().request_timeout(SOON);
        let locks = soon("a connection", builder.connect(&url(&[&sentinel]))).await;
        let locks = locks.expect("accepted");
        let stuck = proxy.hold_request(move |held| held.is(request));
        proxy.cut_commands().await;
        soon("an attempt", stuck.struck()).await;
        assert!(!locks.status().is_connected());
        at.store(1, Ordering::Relaxed);
        eventually("it has followed", SOON / 2, async || locks.status().is_connected()).await;
        assert_eq!(locks.status().servers[0].address, new.address().to_string(), "{request}");
    }
}

/// A connection of redis-rs closes with its last request.
#[tokio::test]
async fn a_request_to_a_replaced_primary_is_sent_to_the_new_one_on_each_kind_of_connection() {
    for query in ["", "?protocol=resp3"] {
        let [old, new] = [RedisServer::start(), RedisServer::start()];
        let proxy = Proxy::start(old.address());
        let (sentinel, at) = switching_ports([proxy.address().port(), new.port()]).await;
        // Nothing is over by itself.
        let options = LockOptions::new().store_wait(SOON);
        let builder = Locks::builder().request_timeout(SOON).defaults(options);
        let url = format!("{}{query}", url(&[&sentinel]));
        let locks = soon("a connection", builder.connect(&url)).await.expect("accepted");
        let stuck = proxy.hold_request(|request| request.is("MULTI") || request.is("EVALSHA"));
        let waiting = tokio::spawn(locks.lock("k"));
        soon("a request", stuck.struck()).await;
        at.store(1, Ordering::Relaxed);
        let granted = tokio::time::timeout(SOON / 2, waiting).await.expect("it is not stuck");
        let guard = granted.expect("no panic").expect("granted");
        let there = connect(&new.url()).await.expect("accepted");
        assert!(is_held(&there, "k").await, "{query}");
        release(guard).await;
    }
}

/// The lookups go on as soon as a majority has replied.
#[tokio::test]
async fn the_connection_to_a_sentinel_far_away_is_kept() {
    const LOOKUPS: usize = 4;
    let server = RedisServer::start();
    let (port, asked) = (server.port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&asked);
    let far = FakeServer::start_slow(Duration::from_millis(300), move |words| {
        counted.fetch_add(1, Ordering::Relaxed);
        master(words, port, 1)
    })
    .await;
    let proxy = Proxy::start(far.address());
    let near = [naming(&server, 1).await, naming(&server, 1).await];
    let [one, other] = [near[0].address(), near[1].address()];
    let url = format!("redis+sentinel://{},{one},{other}/locks", proxy.address());
    let _locks = connect(&url).await.expect("accepted");
    // A lookup is two requests.
    eventually("it is asked", SOON, async || asked.load(Ordering::Relaxed) >= 2 * LOOKUPS).await;
    assert_eq!(proxy.accepted(), 1);
}

#[tokio::test]
async fn a_connection_to_a_sentinel_that_never_replies_is_replaced() {
    let server = RedisServer::start();
    let sentinels = [naming(&server, 1).await, naming(&server, 1).await, naming(&server, 1).await];
    let proxy = Proxy::start(sentinels[0].address());
    let _stuck = proxy.hold_reply(|_| true);
    let [one, other] = [1, 2].map(|number| sentinels[number].address());
    let url = format!("redis+sentinel://{},{one},{other}/locks", proxy.address());
    let _locks = connect(&url).await.expect("accepted");
    eventually("it is replaced", SOON, async || proxy.accepted() > 1).await;
}

/// Starts two primaries, each with a replica.
async fn replicated() -> ([RedisServer; 2], [RedisServer; 2]) {
    let primaries = [RedisServer::start(), RedisServer::start()];
    let replicas = primaries.each_ref().map(|primary| {
        let source = format!("127.0.0.1 {}", primary.port());
        RedisServer::options().arg("replicaof", &source).start()
    });
    for primary in &primaries {
        let mut raw = Raw::connect(&primary.url()).await;
        eventually("its replica is there", SOON, async || {
            raw.ask::<()>(cmd("SET").arg("written").arg(1)).await;
            raw.ask::<u32>(cmd("WAIT").arg(1).arg(100)).await == 1
        })
        .await;
    }
    (primaries, replicas)
}

/// The first lock opens a connection that waits for replicas. If it went to the new primary, all
/// others would stay at the old one.
#[tokio::test]
async fn a_connection_for_confirmations_does_not_hide_that_the_primary_has_changed() {
    let ([old, new], _replicas) = replicated().await;
    let (sentinel, at) = switching([&old, &new]).await;
    let builder = Locks::builder().require_replicas(1, Duration::from_secs(1));
    let locks = soon("a connection", builder.connect(&url(&[&sentinel]))).await.expect("accepted");
    at.store(1, Ordering::Relaxed);
    let there = connect(&new.url()).await.expect("accepted");
    eventually("the node locks and releases at the new primary", SOON, async || {
        let Ok(Ok(guard)) = tokio::time::timeout(Duration::from_secs(5), locks.lock("k")).await
        else {
            return false;
        };
        let moved = is_held(&there, "k").await;
        let _ = soon("the release", guard.release()).await;
        moved && !is_held(&there, "k").await
    })
    .await;
}

/// A frozen primary would keep all connections for confirmations, each for as long as a request may
/// take, and whatever is queued for them.
#[tokio::test]
async fn confirmations_by_a_primary_that_is_replaced_are_made_at_the_new_one_at_once() {
    let ([old, new], _replicas) = replicated().await;
    let proxy = Proxy::start(old.address());
    let (sentinel, at) = switching_ports([proxy.address().port(), new.port()]).await;
    // Also the time of a confirmation: none is over by itself.
    let options = LockOptions::new().store_wait(SOON);
    let builder = Locks::builder().request_timeout(SOON).defaults(options);
    let builder = builder.require_replicas(1, Duration::from_secs(1));
    let locks = soon("a connection", builder.connect(&url(&[&sentinel]))).await.expect("accepted");
    let confirm = scripts::of_queue(Topology::Single).get("confirm").expect("there is one");
    let mut waiting = Vec::new();
    for number in 0..4 {
        let key = format!("key {number}");
        let stuck = proxy.hold_reply(|request| request.mentions(&confirm.digest));
        waiting.push(tokio::spawn(locks.lock(&key)));
        soon("a busy connection", stuck.struck()).await;
    }
    waiting.push(tokio::spawn(locks.lock("key 4")));
    at.store(1, Ordering::Relaxed);
    let there = connect(&new.url()).await.expect("accepted");
    for (number, waiting) in waiting.into_iter().enumerate() {
        let granted = tokio::time::timeout(SOON / 2, waiting).await.expect("it is not stuck");
        let guard = granted.expect("no panic").expect("granted");
        assert!(is_held(&there, &format!("key {number}")).await);
        release(guard).await;
    }
}

#[tokio::test]
async fn an_older_configuration_is_no_reason_to_move() {
    let new = RedisServer::start();
    let old = RedisServer::start();
    let ports = [new.port(), old.port()];
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let sentinel =
        FakeServer::start(move |words| match count.fetch_add(1, Ordering::Relaxed) / 2 {
            0 => master(words, ports[0], 7),
            _ => master(words, ports[1], 6),
        })
        .await;
    let locks = connect(&url(&[&sentinel])).await.expect("accepted");
    eventually("it has looked again, twice", SOON, async || asked.load(Ordering::Relaxed) > 6)
        .await;
    let _guard = held(&locks, "k").await;
    assert!(is_held(&connect(&new.url()).await.expect("accepted"), "k").await);
}

#[tokio::test]
async fn what_no_sentinel_can_tell_is_said_with_what_to_change() {
    let server = RedisServer::start();
    let unknown = FakeServer::start(|_| "-ERR No such master with that name\r\n".to_owned()).await;
    let error = connect(&url(&[&unknown])).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("monitors no primary named locks"), "{error}");

    let no_sentinel = format!("redis+sentinel://{}/locks", server.address());
    let error = connect(&no_sentinel).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("list the sentinels, not the servers"), "{error}");

    let locked = FakeServer::start(|_| "-NOAUTH Authentication required.\r\n".to_owned()).await;
    let error = connect(&url(&[&locked])).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");

    let down = naming(&server, 1).await;
    let gone = url(&[&down]);
    drop(down);
    let error = connect(&gone).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_server_that_says_it_is_a_replica_is_no_primary() {
    let primary = RedisServer::start();
    let replica =
        RedisServer::options().arg("replicaof", &format!("127.0.0.1 {}", primary.port())).start();
    let sentinel = naming(&replica, 1).await;
    let error = connect(&url(&[&sentinel])).await.expect_err("refused");
    assert_eq!(error.kind(), LockErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().contains("the sentinels name"), "{error}");
    assert!(error.to_string().contains("it is a replica"), "{error}");
}

#[tokio::test]
async fn sentinels_and_primary_have_their_own_credentials() {
    let server = RedisServer::options().arg("requirepass", "data").start();
    let port = server.port();
    let sentinel = FakeServer::start(move |words| match words[0].as_str() {
        "AUTH" if words[1..] == ["watch", "over"] => "+OK\r\n".to_owned(),
        "SENTINEL" => master(words, port, 1),
        other => format!("-ERR {other} was not expected\r\n"),
    })
    .await;
    let sentinels = Sentinels::new("locks", [format!("redis://watch:over@{}", sentinel.address())])
        .primary("redis://:data@anywhere/2");
    let locks = soon("a connection", Locks::connect(sentinels)).await.expect("accepted");
    let _guard = held(&locks, "k").await;
    let there = connect(&format!("redis://:data@{}/2", server.address())).await.expect("accepted");
    assert!(is_held(&there, "k").await);
}

// On one thread, so that the thread's subscriber sees everything.
#[tokio::test]
async fn a_watched_primary_that_takes_writes_without_replicas_is_warned_of() {
    let (log, _here) = Log::listen();
    let careful = RedisServer::options()
        .arg("min-replicas-to-write", "1")
        .arg("min-replicas-max-lag", "2")
        .start();
    let sentinel = naming(&careful, 1).await;
    // Without its replica it takes no writes, the look at the rights among them.
    let replica =
        RedisServer::options().arg("replicaof", &format!("127.0.0.1 {}", careful.port())).start();
    let url = url(&[&sentinel]);
    let locks = lock_tests::eventually_some("its replica is there", SOON, async || {
        Locks::connect(&url).await.ok()
    })
    .await;
    let of_replicas = |log: &Log| {
        log.warnings().iter().filter(|line| line.contains("min-replicas-to-write")).count()
    };
    assert_eq!(of_replicas(&log), 0, "{:?}", log.warnings());
    drop((locks, replica));

    let careless = RedisServer::start();
    let sentinel = naming(&careless, 1).await;
    let _locks = connect(&self::url(&[&sentinel])).await.expect("accepted");
    assert_eq!(of_replicas(&log), 1, "{:?}", log.warnings());
    // A server with one address has no replicas to require.
    let _locks = connect(&careless.url()).await.expect("accepted");
    assert_eq!(of_replicas(&log), 1, "{:?}", log.warnings());
}
