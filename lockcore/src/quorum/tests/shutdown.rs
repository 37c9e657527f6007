//! The shutdown of a process.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use proto::LockErrorKind;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::network::{MAX_LEASE, Network};
use super::{held_at, leak, locked, ms, soon};
use crate::node::Observer;
use crate::quorum::{Connect, NewPrimary, Primaries};
use crate::types::error::LockError;

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_acquisitions_and_holds_and_leaves_nothing() {
    let mut network = Network::new(3, 14);
    let process = network.start();
    let guard = locked(&network, process).await;
    let waiting = tokio::spawn(network.locks(process).lock("k"));
    sleep(ms(50)).await;
    let shutdown = network.locks(process).shutdown(Duration::ZERO).await;
    assert_eq!((shutdown.waiters, shutdown.holds, shutdown.unreleased), (1, 1, 0));
    let error = soon(waiting).await.expect("no panic").expect_err("it was shut down");
    assert_eq!(error.kind(), LockErrorKind::Closed);
    assert!(guard.is_lost());
    assert!(held_at(&network).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_a_majority_and_counts_what_too_few_have_released() {
    for is_noticed in [true, false] {
        // Of three primaries, one is away.
        let mut network = Network::new(3, 47);
        let process = network.start();
        let guard = locked(&network, process).await;
        sleep(ms(50)).await;
        assert_eq!(held_at(&network).await, [0, 1, 2]);
        network.cut(process, 2, is_noticed);
        drop(guard);
        let began = Instant::now();
        let shutdown = network.locks(process).shutdown(ms(20_000)).await;
        assert_eq!(shutdown.unreleased, 0, "noticed: {is_noticed}");
        assert!(began.elapsed() < ms(1_000), "noticed: {is_noticed}, {:?}", began.elapsed());
        assert_eq!(held_at(&network).await, [2], "a majority is free");
        // Two are away: the lock is counted once.
        let mut network = Network::new(3, 48);
        let process = network.start();
        let guard = locked(&network, process).await;
        sleep(ms(50)).await;
        network.cut(process, 1, is_noticed);
        network.cut(process, 2, is_noticed);
        drop(guard);
        let shutdown = network.locks(process).shutdown(ms(100)).await;
        assert_eq!(shutdown.unreleased, 1, "noticed: {is_noticed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_connects_to_primaries_that_were_away() {
    let mut network = Network::new(3, 38);
    let process = network.start();
    let present = Arc::clone(network.locks(process).backend.node());
    let (asked, reached) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    // The first primary is away, the second connects slowly.
    let away: Connect = Box::new({
        let asked = Arc::clone(&asked);
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            ready(Err(LockError::new(LockErrorKind::Unavailable))).boxed()
        }
    });
    let slow: Connect = Box::new({
        let (reached, node) = (Arc::clone(&reached), Arc::clone(&present));
        move || {
            let (reached, node) = (Arc::clone(&reached), Arc::clone(&node));
            let unknown = Err(LockError::new(LockErrorKind::Unavailable));
            async move { reached.acquire().await.map(|_| (node, unknown)).map_err(|_| unreachable!()) }
                .boxed()
        }
    });
    let terms = network.locks(process).backend.primaries().terms;
    let observer = Observer::of_quorum(present.id.clone(), &present.settings, &Handle::current());
    let list = [away, slow].map(|connect| {
        let connected = Err(LockError::new(LockErrorKind::Unavailable));
        NewPrimary { address: String::new(), connected, connect }
    });
    let primaries =
        Primaries::new(list.into(), terms, observer, &present.settings, &Handle::current());
    sleep(ms(5_000)).await;
    assert!(asked.load(Ordering::Relaxed) > 2);
    primaries.shut_down(Duration::ZERO).await;
    asked.store(0, Ordering::Relaxed);
    reached.add_permits(1);
    sleep(ms(5_000)).await;
    assert_eq!(asked.load(Ordering::Relaxed), 0, "the first is not asked any more");
    assert!(primaries.nodes().next().is_none(), "the second is not kept");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_counts_each_acquisition_once_and_no_hold_as_a_waiter() {
    // An acquisition in a round waits at two primaries.
    let mut network = Network::new(3, 31);
    let process = network.start();
    leak(&network, 1).await;
    leak(&network, 2).await;
    let waiting = tokio::spawn(network.locks(process).lock("k"));
    sleep(ms(150)).await;
    assert_eq!(network.locks(process).shutdown(Duration::ZERO).await.waiters, 1, "in a round");
    soon(waiting).await.expect("no panic").expect_err("it was shut down");
    // A fixed lease waits for its third primary.
    let mut network = Network::new(3, 32);
    let process = network.start();
    leak(&network, 2).await;
    let request = network.locks(process).key("k").fixed_lease(MAX_LEASE);
    let _guard = request.lock().await.expect("a majority is free");
    sleep(ms(50)).await;
    assert_eq!(network.locks(process).shutdown(Duration::ZERO).await.waiters, 0, "a hold");
    // An acquisition without a majority waits at no primary.
    let mut network = Network::new(3, 33);
    let process = network.start();
    network.cut(process, 1, true);
    network.cut(process, 2, true);
    sleep(ms(2_000)).await;
    let waiting = tokio::spawn(network.locks(process).lock("k"));
    sleep(ms(50)).await;
    assert_eq!(network.locks(process).shutdown(Duration::ZERO).await.waiters, 1, "no majority");
    let error = soon(waiting).await.expect("no panic").expect_err("it was shut down");
    assert_eq!(error.kind(), LockErrorKind::Closed);
}
