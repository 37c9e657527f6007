//! A buyer that follows its queue position.

use lock_tests::{Raw, RedisServer, eventually};
use lockcore::Locks;
use serde_json::json;

use crate::office::{Office, SOON};
use crate::scratch::Scratch;
use crate::sse::Events;

/// Buys a seat, and follows the events.
async fn follow(office: &Office, seat: u32, buyer: &str) -> Events {
    let order = json!({ "buyer": buyer, "pay_ms": 0 }).to_string();
    Events::of(office.post(&format!("/seats/{seat}/buy/events"), "application/json", &order)).await
}

async fn others(server: &RedisServer) -> Locks {
    let locks = Locks::builder().namespace("ticket-office").label("the test");
    locks.connect(server.url()).await.expect("the server is up")
}

#[tokio::test]
async fn a_buyer_sees_its_position_fall_its_turn_and_its_ticket() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let (here, there) = Office::two(&server, &scratch, &[]).await;
    let hold = others(&server).await.lock("seat:1").await.expect("it is free");
    let first = tokio::spawn(there.buy(1, "Bob", 0));
    here.until_line(1, Some("the test"), &["Bob"]).await;
    let second = tokio::spawn(there.buy(1, "Cleo", 0));
    here.until_line(1, Some("the test"), &["Bob", "Cleo"]).await;

    let mut ann = follow(&here, 1, "Ann").await;
    let place = ann.expect("place").await;
    assert_eq!(place["ahead"], 2);
    // This process is not notified that the other process's buyer has left: the board polls.
    second.abort();
    let next = ann.expect("place").await;
    assert_eq!(next["ahead"], 1);
    assert!(next["waited_ms"].as_u64() > place["waited_ms"].as_u64(), "{place} {next}");
    first.abort();
    assert_eq!(ann.expect("place").await["ahead"], 0);

    hold.release().await.expect("it was held");
    let turn = ann.expect("turn").await;
    let ticket = ann.expect("ticket").await;
    assert_eq!((&ticket["buyer"], &ticket["token"]), (&json!("Ann"), &turn["token"]));
    assert_eq!(ann.next().await, None);
    assert_eq!(there.buyer(1).await, "Ann");
    here.until_line(1, None, &[]).await;
}

#[tokio::test]
async fn a_buyer_whose_connection_drops_is_gone_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    // The wait does not end during this test.
    let url = server.url();
    let arguments = ["--redis", &url, "--database", ":memory:", "--max-wait", "3600"];
    let office = Office::open(&arguments).await;
    let hold = others(&server).await.lock("seat:1").await.expect("it is free");
    let mut ann = follow(&office, 1, "Ann").await;
    ann.expect("place").await;
    office.until_line(1, Some("the test"), &["Ann"]).await;
    drop(ann);
    office.until_line(1, Some("the test"), &[]).await;

    hold.release().await.expect("it was held");
    office.until_line(1, None, &[]).await;
    assert_eq!(office.buyer(1).await, json!(null));
    let mut redis = Raw::connect(&server.url()).await;
    eventually("only the counter and the patience of the process are left", SOON, async || {
        let keys = redis.keys("*").await;
        keys.iter().all(|key| *key == lock_tests::COUNTER || key.contains(":patience"))
    })
    .await;
}

#[tokio::test]
async fn a_buyer_that_hangs_up_in_its_turn_has_bought() {
    let office = Office::open(&[]).await;
    let order = json!({ "buyer": "Ann", "pay_ms": 500 }).to_string();
    let request = office.post("/seats/1/buy/events", "application/json", &order);
    let mut ann = Events::of(request).await;
    ann.expect("turn").await;
    drop(ann);
    eventually("it is sold", SOON, async || office.buyer(1).await == "Ann").await;
    office.until_line(1, None, &[]).await;
}

#[tokio::test]
async fn a_refusal_is_the_last_event_or_the_answer_to_a_bad_order() {
    let office = Office::open(&["--queue-limit", "1"]).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 20_000));
    office.until_line(1, Some("Ann"), &[]).await;
    let mut waits = follow(&office, 1, "Bob").await;
    assert_eq!(waits.expect("place").await["ahead"], 0);
    let mut refused = follow(&office, 1, "Cleo").await;
    let problem = refused.expect("problem").await;
    assert_eq!((&problem["status"], &problem["code"]), (&json!(429), &json!("lock-queue-full")));
    assert!(problem["retry_after"].as_u64().is_some_and(|seconds| seconds > 0), "{problem}");
    assert_eq!(refused.next().await, None);
    let bad = office.post("/seats/1/buy/events", "application/json", r#"{"buyer":" "}"#);
    crate::office::answer(bad).await.refuses(422, "order-invalid");
    let nowhere = office.post("/seats/0/buy/events", "application/json", r#"{"buyer":"Ann"}"#);
    crate::office::answer(nowhere).await.refuses(404, "seat-unknown");
    paying.abort();
}

#[tokio::test]
async fn a_wait_that_times_out_says_so_at_the_end() {
    let office = Office::open(&["--max-wait", "1"]).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 20_000));
    office.until_line(1, Some("Ann"), &[]).await;
    let mut waits = follow(&office, 1, "Bob").await;
    let place = waits.expect("place").await;
    assert!(place["waited_ms"].as_u64() < Some(1_000), "{place}");
    assert_eq!(waits.expect("problem").await["code"], "lock-busy");
    assert!(!paying.is_finished());
    paying.abort();
}
