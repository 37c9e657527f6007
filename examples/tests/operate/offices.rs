//! Two offices on one Redis, with activity for every panel of the board.

use std::time::Duration;

use lock_tests::{Raw, RedisServer, eventually, signal};
use lockcore::Locks;
use tokio::task::JoinHandle;

use crate::office::{Office, SOON, try_answer};
use crate::scratch::Scratch;

/// A payment that outlasts the test.
const LONG_MS: u64 = 30_000;

pub(crate) struct Offices {
    server: RedisServer,
    pub(crate) one: Office,
    pub(crate) two: Office,
    /// The last scrape of the second office, which is killed.
    last: String,
    _scratch: Scratch,
}

impl Offices {
    pub(crate) async fn open() -> Self {
        let server = RedisServer::start();
        let scratch = Scratch::new();
        let (url, database) = (server.url(), scratch.database());
        let arguments = [
            ["--redis", &url],
            ["--database", &database],
            ["--max-wait", "8"],
            ["--queue-limit", "3"],
        ];
        let arguments = arguments.concat();
        let (one, two) = tokio::join!(Office::open(&arguments), Office::open(&arguments));
        Self { server, one, two, last: String::new(), _scratch: scratch }
    }

    /// Triggers every event counted by the board. At the end, the first office is running, with a
    /// holder and a waiter, and the second is dead.
    pub(crate) async fn trouble(&mut self) {
        let url = self.server.url();
        let locks = Locks::builder().namespace("ticket-office");
        let locks = locks.connect(&url).await.expect("the server is up");
        let mut redis = Raw::connect(&url).await;

        // Handed off between the offices.
        let first = buy(&self.one, 1, "first", 500);
        self.one.until_line(1, Some("first"), &[]).await;
        let second = buy(&self.two, 1, "second", 0);
        first.await.expect("no panic");
        second.await.expect("no panic");

        // Three time out, and a fourth exceeds the queue limit.
        buy(&self.one, 2, "slow", LONG_MS);
        self.one.until_line(2, Some("slow"), &[]).await;
        for number in 1..=3 {
            buy(&self.two, 2, &format!("late {number}"), 0);
        }
        eventually("three wait", SOON, async || {
            self.one.get("/seats/2/line").await.body["waiters"]
                .as_array()
                .is_some_and(|all| all.len() == 3)
        })
        .await;
        self.two.buy(2, "one too many", 0).await.refuses(429, "lock-queue-full");

        // A hold is released by force, and a queue deleted.
        buy(&self.one, 3, "forced", LONG_MS);
        buy(&self.one, 4, "holder", LONG_MS);
        self.one.until_line(3, Some("forced"), &[]).await;
        self.one.until_line(4, Some("holder"), &[]).await;
        assert!(locks.force_release("seat:3").await.expect("the server is up"));
        let waiter = buy(&self.one, 4, "displaced", 0);
        self.one.until_line(4, Some("holder"), &["displaced"]).await;
        assert!(redis.exists("lock:{ticket-office:seat:4}:queue").await);
        let delete = redis::cmd("DEL").arg("lock:{ticket-office:seat:4}:queue").to_owned();
        redis.ask::<()>(&delete).await;
        until(&self.one, "lockcore_lost_total{class=\"seats\"}").await;
        until(&self.one, "lockcore_positions_lost_total").await;
        waiter.abort(); // disconnects
        until(&self.one, "lockcore_cancelled_total{class=\"seats\"}").await;
        until_all(&self.two, "lockcore_refused_total", "cause=\"timeout\"").await;

        // The server stops responding.
        self.server.freeze();
        until_all(&self.one, "lockcore_renewals_total", "outcome=\"failed\"").await;
        self.server.thaw();
        // Each office has connections of its own, and pauses up to 4 s before it opens them again.
        for (office, seat) in [(&self.one, 5), (&self.two, 8)] {
            eventually("it sells again", SOON, async || {
                office.buy(seat, "again", 0).await.status == 200
                    || !office.buyer(seat).await.is_null()
            })
            .await;
        }

        // The second office is killed, with a waiter at the front.
        buy(&self.one, 6, "front", 3_000);
        self.one.until_line(6, Some("front"), &[]).await;
        buy(&self.two, 6, "dead", 0);
        self.one.until_line(6, Some("front"), &["dead"]).await;
        buy(&self.one, 6, "alive", 0);
        self.one.until_line(6, Some("front"), &["dead", "alive"]).await;
        self.last = self.two.get("/metrics").await.text;
        signal::kill(self.two.pid());
        until(&self.one, "lockcore_skipped_total").await;

        buy(&self.one, 7, "holds", LONG_MS);
        self.one.until_line(7, Some("holds"), &[]).await;
        buy(&self.one, 7, "waits", 0);
        self.one.until_line(7, Some("holds"), &["waits"]).await;
        until_all(&self.one, "lockcore_waiting", " 1").await;
    }

    /// Returns the scrapes of both offices.
    pub(crate) async fn scrape(&self) -> String {
        self.last.clone() + &self.one.get("/metrics").await.text
    }
}

/// Sends an order; its response, if any, does not matter.
fn buy(office: &Office, seat: u32, buyer: &str, pay_ms: u64) -> JoinHandle<()> {
    let order = office.order(seat, buyer, pay_ms).timeout(Duration::from_secs(60));
    tokio::spawn(async move { drop(try_answer(order).await) })
}

async fn until(office: &Office, series: &str) {
    until_all(office, series, "").await;
}

/// Waits until the office reports a nonzero count in a series with both texts.
async fn until_all(office: &Office, series: &str, part: &str) {
    eventually(&format!("{series} {part} is counted"), SOON, async || {
        let text = office.get("/metrics").await.text;
        let mut lines = text.lines().filter(|line| !line.ends_with(" 0"));
        lines.any(|line| line.starts_with(series) && line.contains(part))
    })
    .await;
}
