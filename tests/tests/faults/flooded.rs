//! A subscription flooded with unrequested messages, and a subscription so slow that the server
//! closes it.

use lock_tests::{Connections, Flow, Proxy, Raw, RedisServer, eventually};

use crate::common::{
    LONG, SOON, channel, connect, granted, held, listens, queue_has, queued, release, setup, soon,
};

/// Publishes `count` messages on a node's channel.
async fn flood(redis: &mut Raw, node: &str, count: usize, message: &str) {
    let channel = channel(node);
    for _ in 0..count / 1_000 {
        let mut pipeline = redis::pipe();
        for _ in 0..1_000 {
            pipeline.cmd("PUBLISH").arg(&channel).arg(message).ignore();
        }
        redis.run(&pipeline).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_messages_of_strangers_delay_a_grant_and_do_not_forge_one() {
    let mut setup = setup().await;
    let locks = setup.direct().await;
    let other = setup.direct().await;
    let guard = held(&locks, "k", LONG).await;
    let waiting = queued(&other, "k", LONG, &mut setup.redis).await;
    let node = other.node().to_string();
    for message in ["p", "not a message", "p 5 4711000 30000", "r 4711000", ""] {
        flood(&mut setup.redis, &node, 10_000, message).await;
    }
    assert!(!waiting.is_finished());
    queue_has(&mut setup.redis, "k", 1).await;
    release(guard).await;
    release(granted(waiting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_too_slow_for_the_server_is_cut_off_and_gets_its_grant_all_the_same() {
    let limit = "pubsub 1mb 64kb 1";
    let server = RedisServer::options().arg("client-output-buffer-limit", limit).start();
    let proxy = Proxy::start(server.address());
    let mut redis = Raw::connect(&server.url()).await;
    let locks = connect(&server.url()).await;
    let slow = connect(&proxy.url()).await;
    let guard = held(&locks, "k", LONG).await;
    let waiting = queued(&slow, "k", LONG, &mut redis).await;
    let node = slow.node().to_string();
    proxy.freeze(Connections::Subscriptions, Flow::Replies).await;
    let channel = channel(&node);
    let noise = "x".repeat(256 * 1024);
    let publisher = &channel;
    let redis = &mut redis;
    // The flood exceeds the socket buffers: it ends when the server has closed the subscription.
    eventually("the server has cut it off", SOON, async || {
        redis.publish(publisher, &noise).await == 0
    })
    .await;
    proxy.thaw();
    listens(redis, &node, 1).await;
    release(guard).await;
    let guard = soon("the grant", granted(waiting)).await;
    release(guard).await;
}
