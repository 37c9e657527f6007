//! Queues that JVMs share: other programs' keys there. All else of the dialect is compared with its
//! rules as a function by the tests `differential`, and with JVMs by the tests `redisson`.

use lockcore::internals::wire;

use crate::bench::Bench;
use crate::strange::{Scene, check};

async fn check_shared(scene: Scene) {
    let bench = Bench::start().await;
    let a = bench.peer().await;
    let keys = wire::redisson::keys(&bench.lock, &a.member(30_000));
    let mut keys: Vec<_> =
        keys.map(|key| String::from_utf8(key).expect("a text")).into_iter().collect();
    keys.truncate(4); // all but a tombstone
    let others = ["alive", "arrivals", "suspects"];
    let others = others.map(|which| keys[1].replacen("queue", which, 1));
    keys.extend(others);
    check(bench, a, scene, &keys).await;
}

#[tokio::test]
async fn a_strange_key_at_a_free_lock_shared_with_jvms_is_named_and_never_changed() {
    check_shared(Scene::Free).await;
}

#[tokio::test]
async fn a_strange_key_at_a_held_lock_shared_with_jvms_is_named_and_never_changed() {
    check_shared(Scene::Held).await;
}

#[tokio::test]
async fn a_strange_key_at_a_queue_shared_with_jvms_is_named_and_never_changed() {
    check_shared(Scene::HeldWithQueue).await;
}
