//! Queues that JVMs share: other programs' keys there. All else of the dialect is compared with its
//! rules as a function by the tests `differential`, and with JVMs by the tests `redisson`.

use lockcore::LockErrorKind;
use lockcore::internals::{Command, wire};
use redis::cmd;

use crate::asking::touch;
use crate::bench::{Bench, LOCK};
use crate::several::connections;
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

// The node's connection is not out of step, only one of its locks is another program's.
#[tokio::test]
async fn a_touch_and_a_renewal_at_another_program_s_key_cost_no_connection() {
    let mut bench = Bench::start().await;
    let a = bench.peer().await;
    let (holder, waiting) = (a.hold(30_000).await, a.queue(30_000).await);
    let () = bench.redis.ask(cmd("SET").arg(LOCK).arg("a cache entry")).await;
    let before = connections(&mut bench).await;
    for _ in 0..5 {
        let renewal = Command::Renew { members: vec![holder.clone()] };
        for command in [renewal, touch(&[&waiting])] {
            let error = a.run(command).await.expect_err("strange");
            assert_eq!((error.kind, error.may_have_run), (LockErrorKind::WrongType, false));
            assert!(a.store.commands().borrow().is_up());
        }
    }
    assert_eq!(connections(&mut bench).await, before);
}
