//! Queues that JVMs share: other programs' keys there. All else of the dialect is compared with its
//! rules as a function by the tests `differential`, and with JVMs by the tests `redisson`.

use std::time::Duration;

use futures_util::StreamExt as _;
use lockcore::LockErrorKind;
use lockcore::internals::{Command, LockName, wire};
use redis::cmd;
use tokio::time::timeout;

use crate::asking::touch;
use crate::bench::{Bench, LOCK, SOON};
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

#[tokio::test]
async fn a_lock_whose_name_has_braces_pokes_redisson_s_own_channel() {
    const JVM: &str = "5c2e4d1a-0b8e-4c3f-9a51-0e7c9b1d2f3a:41";
    let mut bench = Bench::start().await;
    bench.lock = LockName::from("{tenant}:x");
    let a = bench.peer().await;
    let holder = a.hold(30_000).await;
    let client = redis::Client::open(bench.server.url()).expect("a URL");
    let mut subscription = client.get_async_pubsub().await.expect("a subscription");
    subscription.subscribe(format!("redisson_lock__channel:{{tenant}}:x:{JVM}")).await.expect("ok");
    let mut pokes = subscription.on_message();
    let mut pipeline = redis::pipe();
    pipeline.cmd("RPUSH").arg("redisson_lock_queue:{tenant}:x").arg(JVM);
    let deadline = bench.now_ms().await + Duration::from_secs(300).as_millis() as u64;
    pipeline.cmd("ZADD").arg("redisson_lock_timeout:{tenant}:x").arg(deadline).arg(JVM);
    bench.redis.run(&pipeline).await;
    a.release(&holder).await;
    let poke = timeout(SOON, pokes.next()).await.expect("in time").expect("a poke");
    assert_eq!(poke.get_payload_bytes(), b"0");
}
