//! The crowd over Sentinel: the primary is killed in the middle, and another takes over.

use std::collections::HashMap;
use std::time::Duration;

use lock_tests::{RedisOptions, Watched, eventually};

use crate::crowd::{LEDGER, Sale, sales};
use crate::office::{Office, SOON, try_answer};
use crate::scratch::Scratch;

const SEATS: u32 = 12;
/// The number of buyers per seat, alternating between the offices.
const BUYERS: u32 = 10;
const PAY_MS: u64 = 1_500;
/// The delay between the first buyers of two seats: some pay, some wait and some arrive while there
/// is no primary.
const STAGGER: Duration = Duration::from_millis(250);
/// A lease longer than the failover.
const LEASE: &str = "8";

#[tokio::test]
async fn a_crowd_buys_every_seat_once_although_the_primary_is_killed() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let scratch = Scratch::new();
    let url = watched.url();
    let database = scratch.database();
    let seats = SEATS.to_string();
    let arguments = [
        ["--redis", &url],
        ["--database", &database],
        ["--seats", &seats],
        ["--lease", LEASE],
        ["--max-wait", "60"],
        ["--queue-limit", "100"],
    ];
    let arguments = arguments.concat();
    let (one, other) = tokio::join!(Office::open(&arguments), Office::open(&arguments));
    let database = scratch.connect();
    database.execute_batch(LEDGER).expect("it can be made");

    let mut buyers = Vec::new();
    for seat in 1..=SEATS {
        for number in 0..BUYERS {
            let office = if number % 2 == 0 { &one } else { &other };
            let name = format!("buyer {number} of {seat}");
            let order = office.order(seat, &name, PAY_MS);
            let buyer = tokio::spawn(async move {
                tokio::time::sleep(STAGGER * seat).await;
                try_answer(order).await.expect("both offices stay open")
            });
            buyers.push((seat, name, buyer));
        }
    }
    let some_sold = async || !sales(&database, "seats").is_empty();
    eventually("the first is sold", SOON, some_sold).await;
    watched.server(0).kill();
    watched.promoted(0).await;
    assert!(sales(&database, "seats").len() < SEATS as usize, "the crowd is still there");

    let mut tickets = HashMap::new();
    for (seat, name, buyer) in buyers {
        let answer = tokio::time::timeout(3 * SOON, buyer).await.expect("it ends");
        let answer = answer.expect("no panic");
        match answer.status {
            200 => {
                let token = answer.body["token"].as_u64().expect("no purchase without its token");
                let sale = Sale { seat, buyer: name, token };
                assert_eq!(tickets.insert(seat, sale), None, "seat {seat} was sold twice");
            }
            // Two had the lock: the database accepts only one write.
            409 if answer.body["code"] == "seat-overtaken" => {}
            503 => answer.refuses(503, "lock-unavailable"),
            _ => answer.refuses(409, "seat-sold"),
        }
    }
    // Without a primary, all buyers of a seat may have been refused.
    for seat in (1..=SEATS).filter(|seat| !tickets.contains_key(seat)).collect::<Vec<_>>() {
        let name = format!("late buyer of {seat}");
        let answer = one.buy(seat, &name, 0).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let token = answer.body["token"].as_u64().expect("no purchase without its token");
        tickets.insert(seat, Sale { seat, buyer: name, token });
    }

    // Every seat was sold once, to the buyer with the ticket, and never a second time.
    let sold = sales(&database, "seats");
    assert_eq!(sold.len(), SEATS as usize);
    assert_eq!(sales(&database, "ledger").len(), sold.len());
    for sale in &sold {
        assert_eq!(tickets.get(&sale.seat), Some(sale));
    }
    for office in [&one, &other] {
        eventually("it is healthy", SOON, async || office.get("/healthz").await.status == 200)
            .await;
    }
}
