//! Connections to servers that are slow to accept each, or that refuse.

use std::time::Duration;

use lock_tests::{Clustered, CommandStats, Log, RedisOptions, eventually};
use lockcore::{Locks, LocksBuilder};
use redis::cmd;
use tokio::time::Instant;

use crate::common::{SOON, soon};

const LOGIN: &str = "locker:PASSWORD@";

/// Returns a builder with timeouts that are not reached in these tests, however busy the machine is.
fn patient() -> LocksBuilder {
    Locks::builder().connect_timeout(SOON).request_timeout(SOON)
}

/// Accepts this login at a server.
async fn allow(clustered: &Clustered, number: usize) {
    let mut set = cmd("ACL");
    set.arg("SETUSER").arg("locker").arg(&["on", ">PASSWORD", "~*", "&*", "+@all"]);
    clustered.raw(number).await.ask::<()>(&set).await;
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
        locks.try_lock(&key).await.expect_err("the primary refuses");
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
