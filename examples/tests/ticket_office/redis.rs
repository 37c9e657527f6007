//! Redis outages and recoveries; and several processes on one database.

use lock_tests::{Port, RedisServer, eventually};

use crate::office::{Office, SOON, command};
use crate::scratch::Scratch;

#[tokio::test]
async fn while_redis_is_away_nothing_is_sold_and_then_it_goes_on() {
    let mut server = RedisServer::start();
    let office = Office::open(&["--redis", &server.url(), "--database", ":memory:"]).await;
    assert_eq!(office.get("/healthz").await.status, 200);
    assert_eq!(office.buy(1, "Ann", 0).await.status, 200);

    server.kill();
    let away = office.get("/healthz").await;
    away.refuses(503, "lock-unavailable");
    let refused = office.buy(2, "Ann", 0).await;
    refused.refuses(503, "lock-unavailable");
    assert!(refused.retry_after.is_some(), "{refused:?}");
    office.get("/seats/2/line").await.refuses(503, "lock-unavailable");
    // Requests without a lock continue.
    assert_eq!(office.buyer(1).await, "Ann");
    assert_eq!(office.buyer(2).await, serde_json::Value::Null);

    server.restart();
    eventually("it is healthy again", SOON, async || office.get("/healthz").await.status == 200)
        .await;
    let bought = office.buy(2, "Ann", 0).await;
    assert_eq!(bought.status, 200, "{bought:?}");
}

#[tokio::test]
async fn its_log_has_the_process_of_its_node_an_outage_and_the_end_of_that() {
    let mut server = RedisServer::start();
    let scratch = Scratch::new();
    let path = scratch.path("log");
    let file = std::fs::File::create(&path).expect("it can be written");
    let mut command = command(&["--redis", &server.url(), "--database", ":memory:"]);
    let command = command.env("TICKET_OFFICE_LISTEN", "127.0.0.1:0").stderr(file);
    let office = Office::run(command).await;
    let log = || std::fs::read_to_string(&path).expect("it can be read");
    let process = format!(":{}", office.pid());
    let started = log();
    assert!(started.contains("connected to Redis") && started.contains(&process), "{started}");

    server.kill();
    let has = async |text: &str| log().contains(text);
    eventually("the outage is logged", SOON, async || has("the connection to Redis broke").await)
        .await;
    assert!(!has("again").await, "{}", log());
    server.restart();
    eventually("its end is logged", SOON, async || has("connected to Redis again").await).await;
    assert!(log().contains("after="), "{}", log());
}

#[tokio::test]
async fn without_its_redis_it_does_not_open_and_says_why() {
    let port = Port::free();
    let url = format!("redis://:secret@{}/", port.address());
    let ended = command(&["--listen", "127.0.0.1:0", "--database", ":memory:"])
        .env("REDIS_URL", &url)
        .output()
        .await
        .expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.starts_with("ticket-office: --redis (or REDIS_URL): "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[tokio::test]
async fn processes_that_start_at_once_share_a_fresh_database() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let url = server.url();
    let database = scratch.database();
    let arguments = ["--redis", &url, "--database", &database];
    let open = || Office::open(&arguments);
    let (a, b, c, d) = tokio::join!(open(), open(), open(), open());
    assert_eq!(a.buy(1, "Ann", 0).await.status, 200);
    for other in [&b, &c, &d] {
        assert_eq!(other.buyer(1).await, "Ann");
        other.buy(1, "Bob", 0).await.refuses(409, "seat-sold");
    }
}

#[tokio::test]
async fn two_processes_have_one_line() {
    let server = RedisServer::start();
    let scratch = Scratch::new();
    let (here, there) = Office::two(&server, &scratch, &[]).await;
    let first = tokio::spawn(here.buy(1, "Ann", 1_500));
    there.until_line(1, Some("Ann"), &[]).await;
    let second = tokio::spawn(there.buy(1, "Bob", 0));
    here.until_line(1, Some("Ann"), &["Bob"]).await;
    assert_eq!(first.await.expect("it does not panic").status, 200);
    second.await.expect("it does not panic").refuses(409, "seat-sold");
}
