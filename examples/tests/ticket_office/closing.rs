//! Shutdown by a signal: paying buyers are served, waiting buyers are refused, new clients cannot
//! connect.

use std::time::Duration;

use lock_tests::{Raw, RedisServer, signal};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::office::{Office, SOON, try_answer};
use crate::scratch::Scratch;

#[tokio::test]
async fn on_sigterm_who_pays_is_served_and_who_waits_is_sent_away() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let arguments = ["--redis", &server.url(), "--database", &scratch.database()];
    let mut office = Office::open(&arguments).await;
    let other = Office::open(&arguments).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 2_500));
    office.until_line(1, Some("Ann"), &[]).await;
    let unheard = tokio::spawn(office.buy(2, "Gone", 2_500));
    office.until_line(2, Some("Gone"), &[]).await;
    unheard.abort();
    let waiting = tokio::spawn(office.buy(1, "Bob", 0));
    office.until_line(1, Some("Ann"), &["Bob"]).await;
    let elsewhere = tokio::spawn(other.buy(1, "Cleo", 0));
    office.until_line(1, Some("Ann"), &["Bob", "Cleo"]).await;
    let address = office.url("").replace("http://", "");

    signal::terminate(office.pid());
    office.until_said("closing").await;
    let sent_away = waiting.await.expect("it does not panic");
    sent_away.refuses(503, "lock-unavailable");
    assert!(sent_away.retry_after.is_some(), "{sent_away:?}");
    assert!(!paying.is_finished(), "waiting buyers are sent away at once");
    other.until_line(1, Some("Ann"), &["Cleo"]).await;
    assert!(TcpStream::connect(&address).await.is_err(), "no client gets in any more");

    let paid = paying.await.expect("it does not panic");
    assert_eq!((paid.status, paid.body["buyer"].as_str()), (200, Some("Ann")), "{paid:?}");
    elsewhere.await.expect("it does not panic").refuses(409, "seat-sold");
    assert_eq!(office.end().await.code(), Some(0));
    assert_eq!(other.buyer(1).await, "Ann");
    assert_eq!(other.buyer(2).await, "Gone");
    // The lock was released rather than left to expire.
    let mut redis = Raw::connect(&server.url()).await;
    for lock_key in redis.keys("lock:{*}").await {
        let text = redis.get(&lock_key).await;
        assert!(text.is_none_or(|text| text.starts_with("-*0:")), "{lock_key} is held");
    }
    assert_eq!(redis.keys("lock:{*}:queue").await, Vec::<String>::new());
}

#[tokio::test]
async fn on_ctrl_c_an_idle_office_closes_at_once_although_somebody_watches() {
    let office = Office::open(&[]).await;
    let mut watching = office.ask("/events").send().await.expect("it answers");
    assert!(watching.chunk().await.expect("it can be read").is_some());
    let started = Instant::now();
    signal::interrupt(office.pid());
    assert_eq!(office.end().await.code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    let rest = async { while let Ok(Some(_)) = watching.chunk().await {} };
    timeout(SOON, rest).await.expect("the stream has ended");
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut office = Office::open(&[]).await;
    let paying = tokio::spawn(try_answer(office.order(1, "Ann", 25_000)));
    office.until_line(1, Some("Ann"), &[]).await;
    signal::terminate(office.pid());
    office.until_said("closing").await;
    assert!(!paying.is_finished());
    let started = Instant::now();
    signal::terminate(office.pid());
    assert_eq!(office.end().await.code(), Some(128 + 15));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(paying.await.expect("it does not panic").is_err(), "the process has ended");
}
