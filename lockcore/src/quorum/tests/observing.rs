//! What a process shows of a quorum, and code of others that it calls.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Context;

use proto::LockErrorKind;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use super::network::Network;
use super::{locked, ms, soon};
use crate::api::locks::Locks;
use crate::foreign::testing::{on_event, panics};

#[tokio::test]
async fn the_debug_text_of_a_quorum_shows_no_name() {
    let locks = Locks::builder().in_memory_quorum(3).expect("3 stores");
    let guard = locks.lock("secret").await.expect("free");
    assert!(locks.try_lock("secret").await.expect("an answer").is_none());
    locks.backend.primaries().set_lead(&locks.name("secret").expect("a name"), 1);
    let text = format!("{locks:?} {guard:?}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_inspection_tells_at_how_many_primaries_the_process_of_a_holder_holds() {
    let mut network = Network::new(3, 19);
    let (one, other) = (network.start(), network.start());
    let held = async |network: &Network| {
        let found = network.locks(other).inspect("k").await.expect("an inspection");
        assert_eq!((found.holding, found.token), (1, None));
        let [holder] = &found.holders[..] else { panic!("one process holds: {found:?}") };
        assert_eq!(holder.node.as_ref(), Some(network.locks(one).node()));
        let primaries = holder.primaries.expect("a quorum");
        (primaries.held, primaries.all)
    };
    let guard = locked(&network, one).await;
    sleep(ms(50)).await;
    assert_eq!(held(&network).await, (3, 3));
    // The process does not acquire it again.
    network.cut(one, 0, false);
    network.primaries[0].flush();
    assert_eq!(held(&network).await, (2, 3), "the lowest one does not know it");
    network.cut(other, 1, true);
    sleep(ms(1_500)).await;
    assert_eq!(held(&network).await, (1, 3), "one of them is not reached");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn waits_that_end_without_the_lock_are_among_the_hottest() {
    let mut network = Network::new(3, 26);
    let (one, other) = (network.start(), network.start());
    let guard = locked(&network, one).await;
    let longest =
        |network: &Network| Some(network.locks(other).hottest().first()?.waited[0].longest);
    network.locks(other).lock_timeout("k", ms(2_000)).await.expect_err("held");
    assert_eq!(longest(&network), Some(ms(2_000)), "timed out");
    let cancelled = timeout(ms(3_000), network.locks(other).lock("k")).await;
    assert!(cancelled.is_err());
    assert_eq!(longest(&network), Some(ms(3_000)), "cancelled");
    guard.release().await.expect("held");
}

// All later acquisitions of the process failed with `Closed`.
#[tokio::test(start_paused = true)]
async fn an_acquisition_whose_waker_panics_costs_no_other_its_lock() {
    let mut network = Network::new(3, 31);
    let process = network.start();
    for primary in [0, 1] {
        network.cut(process, primary, true);
    }
    sleep(ms(2_000)).await;
    let mut foreign = Box::pin(network.locks(process).lock("k"));
    assert!(foreign.as_mut().poll(&mut Context::from_waker(&panics())).is_pending());
    let other = tokio::spawn(network.locks(process).lock("other"));
    sleep(ms(100)).await;
    for primary in [0, 1] {
        network.mend(process, primary);
    }
    let guard = soon(other).await.expect("no panic").expect("granted");
    guard.release().await.expect("held");
    let later = soon(network.locks(process).lock("later")).await.expect("granted");
    later.release().await.expect("held");
    soon(foreign).await.expect("granted").release().await.expect("held");
}

// On another thread: a thread that waits for itself would hang the test.
#[test]
fn a_subscriber_may_ask_for_the_state_when_a_primary_is_refused() {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(async {
            let mut network = Network::new(3, 32);
            let process = network.start();
            let (locks, asked) = (network.locks(process).clone(), Arc::new(AtomicUsize::new(0)));
            let ask = (locks.clone(), Arc::clone(&asked));
            let subscriber = on_event("a quorum primary does not count", move || {
                assert!(!ask.0.status().is_connected());
                ask.1.fetch_add(1, Ordering::Relaxed);
            });
            let _here = tracing::dispatcher::set_default(&subscriber);
            for primary in [0, 1] {
                network.restart(primary, true);
            }
            sleep(ms(500)).await;
            // The connections seem open when the primaries are asked.
            for primary in [0, 1] {
                network.cut(process, primary, false);
            }
            sleep(ms(4_000)).await;
            let refused = locks.try_lock("k").await.expect_err("too few primaries");
            assert_eq!(refused.kind(), LockErrorKind::Unavailable);
            assert_eq!(asked.load(Ordering::Relaxed), 2);
        });
        ended.send(())
    });
    end.recv_timeout(ms(20_000)).expect("the subscriber hangs, or a panic");
}
