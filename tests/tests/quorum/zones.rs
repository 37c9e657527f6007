//! A link between two zones that stays cut under continuous load: each zone reaches a majority, and
//! is served.

use std::time::Duration;

use lock_tests::chaos::Relay;
use lockcore::{Locks, Quorum};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::primaries::{MAX_LEASE, Three};

/// The lock of the tests, each of which loads the whole machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// How long the load lasts.
const LOAD: Duration = Duration::from_secs(4);
/// The longest wait of a request; far above the turns of all others.
const WAIT: Duration = Duration::from_secs(25);
const HOLD: Duration = Duration::from_millis(100);

/// The unreachable primary of each zone.
const ZONES: [Option<usize>; 3] = [Some(2), None, Some(0)];

/// The number of guards in each zone with this many tasks. Nobody is refused.
async fn served(tasks: [usize; 3]) -> [usize; 3] {
    let _alone = ONE_AT_A_TIME.lock().await;
    let servers = Three::start();
    let relays = servers.0.each_ref().map(|server| Relay::start(server.address(), ZONES.len()));
    let quorum = Quorum::new(relays.iter().map(Relay::url)).max_lease(MAX_LEASE);
    let builder = || Locks::builder().lease(MAX_LEASE);
    builder().init_quorum(quorum.clone()).await.expect("they are new");
    let mut nodes = Vec::new();
    for (zone, away) in ZONES.iter().enumerate() {
        let locks = builder().connect(quorum.clone()).await.expect("connected");
        relays.iter().for_each(|relay| relay.know(zone, locks.node().as_str()));
        if let Some(away) = away {
            relays[*away].cut(zone);
        }
        nodes.push(locks);
    }
    let end = Instant::now() + LOAD;
    let mut load = JoinSet::new();
    for (zone, tasks) in tasks.into_iter().enumerate() {
        for _ in 0..tasks {
            let locks = nodes[zone].clone();
            load.spawn(async move {
                let mut guards = 0;
                while Instant::now() < end {
                    let guard = locks.lock_timeout("k", WAIT).await;
                    let guard = guard.unwrap_or_else(|error| panic!("zone {zone}: {error}"));
                    sleep(HOLD).await;
                    drop(guard);
                    guards += 1;
                }
                (zone, guards)
            });
        }
    }
    let mut served = [0; 3];
    for (zone, guards) in load.join_all().await {
        served[zone] += guards;
    }
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_of_a_cut_link_are_served() {
    let served = served([16, 0, 16]).await;
    assert!(served[0] >= 16 && served[2] >= 16, "{served:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_beside_a_cut_link_is_served_and_stops_nobody() {
    let served = served([1, 16, 16]).await;
    assert!(served[0] >= 1 && served[1] >= 16 && served[2] >= 16, "{served:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_zones_with_a_cut_link_are_served() {
    let served = served([8, 8, 8]).await;
    assert!(served.iter().all(|guards| *guards >= 8), "{served:?}");
}
