//! A persistent server (AOF), shut down and restarted.

use lock_tests::{Raw, RedisServer, eventually};
use lockcore::HoldState;
use redis::cmd;

use crate::common::{LONG, SOON, connect, counter, granted, holder, queue, queued, release, soon};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restarted_with_its_data_has_every_hold_every_position_and_the_counter_of_tokens()
{
    let directory = std::env::temp_dir().join(format!("lock-persisted-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let mut server = RedisServer::options()
        .arg("dir", directory.to_str().expect("a path is text"))
        .arg("appendonly", "yes")
        .arg("appendfsync", "always")
        .start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = connect(&server.url()).await;
    let other = connect(&server.url()).await;
    let guard =
        soon("the lock", locks.key("k").fixed_lease(LONG).lock()).await.expect("a free lock");
    let first = queued(&other, "k", LONG, &mut redis).await;
    let second = queued(&locks, "k", LONG, &mut redis).await;
    let held_by = holder(&mut redis, "k").await;
    let places = queue(&mut redis, "k").await;
    let last = counter(&mut redis).await;
    let left = redis.hold("k").await.expect("it holds").1;

    let gone: redis::RedisResult<()> = redis.try_ask(&cmd("SHUTDOWN")).await;
    assert!(gone.is_err(), "it is gone");
    server.restart();
    let mut redis = Raw::connect(&server.url()).await;
    assert_eq!(holder(&mut redis, "k").await, held_by);
    assert_eq!(queue(&mut redis, "k").await, places);
    assert_eq!(counter(&mut redis).await, last);
    // The lease continued while the server was down, and nothing has renewed it.
    assert!(redis.hold("k").await.expect("it holds").1 <= left);

    eventually("connected again", SOON, async || {
        locks.status().is_connected() && other.status().is_connected()
    })
    .await;
    assert_eq!(guard.state(), HoldState::Held);
    assert!(guard.fencing_token().get() < last, "places are numbers of the counter, too");
    release(guard).await;
    let one = granted(first).await;
    assert!(one.fencing_token().get() > last);
    assert!(!second.is_finished());
    let before = one.fencing_token();
    release(one).await;
    let two = granted(second).await;
    assert!(two.fencing_token() > before);
    release(two).await;
    assert_eq!(locks.status().positions_lost + other.status().positions_lost, 0);
    drop(server);
    std::fs::remove_dir_all(&directory).expect("the server writes there no more");
}
