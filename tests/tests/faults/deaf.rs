//! A working subscription to another server than the scripts run on.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use lock_tests::{Raw, RedisServer, eventually};
use lockcore::{LockErrorKind, Locks};
use redis::cmd;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use crate::common::{
    LONG, SHORT, SOON, Setup, connected, granted, held, listens, queue, queued, release, setup,
    soon,
};

/// An address that leads to one server and later to another, like a host name or a balancer after a
/// failover. Established connections are not affected.
struct Switch {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl Switch {
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let target = Arc::new(Mutex::new(target));
        let current = Arc::clone(&target);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let target = *current.lock().expect("no panic");
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(target).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { address, target }
    }

    fn turn(&self, target: SocketAddr) {
        *self.target.lock().expect("no panic") = target;
    }

    fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}

/// A node whose commands go to the server of `setup` and whose subscription went elsewhere after a
/// break.
async fn torn(setup: &mut Setup, switch: &Switch, elsewhere: &RedisServer) -> Locks {
    switch.turn(setup.server.address());
    let config = deadpool_redis::Config::from_url(setup.server.url());
    let pool = config.create_pool(Some(deadpool_redis::Runtime::Tokio1)).expect("a pool");
    let locks = soon("a connection", Locks::builder().from_pool(pool, switch.url()))
        .await
        .expect("one server");
    switch.turn(elsewhere.address());
    let mut kill = cmd("CLIENT");
    kill.arg("KILL").arg("TYPE").arg("pubsub");
    assert_eq!(setup.redis.ask::<u64>(&kill).await, 1);
    let mut redis = Raw::connect(&elsewhere.url()).await;
    listens(&mut redis, locks.node().as_str(), 1).await;
    connected(&locks).await;
    locks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_the_server_does_not_count_is_noticed_by_a_touch_and_opened_anew() {
    let mut setup = setup().await;
    let elsewhere = RedisServer::start();
    let switch = Switch::to(elsewhere.address()).await;
    let far = torn(&mut setup, &switch, &elsewhere).await;
    let near = setup.direct().await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", SHORT, &mut setup.redis).await;
    assert!(far.status().is_connected(), "it cannot know");
    listens(&mut setup.redis, far.node().as_str(), 0).await;
    switch.turn(setup.server.address());
    listens(&mut setup.redis, far.node().as_str(), 1).await;
    let place = queue(&mut setup.redis, "k").await;
    assert_eq!(place.len(), 1);
    release(guard).await;
    release(granted(waiting).await).await;
    assert_eq!(far.status().positions_lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whom_no_message_reaches_gets_a_free_lock_by_a_touch() {
    let mut setup = setup().await;
    let elsewhere = RedisServer::start();
    let switch = Switch::to(elsewhere.address()).await;
    let far = torn(&mut setup, &switch, &elsewhere).await;
    let near = setup.direct().await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", SHORT, &mut setup.redis).await;
    release(guard).await;
    let guard = granted(waiting).await;
    release(guard).await;
    eventually("nothing waits", SOON, async || far.status().waiting == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_and_a_url_of_two_servers_are_refused_at_connect() {
    let setup = setup().await;
    let elsewhere = RedisServer::start();
    let config = deadpool_redis::Config::from_url(setup.server.url());
    let pool = config.create_pool(Some(deadpool_redis::Runtime::Tokio1)).expect("a pool");
    let refused =
        soon("an answer", Locks::builder().from_pool(pool.clone(), elsewhere.url())).await;
    let error = refused.expect_err("a hand-over could not be told");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("different servers"), "{error}");
    // Another address, behind a proxy, or another database is still the same server.
    for url in [setup.proxy.url(), format!("{}3", setup.server.url())] {
        soon("a connection", Locks::builder().from_pool(pool.clone(), url))
            .await
            .expect("one server");
    }
}
