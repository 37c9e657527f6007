//! Cut connections, of commands and of messages separately, while locks are used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lock_tests::{CommandStats, Connections, Flow, Proxy, eventually};
use lockcore::LockErrorKind;

use crate::common::{
    LONG, SOON, connect, connected, counter, granted, held, holder, listens, nothing_left, queue,
    queued, release, setup, soon,
};
use crate::witness::Witness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_overlaps_and_everybody_gets_through_while_connections_are_cut_again_and_again() {
    const NODES: usize = 3;
    const VISITS: usize = 12;
    let mut setup = setup().await;
    let witness = Arc::new(Witness::default());
    let proxies: Vec<_> = (0..NODES).map(|_| Proxy::start(setup.server.address())).collect();
    let mut nodes = Vec::new();
    let mut workers = Vec::new();
    for proxy in &proxies {
        let locks = connect(&proxy.url()).await;
        for _ in 0..2 {
            let locks = locks.clone();
            let witness = Arc::clone(&witness);
            workers.push(tokio::spawn(async move {
                for _ in 0..VISITS {
                    let acquire = locks.key("k").lease(LONG).lock();
                    let guard = soon("the lock", acquire).await.expect("a cut is ridden out");
                    let visit = witness.enter(&guard);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    drop(visit);
                    if let Err(error) = soon("the release", guard.release()).await {
                        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
                    }
                }
            }));
        }
        nodes.push(locks);
    }
    let mut cuts = 0;
    while workers.iter().any(|worker| !worker.is_finished()) {
        let which = if cuts % 2 == 0 { Connections::Commands } else { Connections::Subscriptions };
        proxies[cuts % NODES].cut(which).await;
        connected(&nodes[cuts % NODES]).await;
        cuts += 1;
    }
    for worker in workers {
        worker.await.expect("no panic");
    }
    assert!(cuts >= 4, "only {cuts} cuts");
    assert_eq!(witness.visits(), NODES * 2 * VISITS);
    nothing_left(&mut setup.redis, "k").await;
    for locks in nodes {
        assert_eq!(locks.status().positions_lost, 0);
    }
}

