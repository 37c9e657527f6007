//! Everything together: a crowd, two processes, clients that disconnect, and a process killed in
//! the middle.

use std::collections::HashMap;
use std::time::Duration;

use deadpool_sqlite::rusqlite::Connection;
use lock_tests::{Raw, RedisServer, eventually, eventually_some, signal};
use lockcore::Locks;
use lockcore::operate::LockInspection;

use crate::office::{Answer, Office, SOON, try_answer};
use crate::scratch::Scratch;

const SEATS: u32 = 20;
const BUYERS: u32 = 300;
const LEASE: Duration = Duration::from_secs(3);
const PAY_MS: u64 = 1_500;
/// The number of seats whose first buyers pay so slowly at the doomed process that it dies
/// meanwhile, regardless of machine speed.
const ORPHANS: u32 = 3;
const SLOW_PAY_MS: u64 = 30_000;

/// A trigger that records every sale, including overwritten sales.
pub(crate) const LEDGER: &str = "\
CREATE TABLE ledger (seat INTEGER, buyer TEXT, token INTEGER);
CREATE TRIGGER sale AFTER UPDATE OF buyer ON seats
BEGIN INSERT INTO ledger VALUES (new.seat, new.buyer, new.token); END;";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sale {
    pub(crate) seat: u32,
    pub(crate) buyer: String,
    pub(crate) token: u64,
}

pub(crate) fn sales(database: &Connection, table: &str) -> Vec<Sale> {
    let query =
        format!("SELECT seat, buyer, token FROM {table} WHERE buyer IS NOT NULL ORDER BY seat");
    let mut statement = database.prepare(&query).expect("it is SQL");
    let rows = statement.query_map([], |row| {
        let token: i64 = row.get(2)?;
        Ok(Sale { seat: row.get(0)?, buyer: row.get(1)?, token: token.cast_unsigned() })
    });
    rows.expect("it can be read").map(|row| row.expect("it is a sale")).collect()
}

async fn line(locks: &Locks, seat: u32) -> LockInspection {
    locks.inspect(format!("seat:{seat}")).await.expect("the server is up")
}

/// Returns the seats held by buyers of the doomed process.
async fn held_by_doomed(locks: &Locks) -> Vec<u32> {
    let mut held = Vec::new();
    for seat in 1..=SEATS {
        let line = line(locks, seat).await;
        let holder = line.holders.into_iter().next();
        let label = holder.and_then(|holder| holder.label).unwrap_or_default();
        if label.starts_with("doomed") {
            held.push(seat);
        }
    }
    held
}

#[tokio::test]
async fn a_crowd_buys_every_seat_once_although_clients_hang_up_and_a_process_dies() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let url = server.url();
    let database = scratch.database();
    let lease = LEASE.as_secs().to_string();
    let arguments = [
        ["--redis", &url],
        ["--database", &database],
        ["--lease", &lease],
        ["--max-wait", "60"],
        ["--queue-limit", "100"],
    ];
    let arguments = arguments.concat();
    let (safe, doomed) = tokio::join!(Office::open(&arguments), Office::open(&arguments));
    let seats = scratch.connect();
    seats.execute_batch(LEDGER).expect("it can be made");
    let locks = Locks::builder().namespace("ticket-office");
    let locks = locks.connect(&url).await.expect("the server is up");
    let mut redis = Raw::connect(&url).await;

    let mut buyers = Vec::new();
    for seat in 1..=ORPHANS {
        let name = format!("doomed slow {seat}");
        let order = doomed.order(seat, &name, SLOW_PAY_MS);
        buyers.push((seat, name, tokio::spawn(async { try_answer(order).await.ok() })));
    }
    let orphans = eventually_some("the slow buyers pay", SOON, async || {
        Some(held_by_doomed(&locks).await).filter(|held| held.len() == ORPHANS as usize)
    })
    .await;
    let counter = redis.get("lock:tokens").await.expect("tokens were drawn");
    let last_token: u64 = counter.parse().expect("it is a number");
    for number in 0..BUYERS {
        // For each seat, buyers alternate between the processes, and the first buyer may be at
        // either.
        let seat = number % SEATS + 1;
        let (office, name) = match (number + number / SEATS) % 2 {
            0 => (&safe, "safe"),
            _ => (&doomed, "doomed"),
        };
        let hangs_up = (number + 2 * (number / SEATS)) % 10 == 7; // 30 of them, at ten seats
        let name = format!("{name} {number}{}", if hangs_up { " hangs up" } else { "" });
        let order = office.order(seat, &name, PAY_MS);
        let stays = Duration::from_millis(u64::from(number) * 37 % (2 * PAY_MS));
        let buyer = tokio::spawn(async move {
            match hangs_up {
                true => tokio::time::timeout(stays, try_answer(order)).await.ok()?.ok(),
                false => try_answer(order).await.ok(),
            }
        });
        buyers.push((seat, name, buyer));
    }

    let some_sold = async || !sales(&seats, "seats").is_empty();
    eventually("the first are sold", SOON, some_sold).await;
    signal::kill(doomed.pid());

    let mut answers: Vec<(u32, String, Answer)> = Vec::new();
    for (seat, name, buyer) in buyers {
        let answer =
            tokio::time::timeout(3 * SOON, buyer).await.expect("it ends").expect("no panic");
        if name.starts_with("safe") && !name.ends_with("hangs up") {
            assert!(answer.is_some(), "{name} is answered");
        }
        answers.extend(answer.map(|answer| (seat, name, answer)));
    }
    let all_sold =
        async || Some(sales(&seats, "seats")).filter(|sold| sold.len() == SEATS as usize);
    let sold = eventually_some("every seat is sold", SOON, all_sold).await;

    // Every seat was sold once, and never a second time.
    assert_eq!(sales(&seats, "ledger"), sold);
    // Every buyer with a ticket has bought, with this token; no other buyer has a ticket.
    let mut tickets = HashMap::new();
    for (seat, name, answer) in &answers {
        match answer.status {
            200 => {
                let token = answer.body["token"].as_u64().expect("no purchase without its token");
                let sale = Sale { seat: *seat, buyer: name.clone(), token };
                assert_eq!(sold[*seat as usize - 1], sale, "{answer:?}");
                assert_eq!(tickets.insert(*seat, name), None, "seat {seat} was sold twice");
            }
            _ => answer.refuses(409, "seat-sold"),
        }
    }
    // A sale without a ticket belongs to a client that disconnected, or to the killed process.
    for sale in &sold {
        let is_without_ticket =
            sale.buyer.starts_with("doomed") || sale.buyer.ends_with("hangs up");
        assert!(tickets.contains_key(&sale.seat) || is_without_ticket, "{sale:?}");
    }

    // The seats held by the dead process are sold, with tokens above the earlier tokens.
    for seat in &orphans {
        let sale = &sold[*seat as usize - 1];
        let is_above = sale.token > last_token;
        assert!(is_above && sale.buyer.starts_with("safe"), "{sale:?} after {last_token}");
    }

    // Nothing is held, and the members of the dead process leave the queues without help.
    for seat in 1..=SEATS {
        eventually("nothing is held", LEASE + SOON, async || {
            line(&locks, seat).await.holders.is_empty()
        })
        .await;
    }
    for key in redis.keys("*").await {
        assert!(key == "lock:tokens" || redis.pttl(&key).await != -1, "{key} never ends");
    }
    for seat in 1..=SEATS {
        for waiter in line(&locks, seat).await.waiters {
            assert!(waiter.label.is_some_and(|label| label.starts_with("doomed")), "seat {seat}");
        }
    }
}
