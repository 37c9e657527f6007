//! Tests of nodes whose runtime has ended.

use futures_util::poll;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use super::{granted, wait_as};
use crate::api::locks::Locks;
use crate::store::memory::MemoryStore;

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
