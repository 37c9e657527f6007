//! The example `transaction`, which stores a payment and its response in one transaction, on a real
//! PostgreSQL: also with a process that dies right after the commit, and with an attempt that a
//! later attempt has overtaken.
//!
//! Requires PostgreSQL (`scripts/setup --postgres`): `cargo test -p lock-idempotency --all-features
//! --test postgres -- --ignored`, or `scripts/test --postgres`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

#[path = "../examples/transaction/replays.rs"]
mod replays;
#[path = "../examples/transaction/service.rs"]
mod service;

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use lock_tests::http::{Answer, Client as Http};
use lock_tests::{Leash, Postgres, RedisServer, eventually};
use lockcore::Locks;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

/// The time limit for events that happen at once on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// The environment variables in which the service process receives the URLs of Redis and
/// PostgreSQL.
const URLS: [&str; 2] = ["LOCK_TEST_REDIS", "LOCK_TEST_POSTGRES"];

/// Serves the example in a process that another test has started. Without the URLs in the
/// environment it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_its_own() {
    if let [Ok(redis), Ok(postgres)] = URLS.map(std::env::var) {
        println!(); // the harness has begun a line
        service::serve("127.0.0.1:0", &redis, &postgres).await.unwrap();
    }
}

struct Bank {
    redis: RedisServer,
    postgres: Postgres,
}

/// A process that serves the example, and the address on which it listens.
struct Service {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
    _leash: Leash,
}

impl Bank {
    fn open() -> Self {
        Self { redis: RedisServer::start(), postgres: Postgres::installed() }
    }

    fn database(&self) -> String {
        self.postgres.url(self.postgres.address())
    }

    async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.database(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    async fn serve(&self) -> Service {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "a_service_of_its_own"])
            .envs([(URLS[0], self.redis.url()), (URLS[1], self.database())])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let leash = Leash::new(child.id().unwrap(), None);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Service { child, lines, address, _leash: leash };
        service.address = service.says("listening on ").await.parse().unwrap();
        service
    }
}

impl Service {
    /// Waits until the process prints a line with this prefix, and returns the rest of the line.
    async fn says(&mut self, start: &str) -> String {
        let line = async {
            loop {
                let line = self.lines.next_line().await.unwrap().expect("it has not ended");
                if let Some(rest) = line.strip_prefix(start) {
                    return rest.to_owned();
                }
            }
        };
        timeout(SOON, line).await.expect("a line in time")
    }

    async fn is_at_the_bank(&mut self) {
        self.says("charging").await;
    }

    /// Sends a payment of 500 cents, in a task.
    fn pay(&self) -> JoinHandle<Answer> {
        let address = self.address;
        tokio::spawn(async move {
            let headers = "idempotency-key: a1\r\ncontent-length: 3\r\n";
            let mut client = Http::send(address, "POST /accounts/7/payments", headers).await;
            client.write("500").await;
            client.answer().await
        })
    }
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

async fn payments(client: &Client) -> i64 {
    number(client, "SELECT count(*) FROM payments").await
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotency-replayed").is_some()
}

/// Returns true if the response confirms the payment of 500 cents.
fn is_charged(answer: &Answer) -> bool {
    answer.status == 200 && answer.body == "charged 500 cents\n"
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/test --postgres"]
async fn a_payment_that_is_sent_three_times_at_once_is_one_row_and_one_answer() {
    let bank = Bank::open();
    let service = bank.serve().await;
    let other = bank.serve().await;
    let (one, two, three) = tokio::join!(service.pay(), service.pay(), other.pay());
    let mut replayed = 0;
    for answer in [one, two, three] {
        let answer = answer.unwrap();
        assert!(is_charged(&answer), "{answer:?}");
        replayed += usize::from(is_replayed(&answer));
    }
    assert_eq!((replayed, payments(&bank.client().await).await), (2, 1));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/test --postgres"]
async fn a_process_that_dies_after_its_commit_has_stored_its_answer() {
    let bank = Bank::open();
    let mut service = bank.serve().await;
    let payment = service.pay();
    service.is_at_the_bank().await;
    // The first row lock is queued before the payment's transaction, and the second behind it.
    // Releasing the first lets the transaction commit, and the second then blocks the layer's next
    // store operation.
    let (before, behind) = (bank.client().await, bank.client().await);
    let lock = "BEGIN; SELECT 1 FROM replays FOR UPDATE";
    before.batch_execute(lock).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let eyes = bank.client().await;
    eventually("the payment waits", SOON, async || number(&eyes, waiting).await == 1).await;
    let locked = tokio::spawn(async move {
        behind.batch_execute(lock).await.unwrap();
        behind
    });
    eventually("both wait", SOON, async || number(&eyes, waiting).await == 2).await;
    before.batch_execute("ROLLBACK").await.unwrap();
    let behind = locked.await.unwrap();
    eventually("the next step waits", SOON, async || number(&eyes, waiting).await == 1).await;
    service.child.kill().await.unwrap();
    assert_eq!(payment.await.unwrap().status, 0, "its client has no answer");
    let stored = "SELECT count(*) FROM replays WHERE outcome IS NOT NULL";
    assert_eq!((payments(&eyes).await, number(&eyes, stored).await), (1, 1));
    behind.batch_execute("ROLLBACK").await.unwrap();

    let next = bank.serve().await;
    let again = next.pay().await.unwrap();
    assert!(is_charged(&again) && is_replayed(&again), "{again:?}");
    assert_eq!(payments(&eyes).await, 1, "it is charged once");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/test --postgres"]
async fn an_attempt_that_was_overtaken_books_nothing() {
    let bank = Bank::open();
    let (mut first, mut second) = (bank.serve().await, bank.serve().await);
    let overtaken = first.pay();
    first.is_at_the_bank().await;
    lock_tests::signal::stop(first.child.id().unwrap());
    let client = bank.client().await;
    let record: String = client.query_one("SELECT record FROM replays", &[]).await.unwrap().get(0);
    let locks = Locks::builder().namespace("bank").connect(bank.redis.url()).await.unwrap();
    assert!(locks.force_release(format!("idempotency:lock:{record}")).await.unwrap());
    let answer = second.pay();
    second.is_at_the_bank().await;
    let answer = answer.await.unwrap();
    assert!(is_charged(&answer) && !is_replayed(&answer), "{answer:?}");
    lock_tests::signal::resume(first.child.id().unwrap());
    assert_eq!(overtaken.await.unwrap().status, 500);
    assert_eq!(payments(&client).await, 1, "that of the second");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: scripts/test --postgres"]
async fn a_record_that_has_expired_is_begun_anew() {
    let bank = Bank::open();
    let service = bank.serve().await;
    let pay = async || service.pay().await.unwrap();
    assert!(!is_replayed(&pay().await));
    assert!(is_replayed(&pay().await));
    let client = bank.client().await;
    client.batch_execute("UPDATE replays SET expires = now()").await.unwrap();
    assert!(!is_replayed(&pay().await));
    assert_eq!(payments(&client).await, 2);
}
