//! The live view: its events, and its cost.

use std::time::Duration;

use lock_tests::{CommandStats, Raw, RedisServer};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::office::{Office, SOON};
use crate::scratch::Scratch;
use crate::sse::Events;

/// A watcher of the page, with the board seen so far.
struct Watcher {
    events: Events,
    seats: Vec<Value>,
    trouble: Value,
}

impl Watcher {
    async fn new(office: &Office) -> Self {
        let events = Events::of(office.ask("/events")).await;
        Self { events, seats: Vec::new(), trouble: Value::Null }
    }

    /// Applies an event, and returns its seat numbers.
    async fn next(&mut self) -> Vec<u64> {
        let change = self.events.expect("hall").await;
        self.trouble = change["trouble"].clone();
        let seats = change["seats"].as_array().expect("an array");
        for seat in seats {
            let number = number(seat) as usize;
            if self.seats.len() < number {
                self.seats.resize(number, Value::Null);
            }
            self.seats[number - 1] = seat.clone();
        }
        seats.iter().map(number).collect()
    }

    async fn until(&mut self, is_so: impl Fn(&Self) -> bool) {
        while !is_so(self) {
            self.next().await;
        }
    }

    /// Waits until a seat is shown in this state.
    async fn until_seat(&mut self, seat: usize, buyer: Value, holder: Value, waiters: Value) {
        let all = async {
            self.until(|seen| {
                let seat = &seen.seats[seat - 1];
                seat["buyer"] == buyer && seat["holder"] == holder && seat["waiters"] == waiters
            })
            .await;
        };
        timeout(SOON, all).await.expect("it is shown in time");
    }
}

fn number(seat: &Value) -> u64 {
    seat["seat"].as_u64().expect("a number")
}

#[tokio::test]
async fn a_watcher_sees_everything_first_and_then_what_changes() {
    let office = Office::open(&["--seats", "3"]).await;
    office.buy(3, "Early", 0).await;
    let mut watcher = Watcher::new(&office).await;
    assert_eq!(watcher.next().await, [1, 2, 3]);
    assert_eq!(watcher.seats[2]["buyer"], "Early");
    assert!(watcher.seats[2]["token"].is_u64());
    assert_eq!((&watcher.seats[0]["holder"], &watcher.trouble), (&Value::Null, &Value::Null));

    let first = tokio::spawn(office.buy(2, "<b>Ann</b>", 1_000));
    watcher.until_seat(2, Value::Null, json!("<b>Ann</b>"), json!([])).await;
    let second = tokio::spawn(office.buy(2, "Bob", 0));
    watcher.until_seat(2, Value::Null, json!("<b>Ann</b>"), json!(["Bob"])).await;
    let third = tokio::spawn(office.buy(2, "Cleo", 0));
    watcher.until_seat(2, Value::Null, json!("<b>Ann</b>"), json!(["Bob", "Cleo"])).await;
    third.abort();
    watcher.until_seat(2, Value::Null, json!("<b>Ann</b>"), json!(["Bob"])).await;
    watcher.until_seat(2, json!("<b>Ann</b>"), Value::Null, json!([])).await;
    assert_eq!(first.await.expect("it does not panic").status, 200);
    second.await.expect("it does not panic").refuses(409, "seat-sold");
}

#[tokio::test]
async fn only_seats_that_change_are_sent() {
    let office = Office::open(&[]).await;
    let mut watcher = Watcher::new(&office).await;
    assert_eq!(watcher.next().await.len(), 20);
    office.buy(7, "Ann", 0).await;
    assert_eq!(watcher.next().await, [7]);
}

#[tokio::test]
async fn what_another_process_does_is_seen_too() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let (here, there) = Office::two(&server, &scratch, &[]).await;
    let mut watcher = Watcher::new(&here).await;
    watcher.next().await;
    let paying = tokio::spawn(there.buy(5, "Ann", 2_000));
    watcher.until_seat(5, Value::Null, json!("Ann"), json!([])).await;
    watcher.until_seat(5, json!("Ann"), Value::Null, json!([])).await;
    assert_eq!(paying.await.expect("it does not panic").status, 200);
}

#[tokio::test]
async fn that_redis_is_away_is_told_and_that_it_is_back() {
    let mut server = RedisServer::start();
    let office = Office::open(&["--redis", &server.url(), "--database", ":memory:"]).await;
    let mut watcher = Watcher::new(&office).await;
    watcher.next().await;
    assert_eq!(watcher.trouble, Value::Null);
    server.kill();
    timeout(SOON, watcher.until(|seen| seen.trouble.is_string())).await.expect("it is told");
    server.restart();
    timeout(SOON, watcher.until(|seen| seen.trouble.is_null())).await.expect("it is told");
}

/// Returns how many scripts the server runs in three seconds.
async fn scripts(redis: &mut Raw) -> u64 {
    let before = CommandStats::read(redis).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    CommandStats::read(redis).await.since(&before).calls("evalsha")
}

#[tokio::test]
async fn fifty_watchers_cost_redis_what_one_costs_and_none_cost_nothing() {
    let server = RedisServer::start();
    let office = Office::open(&["--redis", &server.url(), "--database", ":memory:"]).await;
    let mut redis = Raw::connect(&server.url()).await;
    assert_eq!(scripts(&mut redis).await, 0, "no client watches");
    let mut watchers = vec![Watcher::new(&office).await];
    watchers[0].next().await;
    let of_one = scripts(&mut redis).await;
    for _ in 1..50 {
        watchers.push(Watcher::new(&office).await);
    }
    for watcher in &mut watchers[1..] {
        assert_eq!(watcher.next().await.len(), 20);
    }
    let of_fifty = scripts(&mut redis).await;
    // The office reads 20 seats, twice a second.
    assert!((20..=160).contains(&of_one), "{of_one} in 3 s");
    assert!((20..=160).contains(&of_fifty), "{of_fifty} in 3 s, and {of_one} for one");
}
