//! Servers that cannot be reached, or cannot or will not store locks: an error in time that names
//! the reason.

use std::error::Error;
use std::time::Duration;

use lock_tests::{Port, Raw, RedisServer, eventually};
use lockcore::{LockError, LockErrorKind, Locks};
use redis::cmd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::common::{LONG, SOON, connect, granted, held, queued, release, setup, soon};
use lock_tests::FakeServer;

const PASSWORD: &str = "hunter2";

/// The texts of all forms of an error.
fn shown(error: &LockError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(" {error} {error:?}");
        source = error.source();
    }
    text
}

/// Checks that connecting fails as `kind` within the promised three seconds, with `words` in the
/// error.
pub(crate) async fn refused(url: &str, kind: LockErrorKind, words: &[&str]) {
    let start = Instant::now();
    let error = soon("an answer", Locks::connect(url)).await.expect_err("it cannot be used");
    let took = start.elapsed();
    let text = shown(&error);
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in: {text}");
    }
    assert!(!text.contains(PASSWORD), "the password is in: {text}");
    assert!(took < Duration::from_secs(5), "it took {took:?}");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unavailable_and_named() {
    let port = Port::free();
    let address = port.address().to_string();
    let url = format!("redis://:{PASSWORD}@{address}/");
    refused(&url, LockErrorKind::Unavailable, &["unavailable", "refused", &address]).await;
}

#[tokio::test]
async fn a_url_that_is_none_is_an_invalid_option() {
    for url in [
        format!("redis://:{PASSWORD}@"),
        format!("http://:{PASSWORD}@localhost/"),
        format!("redis://:{PASSWORD}@localhost:notaport/"),
        format!("redis://:{PASSWORD}@localhost/notadatabase"),
        PASSWORD.to_owned(),
    ] {
        refused(&url, LockErrorKind::InvalidOption, &["redis://"]).await;
    }
}

// B3: `redis://h/3` and `redis://h/?db=3` were two databases, and both held the lock.
#[tokio::test]
async fn a_database_is_the_same_one_however_it_is_written() {
    let server = RedisServer::start();
    let [path, option] = ["3", "?db=3"].map(|db| format!("{}{db}", server.url()));
    let by_path = soon("an answer", Locks::connect(path)).await.expect("accepted");
    let by_option = soon("an answer", Locks::connect(option)).await.expect("accepted");
    let guard = held(&by_path, "k", LONG).await;
    let second = soon("an answer", by_option.try_lock("k")).await.expect("an answer");
    assert!(second.is_none(), "both hold it: {second:?}");
    release(guard).await;
}

#[tokio::test]
async fn a_part_of_a_url_that_is_not_followed_is_refused_in_every_kind_of_url() {
    let several = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    for url in [
        "redis://127.0.0.1:1/".to_owned(),
        "redis+unix:///no/such/socket".to_owned(),
        format!("redis+sentinel://{several}/locks"),
        format!("redis+cluster://{several}"),
        format!("redis+quorum://{several}/"),
    ] {
        let option = format!("{url}?tls=true");
        let words = ["`tls`", "db, user, pass, protocol", "rediss://"];
        refused(&option, LockErrorKind::InvalidOption, &words).await;
        let value = format!("{url}?protocol=resp4");
        refused(&value, LockErrorKind::InvalidOption, &["`protocol`"]).await;
        refused(&format!("{url}#3"), LockErrorKind::InvalidOption, &["#"]).await;
    }
}

// P6: the error showed the URL form of a single server.
#[tokio::test]
async fn a_bad_part_of_a_url_of_sentinels_is_answered_with_their_form() {
    for url in [
        format!("redis+sentinel://:{PASSWORD}@one,two/locks/notadatabase"),
        format!("redis+sentinel://:{PASSWORD}@one:notaport,two/locks"),
        format!("redis+sentinel://:{PASSWORD}@one,two/"),
    ] {
        refused(&url, LockErrorKind::InvalidOption, &["for sentinels redis+sentinel://"]).await;
    }
}

