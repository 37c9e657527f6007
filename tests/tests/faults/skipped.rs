//! Waiters without a connected node when their turn comes, while a tool subscribes to everything.

use lock_tests::{aside_key, eventually};

use crate::common::{LONG, SOON, connected, granted, held, listens, queue, queued, release, setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_who_was_skipped_keeps_its_position_and_gets_its_turn() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    let passed = queued(&far, "k", LONG, &mut setup.redis).await;
    let next = queued(&near, "k", LONG, &mut setup.redis).await;
    // Another lease: it is not in a batch with the previous waiter.
    let last = queued(&near, "k", LONG * 2, &mut setup.redis).await;
    let places = queue(&mut setup.redis, "k").await;
    setup.proxy.refuse().await;
    setup.proxy.cut_all().await;
    listens(&mut setup.redis, far.node().as_str(), 0).await;
    release(guard).await;
    let guard = granted(next).await;

    // The skipped member is out of the way of the others.
    assert_eq!(queue(&mut setup.redis, "k").await, places[2..]);
    let aside = aside_key("k", far.node().as_str());
    assert!((1..=15_000).contains(&setup.redis.pttl(&aside).await), "it ends");

    setup.proxy.accept();
    connected(&far).await;
    let redis = &mut setup.redis;
    eventually("it is back at its position", SOON, async || {
        queue(redis, "k").await == [places[0].clone(), places[2].clone()]
    })
    .await;
    release(guard).await;
    let guard = granted(passed).await;
    assert!(!last.is_finished(), "it was first");
    release(guard).await;
    release(granted(last).await).await;
    assert_eq!(far.status().positions_lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_who_stays_away_after_being_skipped_is_forgotten_after_fifteen_seconds() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    let gone = queued(&far, "k", LONG, &mut setup.redis).await;
    setup.proxy.refuse().await;
    setup.proxy.cut_all().await;
    listens(&mut setup.redis, far.node().as_str(), 0).await;
    release(guard).await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&near, "k", LONG, &mut setup.redis).await;
    assert_eq!(queue(&mut setup.redis, "k").await.len(), 1, "nobody walks over it again");
    let redis = &mut setup.redis;
    let aside = aside_key("k", far.node().as_str());
    eventually("it is forgotten", SOON, async || !redis.exists(&aside).await).await;
    setup.proxy.accept();
    eventually("its loss is counted", SOON, async || far.status().positions_lost == 1).await;
    release(guard).await;
    release(granted(waiting).await).await;
    release(granted(gone).await).await;
}
