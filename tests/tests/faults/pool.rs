//! Connections from an existing `deadpool_redis` configuration or pool.

use deadpool_redis::{Config, PoolConfig, Runtime};
use lockcore::{LockErrorKind, Locks};

use crate::common::{LONG, connected, granted, held, queued, release, setup, soon};

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