/// A server that accepts no client: it sends a message, before or after the first request, and
/// hangs up.
async fn says_and_hangs_up(said: &'static str, reads: bool) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            if reads {
                let _ = client.read(&mut [0; 1_024]).await;
            }
            let _ = client.write_all(said.as_bytes()).await;
            let _ = client.shutdown().await;
        }
    });
    (format!("redis://:{PASSWORD}@{address}/"), serving)
}

// B8: the error blamed TLS, or the message was lost, depending on the race.
#[tokio::test]
async fn a_server_that_takes_no_client_is_told_in_its_words_and_tls_is_not_blamed() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    redis.ask::<()>(cmd("CONFIG").arg("SET").arg("maxclients").arg(1)).await;
    for _ in 0..10 {
        let error = soon("an answer", Locks::connect(server.url())).await.expect_err("no room");
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        for words in ["max number of clients reached", "raise maxclients"] {
            assert!(text.contains(words), "{text}");
        }
        assert!(!text.contains("TLS"), "{text}");
    }
    let protected =
        "-DENIED Redis is running in protected mode because protected mode is enabled\r\n";
    let full = "-ERR max number of clients reached\r\n";
    for reads in [false, true] {
        for (said, kind) in [(protected, LockErrorKind::Denied), (full, LockErrorKind::Unavailable)]
        {
            let (url, serving) = says_and_hangs_up(said, reads).await;
            for url in [url.clone(), format!("{url}?protocol=resp3")] {
                let error = soon("an answer", Locks::connect(&url)).await.expect_err("refused");
                let text = error.to_string();
                assert_eq!(error.kind(), kind, "{text}");
                assert!(text.contains(said.trim_end().split_once(' ').expect("words").1), "{text}");
                assert!(!text.contains("TLS"), "{text}");
            }
            serving.abort();
        }
    }
    // twemproxy: no message at all.
    let (url, serving) = says_and_hangs_up("", true).await;
    refused(&url, LockErrorKind::Unavailable, &["sent nothing", "a proxy", "rediss://"]).await;
    serving.abort();
    // Bytes that are no reply.
    let (url, serving) = says_and_hangs_up("\x15\x03\x03\0\x02\x02\x46", true).await;
    refused(&url, LockErrorKind::Unavailable, &["if this port speaks TLS"]).await;
    serving.abort();
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_one_are_denied() {
    let server = RedisServer::options().arg("requirepass", "correct").start();
    let url = format!("redis://:{PASSWORD}@{}/", server.address());
    refused(&url, LockErrorKind::Denied, &["credentials", "password"]).await;
    let url = format!("redis://{}/", server.address());
    refused(&url, LockErrorKind::Denied, &["credentials", "auth"]).await;
    let url = format!("redis://unknown:{PASSWORD}@{}/", server.address());
    refused(&url, LockErrorKind::Denied, &["credentials", "password"]).await;
    let locks = connect(&server.url()).await;
    assert!(!format!("{locks:?}").contains("correct"), "the password is in: {locks:?}");
}

