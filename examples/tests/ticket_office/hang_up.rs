//! Buyers that disconnect: waiting buyers are removed, and paying buyers are served.

use std::time::Duration;

use lock_tests::{RedisServer, eventually};
use lockcore::Locks;

use crate::office::{Office, SOON};

#[tokio::test]
async fn who_hangs_up_in_line_is_gone_and_never_served() {
    let server = RedisServer::start();
    let office = Office::open(&["--redis", &server.url(), "--database", ":memory:"]).await;
    // Another client keeps the seat locked without buying it.
    let locks = Locks::builder().namespace("ticket-office").label("the test");
    let locks = locks.connect(server.url()).await.expect("the server is up");
    let hold = locks.lock("seat:1").await.expect("it is free");

    let gone = tokio::spawn(office.buy(1, "Bob", 0));
    office.until_line(1, Some("the test"), &["Bob"]).await;
    let stays = tokio::spawn(office.buy(1, "Cleo", 0));
    office.until_line(1, Some("the test"), &["Bob", "Cleo"]).await;
    gone.abort();
    office.until_line(1, Some("the test"), &["Cleo"]).await;
    hold.release().await.expect("it was held");

    assert_eq!(stays.await.expect("it does not panic").status, 200);
    assert_eq!(office.buyer(1).await, "Cleo");
    office.until_line(1, None, &[]).await;
    let metrics = office.get("/metrics").await;
    assert!(metrics.text.contains("ticket_office_sold_total 1\n"), "{}", metrics.text);
}

#[tokio::test]
async fn who_hangs_up_while_paying_has_bought() {
    let office = Office::open(&[]).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 1_000));
    office.until_line(1, Some("Ann"), &[]).await;
    paying.abort();
    // The sale continues under the lock: the next buyer waits for it.
    let next = tokio::spawn(office.buy(1, "Bob", 0));
    office.until_line(1, Some("Ann"), &["Bob"]).await;
    next.await.expect("it does not panic").refuses(409, "seat-sold");
    assert_eq!(office.buyer(1).await, "Ann");
}

#[tokio::test]
async fn a_client_that_sends_half_an_order_holds_nothing() {
    let office = Office::open(&[]).await;
    let (half, rest) = tokio::sync::mpsc::channel::<Result<&str, std::io::Error>>(1);
    half.send(Ok(r#"{"buyer":"Slow""#)).await.expect("there is room");
    let body =
        futures_util::stream::unfold(rest, async |mut rest| Some((rest.recv().await?, rest)));
    let slow =
        office.post("/seats/1/buy", "application/json", "").body(reqwest::Body::wrap_stream(body));
    let slow = tokio::spawn(slow.send());
    // The request has begun: the channel has room only after the first part was read.
    half.send(Ok(",")).await.expect("it is sent");
    half.send(Ok(r#""pay_ms":"#)).await.expect("it is sent");
    assert_eq!(office.buy(1, "Ann", 0).await.status, 200);
    half.send(Ok("0}")).await.expect("it is sent");
    drop(half);
    let late = slow.await.expect("it does not panic").expect("it answers");
    assert_eq!(late.status(), 409);
}

#[tokio::test]
async fn many_that_hang_up_leave_nothing_in_redis() {
    let server = RedisServer::start();
    let office =
        Office::open(&["--redis", &server.url(), "--database", ":memory:", "--queue-limit", "100"])
            .await;
    let buyers: Vec<_> = (0..40)
        .map(|number| tokio::spawn(office.buy(number % 4 + 1, &format!("buyer {number}"), 200)))
        .collect();
    for (number, buyer) in buyers.iter().enumerate() {
        // The client disconnects in all stages: before the request is sent, in the queue, paying,
        // and afterwards.
        tokio::time::sleep(Duration::from_millis(number as u64 % 20)).await;
        buyer.abort();
    }
    let mut redis = lock_tests::Raw::connect(&server.url()).await;
    eventually("no hold and no place is left", SOON, async || {
        // Besides the counter there are tombstones, lock keys that record them, and the office's
        // liveness deadline.
        for key in redis.keys("*").await {
            let expires = key == lock_tests::COUNTER
                || key.ends_with(":gone")
                || key.contains(":patience:")
                || key.ends_with('}')
                    && redis.get(&key).await.is_none_or(|lock_key| lock_key.starts_with("-*0:"));
            if !expires {
                return false;
            }
        }
        true
    })
    .await;
}
