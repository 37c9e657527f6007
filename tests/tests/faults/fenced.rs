//! Requests on a replaced connection: they have run by then, or never will.

use std::time::Duration;

use lock_tests::acl::set_user;
use lock_tests::{Raw, eventually};
use lockcore::Locks;
use redis::cmd;

use crate::common::{LONG, SOON, Setup, connected, held, nothing_left, setup, soon};
use crate::script::runs;

/// The ids of the command connections in a server's list with this text in their lines.
async fn ids(redis: &mut Raw, text: &str) -> Vec<u64> {
    let clients: String = redis.ask(cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal")).await;
    let ours = clients.lines().filter(|line| line.contains(text));
    let id = |line: &str| line.split(' ').find_map(|word| word.strip_prefix("id=")?.parse().ok());
    ours.map(|line| id(line).expect("each has an id")).collect()
}

/// Delays a release in flight until its connection is replaced. Returns whether the server still
/// has the old connection then, and lets the release pass.
async fn hangs(setup: &mut Setup, url: &str) -> bool {
    let builder = Locks::builder().namespace("shop").request_timeout(Duration::from_secs(1));
    let locks = soon("a connection", builder.connect(url)).await.expect("accepted");
    let old = ids(&mut setup.redis, "name=lockcore:").await;
    let [old] = old[..] else { panic!("one connection for commands: {old:?}") };
    let guard = held(&locks, "k", LONG).await;
    let late = setup.proxy.hold_request(runs("unlock"));
    let releasing = tokio::spawn(guard.release());
    soon("the release", late.struck()).await;
    // The PING behind it has no reply either.
    eventually("another connection", SOON, async || {
        let now = ids(&mut setup.redis, "name=lockcore:").await;
        locks.status().is_connected() && now.iter().any(|id| *id != old)
    })
    .await;
    let stays = ids(&mut setup.redis, "name=lockcore:").await.contains(&old);
    late.release();
    let _ = soon("an end", releasing).await.expect("no panic");
    nothing_left(&mut setup.redis, "shop:k").await;
    stays
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_hangs_on_a_replaced_connection_never_runs() {
    let mut setup = setup().await;
    let url = setup.proxy.url();
    assert!(!hangs(&mut setup, &url).await, "the old connection stands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_one_of_the_rights_nothing_is_ended_and_the_release_is_done_all_the_same() {
    let rights = ["+info", "+client|info", "+client|kill"];
    for missing in rights {
        let mut setup = setup().await;
        setup.redis.ask::<()>(&set_user("locker", |_| false)).await;
        let others = rights.iter().filter(|right| **right != missing);
        let mut allow = cmd("ACL").arg("SETUSER").arg("locker").to_owned();
        for right in others {
            allow.arg(right);
        }
        setup.redis.ask::<()>(&allow).await;
        let url = format!("redis://locker:PASSWORD@{}/", setup.proxy.address());
        assert!(hangs(&mut setup, &url).await, "ended without {missing}");
    }
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
