//! Tests of nodes whose runtime has ended, or is not driven.

use std::time::Duration;

use futures_util::poll;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

use super::{SOON, granted, soon, wait_as};
use crate::LockErrorKind;
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;

const LEASE: Duration = Duration::from_secs(2);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

// The server of a Redis store sees the connections close.
#[test]
fn a_waiter_in_memory_whose_runtime_has_ended_is_skipped_at_once() {
    let (ours, theirs) = (runtime(), runtime());
    let store = MemoryStore::new();
    let node = async || Locks::builder().on_memory(&store).expect("options");
    let [holding, next] = ours.block_on(async { [node().await, node().await] });
    let guard = ours.block_on(holding.lock("key")).expect("free");
    let ended = theirs.block_on(node());
    let mut dead = Box::pin(ended.lock("key"));
    theirs.block_on(async { assert!(poll!(dead.as_mut()).is_pending()) });
    let waiting = ours.block_on(wait_as(2, &next, "key"));
    drop(theirs);
    ours.block_on(async {
        let released = Instant::now();
        guard.release().await.expect("held until now");
        drop(granted(waiting).await);
        assert!(released.elapsed().as_millis() < 100, "{:?}", released.elapsed());
    });
}

/// Returns the `Locks` of a node and of a quorum, made in this runtime.
fn node_and_quorum(theirs: &Runtime) -> [Locks; 2] {
    theirs.block_on(async {
        [Locks::in_memory(), Locks::builder().in_memory_quorum(3).expect("3 stores")]
    })
}

#[test]
fn a_loss_is_noticed_on_another_runtime_although_that_of_its_locks_is_not_driven() {
    let (ours, theirs) = (runtime(), runtime());
    for locks in node_and_quorum(&theirs) {
        let guard = theirs.block_on(locks.key("key").lease(LEASE).lock()).expect("free");
        ours.block_on(async {
            soon(guard.lost()).await;
            assert!(guard.is_lost());
        });
    }
}

#[test]
fn a_release_after_the_end_of_the_runtime_says_whether_the_lease_had_ended_too() {
    for (after, kind) in [(LEASE / 2, LockErrorKind::Closed), (2 * LEASE, LockErrorKind::Lost)] {
        let (ours, theirs) = (runtime(), runtime());
        let guards = node_and_quorum(&theirs)
            .map(|locks| theirs.block_on(locks.key("key").lease(LEASE).lock()).expect("free"));
        drop(theirs);
        ours.block_on(async {
            sleep(after).await;
            for guard in guards {
                let error = soon(guard.release()).await.expect_err("nothing can be sent");
                assert_eq!(error.kind(), kind, "{error}");
            }
        });
    }
}

#[test]
fn a_shutdown_after_the_end_of_the_runtime_waits_for_no_response() {
    let (ours, theirs) = (runtime(), runtime());
    let mut ended = Vec::new();
    for locks in node_and_quorum(&theirs) {
        let [dropped, released] =
            ["dropped", "released"].map(|key| theirs.block_on(locks.lock(key)).expect("free"));
        let mut waiting = Box::pin(locks.lock("dropped"));
        theirs.block_on(async {
            assert!(poll!(waiting.as_mut()).is_pending());
            sleep(LEASE).await;
        });
        ended.push((locks, dropped, released, waiting));
    }
    drop(theirs);
    ours.block_on(async {
        for (locks, dropped, released, waiting) in ended {
            soon(waiting).await.expect_err("it has ended");
            soon(released.release()).await.expect_err("nothing can be sent");
            drop(dropped);
            let begun = Instant::now();
            locks.shutdown(SOON).await;
            assert!(begun.elapsed().as_millis() < 100, "{:?}", begun.elapsed());
        }
    });
}