/// When hundreds of processes reconnect at the same time, their scripts would keep the server busy.
#[tokio::test]
async fn a_connection_to_the_same_server_loads_no_script_again() {
    let mut setup = setup().await;
    let locks = setup.through().await;
    let before = CommandStats::read(&mut setup.redis).await;
    assert!(before.calls("script|load") > 0, "the first connection loads them");
    assert!(setup.proxy.cut(Connections::Commands).await > 0);
    connected(&locks).await;
    release(held(&locks, "k", LONG).await).await;
    let work = CommandStats::read(&mut setup.redis).await.since(&before);
    assert_eq!(work.calls("script|load"), 0, "{work:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_ride_out_reconnects_keep_their_positions_and_are_served_in_order() {
    let mut setup = setup().await;
    let other_proxy = Proxy::start(setup.server.address());
    let nodes = [setup.through().await, connect(&other_proxy.url()).await];
    let holder = setup.direct().await;
    let guard = held(&holder, "k", LONG).await;
    let mut waiting = Vec::new();
    for number in 0..6 {
        waiting.push(queued(&nodes[number % 2], "k", LONG, &mut setup.redis).await);
    }
    let order = queue(&mut setup.redis, "k").await;
    for cut in 0..6 {
        let which = [Connections::Commands, Connections::Subscriptions, Connections::All][cut % 3];
        for proxy in [&setup.proxy, &other_proxy] {
            proxy.cut(which).await;
        }
        for locks in &nodes {
            eventually("it notices the cut, or is back", SOON, async || {
                locks.status().is_connected()
            })
            .await;
        }
        assert_eq!(queue(&mut setup.redis, "k").await, order);
    }
    for locks in &nodes {
        listens(&mut setup.redis, locks.node().as_str(), 1).await;
    }
    let mut guard = guard;
    let mut last = guard.fencing_token();
    for (member, next) in order.iter().zip(waiting) {
        release(guard).await;
        guard = granted(next).await;
        assert_eq!(holder_of(&mut setup).await.as_ref(), Some(member));
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
    }
    release(guard).await;
    assert_eq!(nodes.map(|locks| locks.status().positions_lost), [0, 0]);
}

async fn holder_of(setup: &mut crate::common::Setup) -> Option<String> {
    holder(&mut setup.redis, "k").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_stays_where_it_was_when_it_only_missed_messages() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    let member = queue(&mut setup.redis, "k").await;
    setup.proxy.refuse().await;
    setup.proxy.cut_all().await;
    eventually("it is away", SOON, async || !far.status().is_connected()).await;
    assert_eq!(far.status().waiting, 1);
    setup.proxy.accept();
    connected(&far).await;
    assert_eq!(queue(&mut setup.redis, "k").await, member);
    release(guard).await;
    release(granted(waiting).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_message_is_lost_is_told_by_the_next_touch() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    // Its claim is 2 s, its touch period 0.8 s.
    let lease = Duration::from_secs(6);
    let waiting = queued(&far, "k", lease, &mut setup.redis).await;
    let members = queue(&mut setup.redis, "k").await;
    // The server counts a subscriber that receives nothing.
    setup.proxy.freeze(Connections::Subscriptions, Flow::Replies).await;
    release(guard).await;
    assert_eq!(queue(&mut setup.redis, "k").await.len(), 0, "it was handed over");
    let issued = counter(&mut setup.redis).await;
    let guard = granted(waiting).await;
    assert!(guard.fencing_token().get() >= issued, "it may have a new one");
    assert_eq!(holder(&mut setup.redis, "k").await, members.into_iter().next());
    assert_eq!(far.status().positions_lost, 0);
    release(guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_sent_into_a_subscription_that_breaks_is_told_after_the_reconnect() {
    let mut setup = setup().await;
    let near = setup.direct().await;
    let far = setup.through().await;
    let guard = held(&near, "k", LONG).await;
    let waiting = queued(&far, "k", LONG, &mut setup.redis).await;
    setup.proxy.freeze(Connections::Subscriptions, Flow::Replies).await;
    release(guard).await;
    let grantee = holder(&mut setup.redis, "k").await;
    let issued = counter(&mut setup.redis).await;
    setup.proxy.cut_subscriptions().await;
    setup.proxy.thaw();
    // Its own touches come only every 4 s.
    let guard = tokio::time::timeout(Duration::from_millis(3_500), granted(waiting)).await;
    let guard = guard.expect("touched as soon as it is connected again");
    assert_eq!(holder(&mut setup.redis, "k").await, grantee, "the same grant");
    assert!(guard.fencing_token().get() >= issued, "it may have a new token");
    release(guard).await;
}

// A status call waited for a mutex, whose holder waited for the end of the status call.
#[test]
fn a_status_is_told_however_often_it_is_asked_for_while_connections_break() {
    const CUTS: usize = 10;
    let (sender, receiver) = mpsc::channel();
    // If threads block each other, none of them could end the test.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let setup = setup().await;
            let locks = setup.through().await;
            let is_over = Arc::new(AtomicBool::new(false));
            let lookers = [(); 2].map(|()| {
                let (locks, is_over) = (locks.clone(), Arc::clone(&is_over));
                std::thread::spawn(move || {
                    while !is_over.load(Ordering::Acquire) {
                        let _ = locks.status();
                    }
                })
            });
            for _ in 0..CUTS {
                setup.proxy.cut_all().await;
                // The request is served on new connections.
                release(held(&locks, "k", LONG).await).await;
                connected(&locks).await;
            }
            is_over.store(true, Ordering::Release);
            for looker in lookers {
                looker.join().expect("no panic");
            }
        });
        sender.send(()).expect("the test waits");
    });
    receiver.recv_timeout(3 * SOON).expect("no look blocks a change, nor the other way round");
}
