//! The same tests on a Redis Cluster.

use lock_tests::{Clustered, queued};
use lockcore::Locks;
use tokio::time::timeout;

use crate::common::{Running, SOON, assert_free, inspect, lockctl, run, server};

/// The number of waiters on each of three locks.
const WAITERS: usize = 7;

#[tokio::test]
async fn on_a_cluster_waiters_of_three_primaries_are_shown_and_served_in_order() {
    let clustered = Clustered::steady().await;
    let url = clustered.url();
    let locks = timeout(SOON, Locks::connect(&url)).await.expect("in time").expect("accepted");
    let keys = [0, 1, 2].map(|primary| clustered.key_of(primary, 0));
    let mut holders = Vec::new();
    for key in &keys {
        let script = "echo; exec cat";
        holders.push(Running::start(&url, &["--label", "first"], key, script).await);
    }
    let mut waiters = Vec::new();
    for place in 1..=WAITERS {
        for key in &keys {
            let label = format!("waiter {place}");
            let script = "echo $LOCK_TOKEN";
            let arguments =
                ["exec", "--wait", "300", "--label", &label, key, "--", "sh", "-c", script];
            waiters.push((key, lockctl(&url, arguments).spawn().expect("it starts")));
        }
        for key in &keys {
            queued(&locks, key, place).await;
        }
    }
    for key in &keys {
        let found = inspect(&url, key).await;
        assert_eq!(found["holders"][0]["label"], "first");
        let labels = found["waiters"].as_array().expect("a list").iter();
        let labels: Vec<_> = labels.map(|waiter| waiter["label"].as_str().expect("one")).collect();
        let expected: Vec<_> = (1..=WAITERS).map(|place| format!("waiter {place}")).collect();
        assert_eq!(labels, expected, "{key}");
    }
    for holder in holders {
        holder.finish().await.is(0);
    }
    // A later waiter for a lock has a greater token.
    let mut last = [0; 3];
    for (key, waiter) in waiters {
        let ended = timeout(SOON, waiter.wait_with_output()).await.expect("it ends").expect("read");
        assert!(ended.status.success(), "{ended:?}");
        let token = String::from_utf8(ended.stdout).expect("text");
        let token: u64 = token.trim().parse().expect("a token is a number");
        let last = &mut last[clustered.primary_of(key)];
        assert!(token > *last, "{key}: {token} after {last}");
        *last = token;
    }
    for key in &keys {
        assert_free(&url, key).await;
    }
}

#[tokio::test]
async fn on_a_cluster_a_wait_ends_and_a_hold_is_released_by_force() {
    let clustered = Clustered::steady().await;
    let url = clustered.url();
    for primary in 0..3 {
        let key = clustered.key_of(primary, 0);
        let holder = Running::start(&url, &[], &key, "echo; exec cat").await;
        run(&url, ["exec", "--wait", "0.2", &key, "--", "true"]).await.says(75, &key);
        run(&url, ["release", "--force", &key]).await.is(0);
        holder.end().await.says(74, "lost");
        run(&url, ["release", "--force", &key]).await.says(1, "not held");
    }
}

#[tokio::test]
async fn on_a_cluster_the_status_shows_each_primary_and_names_one_that_is_down() {
    let mut clustered = Clustered::steady().await;
    let url = clustered.url();
    let shown = run(&url, ["status"]).await;
    shown.is(0);
    assert_eq!(shown.stdout.lines().count(), 3, "{shown:?}");
    for (primary, slots) in [(0, 5_461), (1, 5_461), (2, 5_462)] {
        let address = clustered.server(primary).address();
        let line = format!("{address}  commands: up  messages: up  slots: {slots}");
        assert!(shown.stdout.lines().any(|shown| shown == line), "no {line:?} in {shown:?}");
    }
    clustered.server(1).kill();
    let address = clustered.server(1).address().to_string();
    run(&url, ["status"]).await.says(69, &address);
}

#[tokio::test]
async fn the_status_of_one_server_is_a_line_without_slots() {
    let shown = run(&server().url(), ["status"]).await;
    shown.is(0);
    let address = server().address();
    assert_eq!(shown.stdout, format!("{address}  commands: up  messages: up\n"));
}
