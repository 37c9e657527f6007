//! Requests on a connection that was replaced: they have run by then, or never will.

use std::time::Duration;

use lock_tests::{Raw, eventually};
use lockcore::Locks;
use redis::cmd;

use crate::common::{LONG, SOON, connected, held, nothing_left, setup, soon};
use crate::script::runs;

/// The ids of the clients in a server's list whose lines have this text.
async fn ids(redis: &mut Raw, text: &str) -> Vec<u64> {
    let clients: String = redis.ask(cmd("CLIENT").arg("LIST")).await;
    let ours = clients.lines().filter(|line| line.contains(text));
    let id = |line: &str| line.split(' ').find_map(|word| word.strip_prefix("id=")?.parse().ok());
    ours.map(|line| id(line).expect("each has an id")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_hangs_on_a_replaced_connection_never_runs() {
    let mut setup = setup().await;
    let builder = Locks::builder().request_timeout(Duration::from_millis(500));
    let locks = soon("a connection", builder.connect(setup.proxy.url())).await.expect("accepted");
    let old = ids(&mut setup.redis, "name=lockcore:").await;
    let guard = held(&locks, "k", LONG).await;
    let late = setup.proxy.hold_request(runs("unlock"));
    let releasing = tokio::spawn(guard.release());
    soon("the release", late.struck()).await;
    // The PING behind it is not answered, either.
    eventually("another connection", SOON, async || {
        let now = ids(&mut setup.redis, "name=lockcore:").await;
        !now.is_empty() && now.iter().all(|id| !old.contains(id))
    })
    .await;
    late.release();
    let _ = soon("an end", releasing).await.expect("no panic");
    connected(&locks).await;
    nothing_left(&mut setup.redis, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_client_that_has_the_id_on_a_restarted_server_stays() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let old = ids(&mut setup.redis, "name=lockcore:").await;
    let [old] = old[..] else { panic!("one connection for commands: {old:?}") };
    setup.proxy.refuse().await;
    setup.server.kill();
    setup.server.restart();
    let mut others = Vec::new();
    while others.last().is_none_or(|(id, _)| *id < old) {
        let mut other = Raw::connect(&setup.server.url()).await;
        others.push((other.ask::<u64>(cmd("CLIENT").arg("ID")).await, other));
    }
    assert_eq!(others.last().map(|(id, _)| *id), Some(old), "no other client is about");
    setup.proxy.accept();
    connected(&locks).await;
    for (id, mut other) in others {
        assert_eq!(other.ask::<u64>(cmd("CLIENT").arg("ID")).await, id, "it is still connected");
    }
}
