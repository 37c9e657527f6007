//! Command connections that die while idle, and requests that are only slow.

use std::time::Duration;

use lock_tests::{Connections, Flow, Monitor, eventually};
use lockcore::{LockErrorKind, Locks};

use crate::common::{LONG, SOON, connected, held, setup, soon};
use crate::script::Script;

/// The time after the last request on a connection, long before the next heartbeat.
const QUIET: Duration = Duration::from_millis(50);

// A single thread: it notices every closed connection before it sends the next request.
#[tokio::test]
async fn what_is_asked_after_an_idle_connection_was_killed_goes_out_once_on_the_next_one() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    // From then on the server has these scripts as well.
    soon("a look", locks.inspect("k")).await.expect("an answer");
    soon("an order", locks.force_release("k")).await.expect("an answer");
    for name in ["release", "ping", "inspect", "force_release"] {
        for _ in 0..5 {
            let guard = held(&locks, "k", LONG).await;
            tokio::time::sleep(QUIET).await;
            let monitor = Monitor::start(setup.server.address());
            setup.redis.kill_the_command_connection().await;
            let answer = match name {
                "release" => soon(name, guard.release()).await,
                "ping" => soon(name, locks.ping()).await,
                "inspect" => soon(name, locks.inspect("k")).await.map(drop),
                _ => soon(name, locks.force_release("k")).await.map(|was_held| assert!(was_held)),
            };
            answer.unwrap_or_else(|error| panic!("{name}: {error}"));
            let commands = monitor.stop();
            // The subscription sends PINGs, too.
            if name != "ping" {
                let script = Script::named(if name == "release" { "unlock" } else { name });
                let sent = commands.iter().filter(|line| script.runs(&line.args)).count();
                assert_eq!(sent, 1, "{name} went out {sent} times");
            }
            soon("a clean start", locks.force_release("k")).await.expect("an answer");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_connection_that_is_killed_while_idle_is_replaced_before_anything_is_asked() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    tokio::time::sleep(QUIET).await;
    let accepted = setup.proxy.accepted();
    setup.redis.kill_the_command_connection().await;
    // A heartbeat comes five seconds after the last request.
    let soon = Duration::from_secs(3);
    eventually("a new one", soon, async || setup.proxy.accepted() == accepted + 1).await;
    connected(&locks).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_answered_late_breaks_no_connection_whose_ping_is_answered() {
    let setup = setup().await;
    let patience = Duration::from_secs(1);
    let builder = Locks::builder().request_timeout(patience);
    let locks = soon("a connection", builder.connect(setup.proxy.url())).await.expect("accepted");
    let accepted = setup.proxy.accepted();
    setup.proxy.hold_replies().await;
    let error = soon("its time", locks.inspect("k")).await.expect_err("nothing was answered");
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    setup.proxy.release_replies();
    soon("a ping", locks.ping()).await.expect("answered after the one that was late");
    tokio::time::sleep(patience * 3 / 2).await; // a PING without a reply would break it meanwhile
    assert!(locks.status().is_connected());
    assert_eq!(setup.proxy.accepted(), accepted, "the connections of the beginning");
    // A connection that stays silent is abandoned.
    setup.proxy.freeze(Connections::Commands, Flow::Replies).await;
    soon("its time", locks.inspect("k")).await.expect_err("nothing was answered");
    eventually("a new connection", SOON, async || setup.proxy.accepted() > accepted).await;
    setup.proxy.thaw();
    connected(&locks).await;
}
