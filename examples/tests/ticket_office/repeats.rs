//! Repeats of a purchase, with the same idempotency key.

use lock_tests::{
    Clustered, Connections, Flow, Proxy, Raw, RedisOptions, RedisServer, eventually, signal,
};
use lockcore::Locks;
use serde_json::Value;

use crate::office::{Office, SOON, answer, try_answer};
use crate::scratch::Scratch;
use crate::sse::Events;

const BUY: &str = "/seats/1/buy";
const FOLLOW: &str = "/seats/1/buy/events";
const SOLD_ONCE: &str = "ticket_office_sold_total 1";
const REPLAYED_ONCE: &str = "lock_idempotency_served_total{outcome=\"replayed\"} 1";

/// Waits until a request waits for another request's response.
async fn until_one_waits(office: &Office) {
    eventually("a repeat waits", SOON, async || {
        let locks = answer(office.ask("/locks").header("accept", "application/json")).await.body;
        locks["classes"].as_array().is_some_and(|all| {
            all.iter().any(|class| class["class"] == "idempotency" && class["waiting"] == 1)
        })
    })
    .await;
}

/// Sends a purchase to both offices at once; they may be the same office.
async fn buy_at_once(here: &Office, there: &Office) {
    let first = tokio::spawn(answer(here.keyed(BUY, "Ann", 4_000, "k1")));
    here.until_line(1, Some("Ann"), &[]).await;
    let second = tokio::spawn(answer(there.keyed(BUY, "Ann", 4_000, "k1")));
    until_one_waits(there).await;
    // A repeat does not queue for the seat: others do not wait behind it.
    here.until_line(1, Some("Ann"), &[]).await;
    assert!(!first.is_finished(), "it still pays");
    let first = first.await.expect("no panic");
    let second = second.await.expect("no panic");
    assert_eq!((first.status, first.is_replayed), (200, false), "{first:?}");
    assert_eq!((second.status, second.is_replayed), (200, true), "{second:?}");
    assert_eq!((&first.text, &first.kind), (&second.text, &second.kind));
    here.until_counted(SOLD_ONCE).await;
    there.until_counted(REPLAYED_ONCE).await;
}

#[tokio::test]
async fn a_purchase_that_comes_twice_at_once_sells_once_and_both_get_the_same_bytes() {
    let office = Office::open(&[]).await;
    buy_at_once(&office, &office).await;
    office.buy(1, "Bob", 0).await.refuses(409, "seat-sold");
}

#[tokio::test]
async fn a_purchase_that_comes_to_two_processes_at_once_sells_once_and_both_get_the_same_bytes() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let (here, there) = Office::two(&server, &scratch, &[]).await;
    buy_at_once(&here, &there).await;
    let sold = there.get("/metrics").await.text;
    assert!(sold.contains("ticket_office_sold_total 0\n"), "{sold}");
}

#[tokio::test]
async fn a_purchase_that_was_cut_off_and_comes_again_gets_the_first_answer() {
    for path in [BUY, FOLLOW] {
        let office = Office::open(&[]).await;
        let cut = tokio::spawn(answer(office.keyed(path, "Ann", 2_000, "k1")));
        office.until_line(1, Some("Ann"), &[]).await;
        cut.abort();
        let again = answer(office.keyed(path, "Ann", 2_000, "k1")).await;
        assert_eq!((again.status, again.is_replayed), (200, true), "{again:?}");
        assert_eq!((&again.body["buyer"], &again.body["seat"]), (&"Ann".into(), &1.into()));
        let seats = office.get("/seats").await.body;
        assert_eq!((&seats[0]["buyer"], &seats[0]["token"]), (&"Ann".into(), &again.body["token"]));
        office.until_counted(SOLD_ONCE).await;
        office.until_counted(REPLAYED_ONCE).await;
    }
}

#[tokio::test]
async fn a_repeat_of_a_followed_purchase_gets_the_ticket_of_its_last_event() {
    let office = Office::open(&[]).await;
    let mut ann = Events::of(office.keyed(FOLLOW, "Ann", 0, "k1")).await;
    ann.expect("turn").await;
    let ticket = ann.expect("ticket").await;
    assert_eq!(ann.next().await, None);
    let again = answer(office.keyed(FOLLOW, "Ann", 0, "k1")).await;
    assert_eq!((again.status, again.is_replayed), (200, true), "{again:?}");
    assert_eq!((again.kind.as_str(), again.body), ("application/json", ticket));
}

// Once, the buyer was told that she had not bought the seat, which was hers.
#[tokio::test]
async fn a_repeat_of_a_purchase_whose_office_died_after_the_sale_gets_the_ticket() {
    let (server, scratch) = (RedisServer::start(), Scratch::new());
    let proxy = Proxy::start(server.address());
    let open = async |url: String| {
        let database = scratch.database();
        Office::open(&["--redis", &url, "--database", &database, "--lease", "1"]).await
    };
    let (dies, lives) = tokio::join!(open(proxy.url()), open(server.url()));
    let order = |office: &Office, key| office.keyed(BUY, "Ann", 3_000, key);
    let first = tokio::spawn(try_answer(order(&dies, "k1")));
    lives.until_line(1, Some("Ann"), &[]).await;
    proxy.freeze(Connections::All, Flow::Both).await; // the response is not stored
    dies.until_counted(SOLD_ONCE).await;
    signal::kill(dies.pid());
    assert!(first.await.expect("no panic").is_err(), "it got no response");
    let sold = lives.get("/seats").await.body[0].take();
    for is_replayed in [false, true] {
        let repeat = answer(order(&lives, "k1")).await;
        assert_eq!((repeat.status, repeat.is_replayed), (200, is_replayed), "{repeat:?}");
        for field in ["seat", "buyer", "token"] {
            assert_eq!(repeat.body[field], sold[field], "{repeat:?}");
        }
    }
    answer(order(&lives, "k2")).await.refuses(409, "seat-sold");
}

