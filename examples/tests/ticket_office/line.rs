//! Waiting buyers: in order, not for ever, and not too many.

use tokio::time::{Duration, Instant};

use crate::office::Office;

#[tokio::test]
async fn the_line_shows_who_pays_and_who_waits_and_serves_them_in_order() {
    let office = Office::open(&[]).await;
    let first = tokio::spawn(office.buy(4, "Ann", 800));
    office.until_line(4, Some("Ann"), &[]).await;
    let second = tokio::spawn(office.buy(4, "Bob: 50% {off}", 0));
    office.until_line(4, Some("Ann"), &["Bob: 50% {off}"]).await;
    let third = tokio::spawn(office.buy(4, "Zoë", 0));
    office.until_line(4, Some("Ann"), &["Bob: 50% {off}", "Zoë"]).await;
    // Another seat has its own queue.
    assert_eq!(office.buy(5, "Dan", 0).await.status, 200);

    let first = first.await.expect("it does not panic");
    assert_eq!((first.status, &first.body["buyer"]), (200, &"Ann".into()), "{first:?}");
    for late in [second, third] {
        late.await.expect("it does not panic").refuses(409, "seat-sold");
    }
    office.until_line(4, None, &[]).await;
}

#[tokio::test]
async fn who_waits_too_long_gets_423_and_leaves_the_line() {
    let office = Office::open(&["--max-wait", "0.4"]).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 5_000));
    office.until_line(1, Some("Ann"), &[]).await;
    let started = Instant::now();
    let late = office.buy(1, "Bob", 0).await;
    late.refuses(423, "lock-busy");
    assert!(late.retry_after.is_some(), "{late:?}");
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
    office.until_line(1, Some("Ann"), &[]).await;
    assert_eq!(paying.await.expect("it does not panic").status, 200);
}

#[tokio::test]
async fn with_a_wait_of_zero_only_a_free_seat_is_sold() {
    let office = Office::open(&["--max-wait", "0"]).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 3_000));
    office.until_line(1, Some("Ann"), &[]).await;
    office.buy(1, "Bob", 0).await.refuses(423, "lock-busy");
    assert_eq!(office.buy(2, "Bob", 0).await.status, 200);
    paying.abort();
}

#[tokio::test]
async fn a_full_line_is_429() {
    let office = Office::open(&["--queue-limit", "2"]).await;
    let mut inside = vec![tokio::spawn(office.buy(1, "Ann", 3_000))];
    office.until_line(1, Some("Ann"), &[]).await;
    inside.push(tokio::spawn(office.buy(1, "Bob", 0)));
    office.until_line(1, Some("Ann"), &["Bob"]).await;
    inside.push(tokio::spawn(office.buy(1, "Cleo", 0)));
    office.until_line(1, Some("Ann"), &["Bob", "Cleo"]).await;
    let full = office.buy(1, "Dan", 0).await;
    full.refuses(429, "lock-queue-full");
    assert!(full.retry_after.is_some(), "{full:?}");
    inside.iter().for_each(tokio::task::JoinHandle::abort);
}
