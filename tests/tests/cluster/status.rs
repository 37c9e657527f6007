//! The status of each server, as known to a node without a request.

use lock_tests::{Clustered, RedisOptions, RedisServer, Watched, eventually};
use lockcore::Locks;
use lockcore::operate::{Connection, ServerStatus};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::time::Instant;

use crate::common::{SOON, connect, held, release, slot, soon};

/// The status of the server with this address.
fn of(locks: &Locks, address: &impl ToString) -> ServerStatus {
    let address = address.to_string();
    let mut servers = locks.status().servers.into_iter();
    servers.find(|server| server.address == address).expect("the server is known")
}

fn slots(locks: &Locks) -> u16 {
    locks.status().servers.iter().filter_map(|server| server.slots).sum()
}

#[tokio::test]
async fn each_primary_is_shown_with_its_slots_also_when_one_has_moved() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let addresses = [0, 1, 2].map(|primary| clustered.server(primary).address());
    let shown = locks.status().servers;
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert!(shown.is_sorted_by(|one, next| one.address < next.address), "{shown:?}");
    for (address, slots) in addresses.iter().zip([5_461, 5_461, 5_462]) {
        let server = of(&locks, address);
        assert!(server.is_connected(), "{server:?}");
        assert_eq!(server.slots, Some(slots), "{server:?}");
        // A node queries the slots occasionally.
        eventually("all is answered", SOON, async || of(&locks, address).unanswered == Some(0))
            .await;
    }
    // A slot in the middle: the slots of its primary are two ranges then.
    let key = clustered.key_of(0, 1);
    assert!((1..5_460).contains(&slot(&key)));
    clustered.move_slot(slot(&key), 0, 1).await;
    release(held(&locks, &key).await).await;
    // The third server may not know yet, and be queried meanwhile.
    eventually("one slot has moved", SOON, async || {
        of(&locks, &addresses[0]).slots == Some(5_460)
            && of(&locks, &addresses[1]).slots == Some(5_462)
    })
    .await;
    assert_eq!(slots(&locks), 16_384);
}

#[tokio::test]
async fn a_primary_that_dies_is_shown_with_the_reason_and_the_time_until_it_is_back() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let [dead, other] = [1, 0].map(|primary| clustered.server(primary).address());
    let asked = Instant::now();
    release(held(&locks, &clustered.key_of(1, 0)).await).await;
    assert!(of(&locks, &dead).silent_for <= asked.elapsed());

    clustered.server(1).kill();
    let killed = Instant::now();
    eventually("it is known to be down", SOON, async || {
        let server = of(&locks, &dead);
        matches!(server.commands, Connection::Down { reason, .. } if !reason.is_empty())
            && matches!(server.subscription, Connection::Down { .. })
    })
    .await;
    let gone = killed.elapsed();
    let server = of(&locks, &dead);
    assert!(server.silent_for >= gone && !server.is_connected(), "{server:?} after {gone:?}");
    assert_eq!((server.slots, server.unanswered), (Some(5_461), None), "{server:?}");
    assert!(of(&locks, &other).is_connected());
    assert!(locks.status().is_connected(), "others are");

    clustered.server(1).restart();
    eventually("it is up again", SOON, async || of(&locks, &dead).is_connected()).await;
    assert!(of(&locks, &dead).silent_for < killed.elapsed());
}

#[tokio::test]
async fn a_gauge_counts_the_primaries_that_are_down_though_the_process_is_idle() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _local = metrics::set_default_local_recorder(&recorder);
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let down = async |count: u8| {
        let line = format!("lockcore_servers_down {count}");
        eventually(&line, SOON, async || recorder.handle().render().lines().any(|it| it == line))
            .await;
    };
    down(0).await;
    clustered.server(1).kill();
    down(1).await;
    assert!(locks.status().is_connected(), "others are");
    clustered.server(1).restart();
    down(0).await;
}

#[tokio::test]
async fn requests_that_a_frozen_primary_has_not_answered_are_counted() {
    let mut clustered = Clustered::steady().await;
    let locks = connect(&clustered).await;
    let frozen = clustered.server(2).address();
    clustered.server(2).freeze();
    let asking = tokio::spawn({
        let (locks, key) = (locks.clone(), clustered.key_of(2, 0));
        async move { locks.inspect(key).await }
    });
    eventually("it is on its way", SOON, async || {
        of(&locks, &frozen).unanswered.is_some_and(|number| number > 0)
    })
    .await;
    clustered.server(2).thaw();
    let _ = soon("the end", asking).await;
    eventually("it is answered", SOON, async || of(&locks, &frozen).unanswered == Some(0)).await;
}

#[tokio::test]
async fn one_server_is_shown_without_slots_and_a_store_in_memory_has_none() {
    let server = RedisServer::start();
    let locks = soon("a connection", Locks::connect(server.url())).await.expect("accepted");
    let shown = locks.status().servers;
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].is_connected() && shown[0].slots.is_none(), "{shown:?}");
    assert_eq!(shown[0].address, server.address().to_string());
    assert_eq!(Locks::in_memory().status().servers, []);
}

#[tokio::test]
async fn behind_sentinels_the_primary_of_now_is_shown() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let locks = soon("a connection", Locks::connect(watched.url())).await.expect("accepted");
    let shown = |locks: &Locks| locks.status().servers.into_iter().next().expect("one");
    assert_eq!(shown(&locks).address, watched.server(0).address().to_string());
    watched.in_step().await;
    watched.server(0).kill();
    let now = watched.promoted(0).await;
    let address = watched.server(now).address().to_string();
    eventually("the new primary is shown", SOON, async || {
        let server = shown(&locks);
        server.address == address && server.is_connected()
    })
    .await;
}