#[tokio::test]
async fn another_order_under_the_same_key_is_refused() {
    let office = Office::open(&[]).await;
    assert_eq!(answer(office.keyed(BUY, "Ann", 0, "k1")).await.status, 200);
    for (path, buyer) in [(BUY, "Bob"), ("/seats/2/buy", "Ann"), (FOLLOW, "Ann")] {
        let other = answer(office.keyed(path, buyer, 0, "k1")).await;
        other.refuses(422, "idempotency-key-reused");
    }
    assert_eq!(office.buyer(2).await, Value::Null);
}

#[tokio::test]
async fn who_hangs_up_in_line_is_gone_also_with_a_key_and_may_come_again() {
    let server = RedisServer::start();
    let office = Office::open(&["--redis", &server.url(), "--database", ":memory:"]).await;
    let locks = Locks::builder().namespace("ticket-office").label("the test");
    let locks = locks.connect(server.url()).await.expect("the server is up");
    for path in [BUY, FOLLOW] {
        let hold = locks.lock("seat:1").await.expect("it is free");
        let gone = tokio::spawn(answer(office.keyed(path, "Bob", 0, path)));
        office.until_line(1, Some("the test"), &["Bob"]).await;
        gone.abort();
        office.until_line(1, Some("the test"), &[]).await;
        hold.release().await.expect("it was held");
        office.until_line(1, None, &[]).await;
        assert_eq!(office.buyer(1).await, Value::Null);
    }
    let again = answer(office.keyed(BUY, "Bob", 0, BUY)).await;
    assert_eq!((again.status, again.is_replayed), (200, false), "{again:?}");
    assert_eq!(office.buyer(1).await, "Bob");
}

#[tokio::test]
async fn a_refusal_is_no_answer_that_is_kept() {
    let office = Office::open(&["--max-wait", "0"]).await;
    let paying = tokio::spawn(office.buy(1, "Ann", 20_000));
    office.until_line(1, Some("Ann"), &[]).await;
    for _ in 0..2 {
        let refused = answer(office.keyed(BUY, "Bob", 0, "k1")).await;
        assert!(!refused.is_replayed, "{refused:?}");
        refused.refuses(423, "lock-busy");
    }
    paying.abort();
}

#[tokio::test]
async fn the_gauges_count_buyers_and_no_repeats() {
    let office = Office::open(&[]).await;
    let paying = tokio::spawn(answer(office.keyed(BUY, "Ann", 20_000, "k1")));
    office.until_line(1, Some("Ann"), &[]).await;
    let repeat = tokio::spawn(answer(office.keyed(BUY, "Ann", 20_000, "k1")));
    until_one_waits(&office).await;
    office.until_counted("ticket_office_waiting 0").await;
    office.until_counted("ticket_office_serving 1").await;
    paying.abort();
    repeat.abort();
}

#[tokio::test]
async fn while_redis_is_away_a_purchase_with_a_key_is_refused_and_may_come_again() {
    let mut server = RedisServer::start();
    let office = Office::open(&["--redis", &server.url(), "--database", ":memory:"]).await;
    assert_eq!(answer(office.keyed(BUY, "Ann", 0, "k1")).await.status, 200);
    server.kill();
    let away = answer(office.keyed("/seats/2/buy", "Ann", 0, "k2")).await;
    assert_eq!(away.status, 503, "{away:?}");
    assert!(away.retry_after.is_some(), "{away:?}");
    assert_eq!(office.buyer(2).await, Value::Null);
    server.restart();
    eventually("it sells again", SOON, async || {
        answer(office.keyed("/seats/2/buy", "Ann", 0, "k2")).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn answers_are_stored_where_the_locks_are_however_the_url_is_written() {
    let server = RedisOptions::default().arg("requirepass", "secret").start();
    let mut db = Raw::connect(&format!("{}3", server.url())).await;
    let user = ["SETUSER", "nobody", "on", "nopass", "~*", "&*", "+@all"];
    let () = db.ask(redis::cmd("ACL").arg(&user)).await;
    for rest in ["?pass=secret&db=3", "3?user=default&pass=secret"] {
        let url = format!("redis://{}/{rest}", server.address());
        stores_beside_the_locks(&url, &mut db).await;
    }
    stores_beside_the_locks(&format!("redis://nobody@{}/3", server.address()), &mut db).await;
}

/// Sells a seat with a key at this URL, and expects the response in this database.
async fn stores_beside_the_locks(url: &str, db: &mut Raw) {
    db.flush_all().await;
    let office = Office::open(&["--redis", url, "--database", ":memory:"]).await;
    let sold = answer(office.keyed(BUY, "Ann", 0, "k1")).await;
    assert_eq!(sold.status, 200, "{url}: {sold:?}");
    assert_eq!(db.keys("*ticket-office:replay*").await.len(), 1, "{url}");
}

#[tokio::test]
async fn on_a_cluster_the_process_that_sold_answers_a_repeat() {
    let clustered = Clustered::steady().await;
    let office = Office::open(&["--redis", &clustered.url(), "--database", ":memory:"]).await;
    let first = answer(office.keyed(BUY, "Ann", 0, "k1")).await;
    let again = answer(office.keyed(BUY, "Ann", 0, "k1")).await;
    assert_eq!((first.status, again.status, again.is_replayed), (200, 200, true), "{again:?}");
    assert_eq!(again.text, first.text);
}
