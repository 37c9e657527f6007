//! Records on a Redis Cluster: each record is served by the primary of its slot.

use deadpool_redis::Runtime;
use deadpool_redis::cluster::Config;
use lock_idempotency::{Outcome, RedisReplays, ReplayStore as _, Started};
use lock_tests::Clustered;

use crate::steps::every_step;
use crate::support::{finish, key, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_all_primaries_are_served() {
    let mut clustered = Clustered::steady().await;
    let urls: Vec<_> = (0..3).map(|at| clustered.server(at).url()).collect();
    let pool = Config::from_urls(urls).create_pool(Some(Runtime::Tokio1)).unwrap();
    let store = RedisReplays::new(pool).prefix("shop:replay");
    every_step(&store).await;
    // So many keys that each primary has some of them.
    for number in 0..48 {
        let key = key(&format!("b{number}"));
        let begun = store.start(&key, &start(5, true)).await.unwrap();
        assert_eq!(begun, Started::Begun { again: false });
        let finish = finish(5, "paid");
        store.finish(&key, &finish).await.unwrap();
        let record = store.look_up(&key).await.unwrap().unwrap();
        assert!(matches!(record.outcome(), Some(Outcome::Kept(answer)) if answer.body() == "paid"));
    }
    for at in 0..3 {
        let keys = clustered.raw(at).await.keys("shop:replay:*").await;
        assert!(!keys.is_empty(), "primary {at}");
    }
}
