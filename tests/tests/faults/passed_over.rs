//! Waiters whose node is not connected when their turn comes, while a tool subscribes to
//! everything.

use lock_tests::eventually;

use crate::common::{
    LONG, SOON, connected, deadlines_key, granted, held, listens, queue, queued, release, setup,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_who_was_passed_over_keeps_its_place_and_gets_its_turn() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let (near, far) = (setup.direct().await, setup.through().await);
    let guard = held(&near, "k", LONG).await;
    let passed = queued(&far, "k", LONG, &mut setup.redis).await;
    let next = queued(&near, "k", LONG, &mut setup.redis).await;
    let last = queued(&near, "k", LONG, &mut setup.redis).await;
    let places = queue(&mut setup.redis, "k").await;
    setup.proxy.refuse().await;
    setup.proxy.cut_all().await;
    listens(&mut setup.redis, far.node().as_str(), 0).await;
    release(guard).await;
    let guard = granted(next).await;

    assert_eq!(queue(&mut setup.redis, "k").await, [places[0].clone(), places[2].clone()]);
    let now_ms = (setup.redis.time_us().await / 1_000) as f64;
    let patience = patience(&mut setup.redis, &places[0]).await;
    assert!(patience <= now_ms + 5_000.0, "{} ms left", patience - now_ms);
    assert!(patience > now_ms, "{} ms left", patience - now_ms);

    setup.proxy.accept();
    connected(&far).await;
    let redis = &mut setup.redis;
    eventually("its patience is restored", SOON, async || {
        self::patience(redis, &places[0]).await > now_ms + 10_000.0
    })
    .await;
    release(guard).await;
    let guard = granted(passed).await;
    assert!(!last.is_finished(), "it was first");
    release(guard).await;
    release(granted(last).await).await;
    assert_eq!(far.status().places_lost, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_who_stays_away_after_being_passed_over_is_out_of_the_way_in_five_seconds() {
    let mut setup = setup().await;
    let _watcher = setup.watched().await;
    let (near, far) = (setup.direct().await, setup.through().await);
    let guard = held(&near, "k", LONG).await;
    let gone = queued(&far, "k", LONG, &mut setup.redis).await;
    setup.proxy.refuse().await;
    setup.proxy.cut_all().await;
    listens(&mut setup.redis, far.node().as_str(), 0).await;
    release(guard).await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&near, "k", LONG, &mut setup.redis).await;
    assert_eq!(queue(&mut setup.redis, "k").await.len(), 2);
    // Every touch of the other waiter drops what has expired.
    let redis = &mut setup.redis;
    eventually("it is swept", SOON, async || queue(redis, "k").await.len() == 1).await;
    setup.proxy.accept();
    eventually("its loss is counted", SOON, async || far.status().places_lost == 1).await;
    release(guard).await;
    release(granted(waiting).await).await;
    release(granted(gone).await).await;
}

async fn patience(redis: &mut lock_tests::Raw, member: &str) -> f64 {
    let scores = redis.scores(&deadlines_key("k")).await;
    scores.into_iter().find(|(name, _)| name == member).expect("it waits").1
}