#[tokio::test]
async fn a_replica_is_refused_as_read_only() {
    let primary = RedisServer::start();
    let source = format!("127.0.0.1 {}", primary.port());
    let replica = RedisServer::options().arg("replicaof", &source).start();
    let mut redis = Raw::connect(&replica.url()).await;
    eventually("the replica is in step", SOON, async || {
        redis.info("replication").await.contains("master_link_status:up")
    })
    .await;
    refused(&replica.url(), LockErrorKind::ReadOnly, &["replica", "primary"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_a_replica_refuses_as_read_only_and_waiters_ride_it_out() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let other = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    let waiting = queued(&other, "k", LONG, &mut setup.redis).await;
    let mut follow = cmd("REPLICAOF");
    // The server becomes a replica of a port without a server: it keeps its data, and refuses
    // writes.
    let closed = Port::free();
    follow.arg("127.0.0.1").arg(closed.number());
    setup.redis.ask::<()>(&follow).await;
    let start = Instant::now();
    let error = soon("an answer", locks.try_lock("x")).await.expect_err("it is read-only");
    assert_eq!(error.kind(), LockErrorKind::ReadOnly, "{error}");
    let limit = Duration::from_secs(1);
    let error = soon("an answer", locks.lock_timeout("x", limit)).await.expect_err("read-only");
    assert_eq!(error.kind(), LockErrorKind::ReadOnly, "{error}");
    assert!(start.elapsed() < Duration::from_secs(6));
    setup.redis.ask::<()>(cmd("REPLICAOF").arg("NO").arg("ONE")).await;
    release(guard).await;
    release(granted(waiting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_a_read_only_server_does_not_hammer_it_with_connections() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let closed = Port::free();
    setup.redis.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(closed.number())).await;
    let before = setup.proxy.accepted();
    let limit = Duration::from_secs(2);
    let error = soon("an answer", locks.lock_timeout("x", limit)).await.expect_err("read-only");
    assert_eq!(error.kind(), LockErrorKind::ReadOnly, "{error}");
    let opened = setup.proxy.accepted() - before;
    assert!(opened < 30, "{opened} connections in {limit:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_enough_replicas_refuses_as_read_only_within_the_callers_deadline() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    setup.redis.configure("min-replicas-to-write", "1").await;
    let error = soon("an answer", locks.try_lock("x")).await.expect_err("too few replicas");
    assert_eq!(error.kind(), LockErrorKind::ReadOnly, "{error}");
    let start = Instant::now();
    let limit = Duration::from_secs(1);
    let error = soon("an answer", locks.lock_timeout("x", limit)).await.expect_err("too few");
    assert_eq!(error.kind(), LockErrorKind::ReadOnly, "{error}");
    assert!(error.to_string().to_lowercase().contains("replicas"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(4));
    let waiting = tokio::spawn(locks.lock("x"));
    setup.redis.configure("min-replicas-to-write", "0").await;
    release(granted(waiting).await).await;
}

#[tokio::test]
async fn a_server_that_is_loading_is_unavailable() {
    let server = FakeServer::start(|request| match request[0].to_uppercase().as_str() {
        "AUTH" | "CLIENT" => "+OK\r\n".to_owned(),
        _ => "-LOADING Redis is loading the dataset in memory\r\n".to_owned(),
    });
    refused(&server.await.url(), LockErrorKind::Unavailable, &["loading"]).await;
}

#[tokio::test]
async fn a_server_that_is_too_old_is_unsupported_and_says_which_would_do() {
    let server = FakeServer::start(|request| match request[0].to_uppercase().as_str() {
        "INFO" => {
            let info = "# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n";
            format!("${}\r\n{info}\r\n", info.len())
        }
        "CLIENT" if request[1].eq_ignore_ascii_case("ID") => ":1\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    });
    refused(&server.await.url(), LockErrorKind::Unsupported, &["6.0.16", "6.2"]).await;
}

#[tokio::test]
async fn a_server_in_cluster_mode_is_unsupported() {
    let server = RedisServer::options().arg("cluster-enabled", "yes").start();
    refused(&server.url(), LockErrorKind::Unsupported, &["cluster mode", "redis+cluster://"]).await;
}

#[tokio::test]
async fn a_server_that_talks_nonsense_is_an_error_in_time() {
    let server = FakeServer::start(|_| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()).await;
    let error = soon("an answer", Locks::connect(server.url())).await.expect_err("not Redis");
    let kinds = [LockErrorKind::Unavailable, LockErrorKind::Protocol];
    assert!(kinds.contains(&error.kind()), "{error}");
    assert!(!shown(&error).contains(PASSWORD));
}
