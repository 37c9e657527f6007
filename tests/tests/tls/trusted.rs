//! A server that is trusted: everything works as without TLS, on both connections.

use std::time::Duration;

use deadpool_redis::{Config, Manager, Pool};
use lock_tests::eventually;
use lockcore::{HoldState, Locks};
use redis::cmd;

use crate::authority::Authority;
use crate::setup::{Clients, SOON, Setup, soon};

/// Locks, waits in line and hands over; a message alone tells of the loss.
pub(crate) async fn exercise(near: &Locks, far: &Locks, setup: &Setup) {
    let mut redis = setup.raw().await;
    let guard = soon(near.lock("k")).await.expect("free");
    let waiting = tokio::spawn(far.lock("k"));
    eventually("it waits", SOON, async || redis.queue("k").await.len() == 1).await;
    soon(guard.release()).await.expect("held");
    let guard = soon(waiting).await.expect("no panic").expect("handed over");
    let member = redis.holder("k").await.expect("it holds");
    let number = member.split(':').nth(1).expect("a member has a number");
    let channel = format!("lockcore:grants:{}", far.node());
    assert_eq!(redis.publish(&channel, &format!("r {number}")).await, 1);
    soon(guard.lost()).await;
    assert_eq!(guard.state(), HoldState::Lost);
    assert!(soon(near.force_release("k")).await.expect("an answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_authority_is_trusted_carries_locks_and_messages() {
    let setup = Setup::start();
    let near = setup.connect().await;
    let far = setup.connect().await;
    exercise(&near, &far, &setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_connections_come_back_over_tls() {
    let setup = Setup::start();
    let near = setup.connect().await;
    let far = setup.connect().await;
    let mut redis = setup.raw().await;
    // The server may still have a connection that was only used to connect.
    let alone = async || {
        let mut list = cmd("CLIENT");
        list.arg("LIST").arg("TYPE").arg("normal");
        redis.ask::<String>(&list).await.lines().count() == 3
    };
    eventually("all others are closed", SOON, alone).await;
    for kind in ["normal", "pubsub"] {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
        assert_eq!(redis.ask::<u64>(&kill).await, 2, "{kind}");
    }
    let channels = [&near, &far].map(|locks| format!("lockcore:grants:{}", locks.node()));
    eventually("both are back", SOON, async || {
        let mut counted = 0;
        for channel in &channels {
            counted += redis.subscribers(channel).await;
        }
        counted == 2 && near.status().is_connected() && far.status().is_connected()
    })
    .await;
    exercise(&near, &far, &setup).await;
}

// One thread: it sees every connection that the server has closed before it sends the next request.
#[tokio::test]
async fn what_is_asked_after_an_idle_connection_was_killed_goes_out_over_tls_on_the_next_one() {
    let setup = Setup::start();
    let locks = setup.connect().await;
    let mut redis = setup.raw().await;
    for what in ["release", "ping", "inspect", "force_release"] {
        let guard = soon(locks.lock("k")).await.expect("free");
        tokio::time::sleep(Duration::from_millis(50)).await; // the connection is idle meanwhile
        redis.kill_the_command_connection().await;
        let answer = match what {
            "release" => soon(guard.release()).await,
            "ping" => soon(locks.ping()).await,
            "inspect" => soon(locks.inspect("k")).await.map(drop),
            _ => soon(locks.force_release("k")).await.map(|was_held| assert!(was_held)),
        };
        answer.unwrap_or_else(|error| panic!("{what}: {error}"));
        soon(locks.force_release("k")).await.expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_a_pool_and_a_client_are_used_over_tls() {
    let setup = Setup::start();
    let config = Config::from_url(setup.url());
    let near = soon(setup.builder().connect(config)).await.expect("it is trusted");
    let certificates = redis::TlsCertificates {
        client_tls: None,
        root_cert: Some(setup.authority.pem.clone().into_bytes()),
    };
    let client = redis::Client::build_with_tls(setup.url(), certificates).expect("well formed");
    let manager = Manager::new(client.get_connection_info().clone()).expect("well formed");
    let pool = Pool::builder(manager).build().expect("well formed");
    let far = soon(setup.builder().from_pool(pool, setup.url())).await.expect("it is trusted");
    exercise(&near, &far, &setup).await;
    // The certificates are the client's own: the builder has none.
    let near = soon(Locks::connect(client)).await.expect("it is trusted");
    exercise(&near, &far, &setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_opens_a_server_that_asks_for_one() {
    let authority = Authority::new();
    let identity = authority.sign("127.0.0.1");
    let client = authority.sign("a client");
    let setup = Setup::with(authority, &identity, Clients::Certified);
    let builder = setup.builder().tls_identity(&client.certificate, &client.key);
    let near = soon(builder.clone().connect(setup.url())).await.expect("it is known");
    let far = soon(builder.connect(setup.url())).await.expect("it is known");
    exercise(&near, &far, &setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_trusted_authorities_is_enough() {
    let setup = Setup::start();
    let builder = setup.builder().tls_ca(Authority::new().pem);
    let locks = soon(builder.connect(setup.url())).await.expect("it is trusted");
    let guard = soon(locks.key("k").lease(Duration::from_secs(5)).lock()).await.expect("free");
    soon(guard.release()).await.expect("held");
}
