//! Connections to a server that is slow to accept each.

use std::time::Duration;

use futures_util::future::join_all;
use lock_tests::{Front, eventually};
use lockcore::{LockErrorKind, Locks, Servers};
use redis::Client;

use crate::common::{LONG, connect, connected, held, release, setup, soon};

/// With an attempt of a second every other second, for ever, a crowd that needs longer never
/// reconnects: the front works only for clients that have given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_comes_back_to_a_server_with_costly_handshakes() {
    // Two connections each: 3 s of work for the front.
    const NODES: usize = 150;
    const EACH: Duration = Duration::from_millis(10);
    let setup = setup().await;
    let front = Front::start(setup.server.address()).await;
    let url = front.url_with_login();
    let nodes = join_all((0..NODES).map(|_| connect(&url))).await;
    front.costs(EACH);
    front.cut();
    eventually("they come again", LONG, async || front.in_line() > NODES / 2).await;
    join_all(nodes.iter().map(connected)).await;
    eventually("the line is empty", LONG, async || front.in_line() == 0).await;
    release(held(&nodes[0], "k", LONG).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_needs_more_than_a_second_for_a_connection_is_used() {
    let setup = setup().await;
    let front = Front::start(setup.server.address()).await;
    is_used_again(&front, front.url_with_login()).await;
}

/// redis-rs does not say how far an attempt has come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_needs_more_than_a_second_is_used_through_redis_rs() {
    let setup = setup().await;
    let front = Front::start(setup.server.address()).await;
    let url = front.url_with_login();
    is_used_again(&front, format!("{url}?protocol=resp3")).await;
    is_used_again(&front, Client::open(url).expect("well formed")).await;
}

/// Connects to a front that needs more than a second for each connection, and again after a cut.
async fn is_used_again(front: &Front, servers: impl Into<Servers>) {
    front.costs(Duration::from_millis(1_200));
    let locks = soon("a connection", Locks::connect(servers)).await.expect("accepted");
    front.cut();
    eventually("the cut is noticed", LONG, async || front.in_line() > 0).await;
    connected(&locks).await;
    release(held(&locks, "k", LONG).await).await;
}

// Until it is set up, a new connection waits for replies as long as for the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_on_a_connection_that_took_long_has_no_more_time_than_any_other() {
    let setup = setup().await;
    let front = Front::start(setup.server.address()).await;
    let builder = Locks::builder().request_timeout(Duration::from_secs(1));
    let locks = builder.connect(front.url_with_login()).await.expect("the server accepts us");
    // The first attempt has a second, and the next has four.
    front.costs(Duration::from_millis(1_200));
    front.cut();
    eventually("the cut is noticed", LONG, async || front.in_line() > 0).await;
    connected(&locks).await;
    setup.server.freeze();
    let error = soon("an answer", locks.ping()).await.expect_err("the server is silent");
    setup.server.thaw();
    assert!(!error.to_string().contains("is the runtime"), "the caller gave up first: {error}");
}

#[tokio::test]
async fn a_server_that_needs_longer_than_the_user_allows_is_refused_with_the_step() {
    let setup = setup().await;
    let front = Front::start(setup.server.address()).await;
    front.costs(Duration::from_secs(5));
    let times = Duration::from_millis(50);
    let builder = Locks::builder().connect_timeout(times).request_timeout(times);
    let error = builder.connect(front.url_with_login()).await.expect_err("it needs longer");
    assert_eq!(error.kind(), LockErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("no connection in time: the login was not complete"), "{text}");
}

#[tokio::test]
async fn a_time_to_connect_out_of_its_range_is_refused() {
    for timeout in [Duration::from_millis(49), Duration::from_secs(61)] {
        let builder = Locks::builder().connect_timeout(timeout);
        let error = builder.connect("redis://127.0.0.1:1/").await.expect_err("out of range");
        assert_eq!(error.kind(), LockErrorKind::InvalidOption);
        assert!(error.to_string().contains("connect_timeout"), "{error}");
    }
}
