//! Connections to servers that are slow to accept each, or that refuse.

use std::time::Duration;

use lock_tests::{Clustered, CommandStats, Front, Log, RedisOptions, eventually};
use lockcore::{Locks, LocksBuilder};
use redis::cmd;
use tokio::time::Instant;

use crate::common::{LONG, SOON, held, release, soon};

const LOGIN: &str = "locker:PASSWORD@";

/// Returns a builder with timeouts that are not reached in these tests, however busy the machine
/// is.
fn patient() -> LocksBuilder {
    Locks::builder().connect_timeout(SOON).request_timeout(SOON)
}

/// Accepts this login at a server.
async fn allow(clustered: &Clustered, number: usize) {
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg("locker").arg(&["on", ">PASSWORD", "~*", "&*", "+@all"]);
    clustered.raw(number).await.ask::<()>(&set).await;
}

/// Starts a front for each primary that accepts the login, and returns the URL of the fronts.
async fn fronts(clustered: &mut Clustered, costs: [Duration; 3]) -> (Vec<Front>, String) {
    let mut fronts = Vec::new();
    for (number, cost) in costs.into_iter().enumerate() {
        allow(clustered, number).await;
        let front = Front::start(clustered.server(number).address()).await;
        front.costs(cost);
        fronts.push(front);
    }
    let hosts: Vec<_> = fronts.iter().map(|front| front.address().to_string()).collect();
    (fronts, format!("redis+cluster://{LOGIN}{}", hosts.join(",")))
}

#[tokio::test]
async fn servers_that_need_more_than_a_second_for_a_connection_are_queried_at_first() {
    let mut clustered = Clustered::steady().await;
    let (_fronts, url) = fronts(&mut clustered, [Duration::from_millis(1_200); 3]).await;
    let locks = soon("a connection", patient().connect(url)).await.expect("accepted");
    for primary in 0..3 {
        release(held(&locks, &clustered.key_of(primary, 0)).await).await;
    }
}

#[tokio::test]
async fn a_silent_server_delays_no_query_to_the_next() {
    let mut clustered = Clustered::steady().await;
    let (_fronts, url) = fronts(&mut clustered, [LONG, LONG, Duration::ZERO]).await;
    let locks = tokio::time::timeout(SOON / 2, patient().connect(url)).await;
    let locks = locks.expect("in time").expect("accepted");
    release(held(&locks, &clustered.key_of(0, 0)).await).await;
}

// On a single thread, so that the thread's subscriber sees everything.
#[tokio::test]
async fn a_new_primary_that_refuses_is_tried_again_after_pauses_and_with_one_warning() {
    /// The shortest pause after many refusals.
    const PAUSE: Duration = Duration::from_millis(500);
    let (log, _here) = Log::listen();
    let mut clustered =
        Clustered::start(RedisOptions::default(), true, Duration::from_secs(2)).await;
    for number in [0, 1, 2, 4, 5] {
        allow(&clustered, number).await;
    }
    let url = clustered.url_with("redis", LOGIN, "127.0.0.1");
    let locks = soon("a connection", patient().connect(url)).await.expect("accepted");
    clustered.fail_over(0).await;
    let began = Instant::now();
    let [mut refusing, mut another] = [clustered.raw(3).await, clustered.raw(1).await];
    let before = CommandStats::read(&mut refusing).await;
    // A third of the queries: the primaries are queried in turn.
    let queries = async |redis: &mut _| CommandStats::read(redis).await.calls("cluster|slots");
    let first = queries(&mut another).await;
    let key = clustered.key_of(0, 0);
    eventually("the topology is queried often", SOON, async || {
        // Each redirect to the new primary leads to a query.
        let tried = tokio::time::timeout(PAUSE, locks.try_lock(&key)).await;
        assert!(!matches!(tried, Ok(Ok(_))), "the primary refuses: {tried:?}");
        queries(&mut another).await >= first + 15
    })
    .await;
    let logins = CommandStats::read(&mut refusing).await.since(&before).calls("auth");
    // The first seven pauses are shorter.
    let most = 8 + began.elapsed().as_millis() / PAUSE.as_millis();
    assert!((2..=most).contains(&logins.into()), "{logins} logins, at most {most}");
    let address = clustered.server(3).address().to_string();
    let is_of_it = |line: &String| line.contains("cannot be used") && line.contains(&address);
    let warnings: Vec<_> = log.warnings().into_iter().filter(is_of_it).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    allow(&clustered, 3).await;
    eventually("the new primary is used", SOON, async || locks.try_lock(&key).await.is_ok()).await;
}
