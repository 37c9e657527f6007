//! Other ways to connect: an existing `redis::Client` of the user, and a Unix socket.

use lock_tests::acl::set_user;
use lock_tests::{Raw, RedisServer};
use lockcore::{LockErrorKind, Locks};
use redis::{Client, cmd};

use crate::common::{LONG, connect, granted, held, queued, release, setup, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_brings_its_user_and_its_database() {
    let mut setup = setup().await;
    let mut allow = set_user("locker", |rule| rule.starts_with('~'));
    setup.redis.ask::<()>(allow.arg("+select").arg("~*")).await;
    let url = format!("redis://locker:PASSWORD@{}/3", setup.server.address());
    let client = Client::open(url).expect("well formed");
    let locks = soon("a connection", Locks::connect(client.clone())).await.expect("accepted");
    let far = soon("a connection", Locks::connect(client)).await.expect("accepted");

    let clients: String = setup.redis.ask(cmd("CLIENT").arg("LIST")).await;
    let of_user = |line: &&str| line.contains(" user=locker ") && line.contains(" db=3 ");
    let connections: Vec<_> = clients.lines().filter(of_user).collect();
    assert_eq!(connections.len(), 4, "two each: {clients}");

    setup.redis.ask::<()>(cmd("SELECT").arg(3)).await;
    let guard = held(&locks, "k", LONG).await;
    assert!(setup.redis.holder("k").await.is_some());
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    release(guard).await;
    release(granted(waiting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_user_is_refused_is_an_error_without_its_password() {
    let setup = setup().await;
    let client = Client::open(format!("redis://locker:hunter2@{}/", setup.server.address()));
    let connected = Locks::connect(client.expect("well formed"));
    let error = soon("an answer", connected).await.expect_err("there is no such user");
    assert_eq!(error.kind(), LockErrorKind::Denied, "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_carries_locks_of_the_same_queue() {
    let socket = std::env::temp_dir().join(format!("lockcore-{}.sock", std::process::id()));
    let socket = socket.to_str().expect("text");
    let server = RedisServer::options().arg("unixsocket", socket).start();
    let near = connect(&format!("redis+unix://{socket}?db=0")).await;
    let far = connect(&server.url()).await;
    let mut redis = Raw::connect(&server.url()).await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut redis).await;
    release(guard).await;
    release(granted(waiting).await).await;
}
