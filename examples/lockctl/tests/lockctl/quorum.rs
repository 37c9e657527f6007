//! Quorum primaries.

use lock_tests::{RedisServer, eventually};

use crate::common::{Running, SOON, inspect, run};

/// Returns a quorum URL for these servers in this order.
fn url_of(order: [usize; 3], servers: &[RedisServer; 3]) -> String {
    let address = |at: usize| servers[at].address().to_string();
    format!("redis+quorum://{}", order.map(address).join(","))
}

fn servers() -> [RedisServer; 3] {
    [(); 3].map(|()| RedisServer::start())
}

#[tokio::test]
async fn primaries_that_were_initialised_serve_at_once_and_inspect_tells_how_many_are_held() {
    let servers = servers();
    let url = url_of([0, 1, 2], &servers);
    run(&url, ["quorum", "init"]).await.is(0);
    run(&url, ["quorum", "init"]).await.is(0);
    let shop = run(&url, ["--namespace", "shop", "quorum", "init"]).await;
    shop.is(0);
    let holder = Running::start(&url, &["--label", "first"], "k", "echo; exec cat").await;
    eventually("all primaries are held", SOON, async || {
        let found = inspect(&url, "k").await;
        found["holders"][0]["primaries"] == serde_json::json!([3, 3])
    })
    .await;
    let people = run(&url, ["inspect", "k"]).await;
    assert!(people.stdout.starts_with("k is held by first, lease "), "{people:?}");
    assert!(people.stdout.contains(", at 3 of 3 primaries\n"), "{people:?}");
    holder.finish().await.is(0);
    assert_eq!(inspect(&url, "k").await["holders"], serde_json::json!([]));
}

#[tokio::test]
async fn a_new_server_beside_one_that_has_granted_something_is_not_initialised() {
    let mut servers = servers();
    let url = url_of([0, 1, 2], &servers);
    run(&url, ["quorum", "init"]).await.is(0);
    run(&url, ["exec", "k", "--", "true"]).await.is(0);
    // All are initialised: nothing to do.
    run(&url, ["quorum", "init"]).await.is(0);
    servers[1].kill();
    servers[1].restart();
    run(&url, ["quorum", "init"]).await.says(64, "the quorum is in use");
}

#[tokio::test]
async fn primaries_that_were_used_or_are_of_another_list_are_not_initialised() {
    let servers = servers();
    let url = url_of([0, 1, 2], &servers);
    // A process that finds no identity writes one, and serves nobody for a minute.
    run(&url, ["inspect", "k"]).await.says(69, "2 are needed. 3 more are connected but do");
    run(&url, ["quorum", "init"]).await.says(64, "the server is not new");
    let swapped = url_of([1, 0, 2], &servers);
    run(&swapped, ["quorum", "init"]).await.says(64, "the server belongs to another quorum");
    run("redis://127.0.0.1/", ["quorum", "init"]).await.says(64, "redis+quorum://");
}

#[tokio::test]
async fn status_shows_a_primary_that_is_connected_but_does_not_count_as_down() {
    let mut servers = servers();
    let url = url_of([0, 1, 2], &servers);
    run(&url, ["quorum", "init"]).await.is(0);
    servers[1].restart();
    let status = run(&url, ["status"]).await;
    status.is(0);
    let is_down: Vec<_> = status.stdout.lines().map(|line| line.contains("down (")).collect();
    assert_eq!(is_down, [false, true, false], "{status:?}");
    assert!(status.stdout.contains("down (connected, but does not count yet: "), "{status:?}");
}
