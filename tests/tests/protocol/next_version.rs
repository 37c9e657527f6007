//! Members of the next version of the protocol, written by a newer node: a node of this version
//! refuses their locks and changes nothing, so that neither version grants a lock beside the other.

use lock_tests::{lock_key, queue_key};
use proto::LockErrorKind;
use redis::cmd;

use crate::bench::{Bench, LOCK};
use crate::facts;
use crate::strange::{Scene, ask_everything, set_up};

facts! {
    queue_scripts: [
        a_lock_of_the_next_version_is_refused_and_never_changed,
        a_waiter_of_the_next_version_is_never_granted_or_taken_out,
    ],
}

const NEXT: &str = "~3AAAAAAAAAAAAAAAAAAAAAA:1:30000:w:a label";

async fn a_lock_of_the_next_version_is_refused_and_never_changed(mut bench: Bench) {
    let node = bench.node().await;
    for mark in ["", "+", "-"] {
        for which in 0.. {
            bench.restart().await;
            let (holder, waiting) = set_up(&node, Scene::HeldWithQueue).await;
            let value = format!("{mark}{NEXT}");
            let set = cmd("SET").arg(lock_key(LOCK)).arg(value).arg("PX").arg(90_000).to_owned();
            bench.redis().ask::<()>(&set).await;
            let before = bench.everything().await;
            let asked = ask_everything(&node, &holder, &waiting, which).await;
            let Some((name, answer)) = asked else { break };
            let error = answer.expect_err(name);
            assert_eq!(error.kind, LockErrorKind::WrongType, "{name} at {mark:?}: {error:?}");
            assert_eq!(bench.everything().await, before, "{name} at {mark:?}");
        }
    }
}

async fn a_waiter_of_the_next_version_is_never_granted_or_taken_out(mut bench: Bench) {
    let node = bench.node().await;
    for score in ["0", "9007199254740991"] {
        for which in 0.. {
            bench.restart().await;
            let (holder, waiting) = set_up(&node, Scene::HeldWithQueue).await;
            let add = cmd("ZADD").arg(queue_key(LOCK)).arg(score).arg(NEXT).to_owned();
            bench.redis().ask::<()>(&add).await;
            let asked = ask_everything(&node, &holder, &waiting, which).await;
            let Some((name, answer)) = asked else { break };
            // Behind other members it is not read.
            if let Err(error) = answer {
                assert_eq!(error.kind, LockErrorKind::WrongType, "{name} at {score}: {error:?}");
            }
            let stored = cmd("ZSCORE").arg(queue_key(LOCK)).arg(NEXT).to_owned();
            let stored: Option<String> = bench.redis().ask(&stored).await;
            assert_eq!(stored.as_deref(), Some(score), "{name} at {score}");
            let value: Option<String> = bench.redis().ask(cmd("GET").arg(lock_key(LOCK))).await;
            let is_granted = value.is_some_and(|value| value.contains(NEXT));
            assert!(!is_granted, "{name} at {score}");
        }
    }
}
