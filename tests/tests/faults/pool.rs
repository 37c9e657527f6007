//! Connections from an existing `deadpool_redis` configuration or pool.

use std::time::Duration;

use deadpool_redis::{Config, Manager, Pool, PoolConfig, Runtime};
use lock_tests::{Connections, Flow, eventually};
use lockcore::{LockErrorKind, Locks};
use redis::AsyncConnectionConfig;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::common::{LONG, SOON, connected, granted, held, queued, release, setup, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_of_a_pool_is_all_that_is_needed() {
    let setup = setup().await;
    let config = Config::from_url(setup.server.url());
    let locks = soon("a connection", Locks::connect(config)).await.expect("accepted");
    release(held(&locks, "k", LONG).await).await;

    let mut both = Config::from_url(setup.server.url());
    both.connection = Some(deadpool_redis::ConnectionInfo::default());
    let error = soon("an answer", Locks::connect(both)).await.expect_err("contradictory");
    assert_eq!(error.kind(), LockErrorKind::InvalidOption);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slots_of_a_pool_stay_free_for_its_owner() {
    let mut setup = setup().await;
    let mut config = Config::from_url(setup.proxy.url());
    config.pool = Some(PoolConfig::new(1));
    let pool = config.create_pool(Some(Runtime::Tokio1)).expect("a pool");
    let locks = Locks::builder().from_pool(pool.clone(), setup.proxy.url());
    let locks = soon("a connection", locks).await.expect("accepted");
    let near = setup.direct().await;
    let taken = || (pool.status().size, pool.status().available);
    assert_eq!(taken(), (0, 0), "nothing was taken from it");

    let mut mine = soon("its only slot", pool.get()).await.expect("the slot is free");
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&locks, "k", LONG, &mut setup.redis).await;
    release(guard).await;
    release(granted(waiting).await).await;
    let pong: String = redis::cmd("PING").query_async(&mut mine).await.expect("it works");
    assert_eq!(pong, "PONG");
    drop(mine);
    assert_eq!(taken(), (1, 1));

    // The pool's manager replaces a broken connection, again without a slot.
    setup.proxy.cut_all().await;
    connected(&locks).await;
    release(held(&locks, "k", LONG).await).await;
    assert_eq!(taken(), (1, 1));
}

/// redis-rs counts the time of a request only once it has a permit, also that of the PING.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_connection_of_a_pool_is_replaced_in_time_whatever_its_concurrency_limit() {
    const REQUEST: Duration = Duration::from_secs(1);
    const REQUESTS: u64 = 15;
    let setup = setup().await;
    let config = AsyncConnectionConfig::new().set_concurrency_limit(1);
    let manager = Manager::new_with_config(setup.proxy.url(), config).expect("a URL");
    let pool = Pool::builder(manager).build().expect("a pool");
    let builder = Locks::builder().request_timeout(REQUEST);
    let locks = soon("a connection", builder.from_pool(pool, setup.proxy.url())).await;
    let locks = locks.expect("accepted");
    release(held(&locks, "k", LONG).await).await;
    setup.proxy.freeze(Connections::Commands, Flow::Both).await;
    let (accepted, started) = (setup.proxy.accepted(), Instant::now());
    let mut tasks = Vec::new();
    for number in 0..REQUESTS {
        tasks.push(tokio::spawn(locks.lock(format!("key {number}"))));
        // Each is a request of its own.
        tokio::time::sleep(REQUEST / 50).await;
    }
    eventually("it is replaced", SOON, async || setup.proxy.accepted() > accepted).await;
    assert!(started.elapsed() < 5 * REQUEST, "it took {:?}", started.elapsed());
    tasks.iter().for_each(JoinHandle::abort);
}
