//! A key of another type at one of the lock's names: an error, and nothing is changed.

use lockcore::LockErrorKind;
use lockcore::internals::{Leaving, Member, Mode, StoreError};
use redis::cmd;

use crate::bench::Bench;
use crate::node::Node;

/// The state in which a command meets the strange key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scene {
    Free,
    Held,
    HeldWithQueue,
}

/// The name of each command and what came of it.
async fn ask_everything(
    node: &Node,
    holder: &Member,
    waiting: &Member,
    which: usize,
) -> Option<(&'static str, Result<(), StoreError>)> {
    let (store, lock) = (&node.store, &node.lock);
    let newcomer = node.member(30_000);
    let leaving = |member: &Member| vec![Leaving { member: member.clone(), ambiguous: true }];
    Some(match which {
        0 => ("try", store.acquire(lock, &newcomer, Mode::Try, 10).await.map(drop)),
        1 => ("wait", store.acquire(lock, &newcomer, Mode::Wait, 10).await.map(drop)),
        2 => ("acquire again", store.acquire(lock, waiting, Mode::Wait, 10).await.map(drop)),
        3 => ("release", store.release(lock, holder).await.map(drop)),
        4 => ("release of nothing", store.release(lock, &newcomer).await.map(drop)),
        5 => ("renew", store.renew(lock, holder).await.map(drop)),
        6 => ("touch", store.touch(lock, vec![waiting.clone(), holder.clone()]).await.map(drop)),
        7 => ("leave", store.leave(lock, leaving(waiting)).await.map(drop)),
        8 => ("leave of a holder", store.leave(lock, leaving(holder)).await.map(drop)),
        9 => ("force release", store.force_release(lock).await.map(drop)),
        10 => ("inspect", store.inspect(lock).await.map(drop)),
        _ => return None,
    })
}

async fn check(scene: Scene) {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let mut faults = Vec::new();
    let keys = [bench.hold_key(), bench.queue_key(), bench.deadlines_key(), bench.token_key()];
    for key in &keys {
        for type_of in ["string", "list", "hash"] {
            let of_its_own = (*key == bench.hold_key() && type_of == "hash")
                || (*key == bench.queue_key() && type_of == "list")
                || (*key == bench.token_key() && type_of == "string");
            if of_its_own {
                continue;
            }
            for which in 0.. {
                bench.redis.flush_all().await;
                let (holder, waiting) = match scene {
                    Scene::Free => (a.member(30_000), a.member(30_000)),
                    Scene::Held => (a.hold(30_000).await, a.member(30_000)),
                    Scene::HeldWithQueue => (a.hold(30_000).await, a.queue(30_000).await),
                };
                let mut strange = match type_of {
                    "string" => cmd("SET"),
                    "list" => cmd("RPUSH"),
                    _ => cmd("HSET"),
                };
                strange.arg(key).arg("somebody's");
                if type_of == "hash" {
                    strange.arg("own");
                }
                let () = bench.redis.ask(cmd("DEL").arg(key)).await;
                let () = bench.redis.ask(&strange).await;
                let before = bench.everything().await;
                let Some((name, answer)) = ask_everything(&a, &holder, &waiting, which).await
                else {
                    break;
                };
                let after = bench.everything().await;
                let strange_before = before.iter().find(|(name, ..)| name == key);
                let strange_after = after.iter().find(|(name, ..)| name == key);
                let fault = match &answer {
                    // It did not need the key; then it left it alone.
                    Ok(()) if strange_before == strange_after => None,
                    Ok(()) => Some("was answered and changed it".to_owned()),
                    Err(error) if error.kind != LockErrorKind::WrongType => {
                        Some(format!("{error:?}"))
                    }
                    Err(_) if before == after => None,
                    Err(_) => Some("failed and changed something".to_owned()),
                };
                if let Some(fault) = fault {
                    faults.push(format!("{name} with a {type_of} at {key}: {fault}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{scene:?}:\n{}", faults.join("\n"));
}

#[tokio::test]
async fn a_key_of_another_type_at_a_free_lock_is_never_changed() {
    check(Scene::Free).await;
}

#[tokio::test]
async fn a_key_of_another_type_at_a_held_lock_is_never_changed() {
    check(Scene::Held).await;
}

#[tokio::test]
async fn a_key_of_another_type_at_a_lock_with_a_queue_is_never_changed() {
    check(Scene::HeldWithQueue).await;
}

#[tokio::test]
async fn an_acquire_at_a_name_that_somebody_else_uses_says_so() {
    let mut bench = Bench::start().await;
    let a = bench.node().await;
    let keys = [bench.hold_key(), bench.queue_key(), bench.token_key()];
    for key in keys {
        bench.redis.flush_all().await;
        let () = bench.redis.ask(cmd("ZADD").arg(&key).arg(1).arg("x")).await;
        let answer = a.store.acquire(&a.lock, &a.member(30_000), Mode::Wait, 10).await;
        assert_eq!(answer.expect_err("another type").kind, LockErrorKind::WrongType, "{key}");
    }
}
