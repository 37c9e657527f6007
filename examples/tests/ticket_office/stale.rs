//! A process suspended past its lease: the database refuses its write.

use deadpool_sqlite::rusqlite::Connection;
use lock_tests::{RedisServer, eventually_some, signal};

use crate::office::{Office, SOON};
use crate::scratch::Scratch;

/// Waits until a purchase of seat 1 with a token above `after` waits for payment; returns the
/// token.
async fn begun(seats: &Connection, after: i64) -> i64 {
    let query = "SELECT token FROM seats WHERE seat = 1 AND token > ?1";
    let token = eventually_some("it has begun", SOON, async || {
        seats.query_row(query, [after], |row| row.get(0)).ok()
    })
    .await;
    // A process frozen during a write would keep the file locked: if this process can write, the
    // other is not writing.
    seats.execute_batch("BEGIN IMMEDIATE; COMMIT").expect("no other process writes");
    token
}

#[tokio::test]
async fn who_wakes_up_after_the_lease_cannot_sell_what_another_has_sold() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let (asleep, awake) = Office::two(&server, &scratch, &["--lease", "2"]).await;
    let stale = tokio::spawn(asleep.buy(1, "Stale", 1_500));
    begun(&scratch.connect(), 0).await;
    signal::stop(asleep.pid());

    let fresh = awake.buy(1, "Fresh", 0).await;
    assert_eq!(fresh.status, 200, "{fresh:?}");
    assert!(!stale.is_finished());
    signal::resume(asleep.pid());
    stale.await.expect("it does not panic").refuses(409, "seat-overtaken");
    refused_by_the_database(&asleep).await;
    assert_eq!(awake.buyer(1).await, "Fresh");
    assert_eq!(awake.get("/seats").await.body[0]["token"], fresh.body["token"]);
}

#[tokio::test]
async fn who_wakes_up_while_another_still_pays_cannot_sell_either() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let (asleep, awake) = Office::two(&server, &scratch, &["--lease", "2"]).await;
    let stale = tokio::spawn(asleep.buy(1, "Stale", 1_500));
    let seats = scratch.connect();
    let old = begun(&seats, 0).await;
    signal::stop(asleep.pid());

    let fresh = tokio::spawn(awake.buy(1, "Fresh", 4_000));
    begun(&seats, old).await;
    signal::resume(asleep.pid());
    stale.await.expect("it does not panic").refuses(409, "seat-overtaken");
    assert!(!fresh.is_finished());
    let fresh = fresh.await.expect("it does not panic");
    assert_eq!(fresh.status, 200, "{fresh:?}");
    refused_by_the_database(&asleep).await;
    assert_eq!(awake.buyer(1).await, "Fresh");
}

async fn refused_by_the_database(office: &Office) {
    let metrics = office.get("/metrics").await;
    assert!(metrics.text.contains("ticket_office_fenced_total 1\n"), "{}", metrics.text);
    assert!(metrics.text.contains("ticket_office_sold_total 0\n"), "{}", metrics.text);
}
