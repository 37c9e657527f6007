//! Documents with concurrent readers or a single writer, and an upstream with a limit per tenant.

use lock_tests::{COUNTER, LIMIT, Raw, RedisServer, eventually};
use lockcore::Locks;
use redis::cmd;
use reqwest::{Client, Response};
use serde_json::Value;
use tokio::time::timeout;

use crate::{Example, SOON};

async fn waiting(locks: &Locks, key: &str, count: usize) {
    eventually(&format!("{count} wait for {key}"), LIMIT, async || {
        locks.inspect(key).await.unwrap().waiters.len() == count
    })
    .await;
}

#[tokio::test]
async fn two_gets_of_a_document_run_together_and_a_put_excludes_both_in_order() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_axum_documents");
    let (mut example, address) = Example::serve_with(program, &[&server.url()]).await;
    let locks = Locks::builder().namespace("example").connect(server.url()).await.unwrap();
    let client = Client::new();
    let url = format!("http://{address}/documents/7");
    let put = |words: &'static str| client.put(&url).body(words).send();
    assert_eq!(put("old.old.").await.unwrap().status(), 200);

    // The requests wait for this hold, in order of arrival.
    let first = locks.write("doc:7").await.unwrap();
    let mut calls = Vec::new();
    for (place, is_put) in [false, false, true, false].into_iter().enumerate() {
        let call = if is_put { client.put(&url).body("new.new.") } else { client.get(&url) };
        calls.push(tokio::spawn(call.send()));
        waiting(&locks, "doc:7", place + 1).await;
    }
    first.release().await.unwrap();
    let mut texts = Vec::new();
    for call in calls {
        texts.push(call.await.unwrap().unwrap().text().await.unwrap());
    }
    assert_eq!([&texts[0], &texts[1], &texts[3]], ["old.old.\n", "old.old.\n", "new.new.\n"]);

    let mut said = Vec::new();
    while said.len() < 10 {
        said.push(example.line().await.expect("a line for each step"));
    }
    let steps = ["reads 7", "reads 7", "has read 7", "has read 7", "writes 7", "has written 7"];
    assert_eq!(said[2..8], steps, "after the first put");
    assert_eq!(said[8..], ["reads 7", "has read 7"]);
}

// Once, half of the old text stayed for all later readers.
#[tokio::test]
async fn a_put_whose_client_hangs_up_is_written_to_the_end() {
    let program = env!("CARGO_BIN_EXE_axum_documents");
    let (mut example, address) = Example::serve(program).await;
    let url = format!("http://{address}/documents/7");
    let put = |words: &'static str| Client::new().put(&url).body(words).send();
    assert_eq!(put("old.old.").await.unwrap().status(), 200);
    let gone = tokio::spawn(put("new.new."));
    for step in ["writes 7", "has written 7", "writes 7"] {
        assert_eq!(example.line().await.as_deref(), Some(step));
    }
    gone.abort();
    let text = Client::new().get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "new.new.\n");
    assert_eq!(example.line().await.as_deref(), Some("has written 7"));
}

/// A token that falls stands for a holder whose lease is over: its number is below the stored one.
#[tokio::test]
async fn a_document_refuses_a_token_below_the_token_that_it_has_seen() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_axum_documents");
    let (_example, address) = Example::serve_with(program, &[&server.url()]).await;
    let mut redis = Raw::connect(&server.url()).await;
    let url = format!("http://{address}/documents/7");
    let put = async |words| Client::new().put(&url).body(words).send().await.unwrap().status();

    // More than a day ahead of the server's clock, so the process does not remember it.
    let (seconds, _): (u64, u64) = redis.ask(&cmd("TIME")).await;
    let ahead = (seconds + 2 * 24 * 3_600) * 1_000_000;
    redis.ask::<()>(cmd("SET").arg(COUNTER).arg(ahead)).await;
    assert_eq!(put("later").await, 200);
    redis.ask::<()>(cmd("DEL").arg(COUNTER)).await;
    assert_eq!(put("earlier").await, 409);
    assert_eq!(Client::new().get(&url).send().await.unwrap().status(), 409, "a read, too");
}

/// Opens a stream of this many words.
async fn open(address: &str, tenant: &str, count: u32) -> Response {
    let url = format!("http://{address}/words?count={count}");
    Client::new().get(url).header("x-tenant", tenant).send().await.unwrap()
}

/// Returns the number of the tenant's calls at the upstream, at the next word of this stream.
async fn at_once(stream: &mut Response) -> u32 {
    let chunk = timeout(SOON, stream.chunk()).await.unwrap().unwrap().expect("a word");
    let text = String::from_utf8(chunk.to_vec()).unwrap();
    let count = text.lines().last().unwrap().strip_suffix(" at the upstream").expect("it says so");
    count.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_tenant_has_no_more_streams_than_its_plan_until_their_end_and_then_429() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_upstream")).await;
    const LONG: u32 = 1_000_000;
    let mut one = open(&address, "acme", LONG).await;
    let mut two = open(&address, "acme", LONG).await;
    assert_eq!([one.status(), two.status()], [200, 200], "both heads are out");

    let refused = open(&address, "acme", 1).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap() >= 1);
    let problem: Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert_eq!(problem["code"], "lock-limit-reached");
    let mut most = 0;
    for _ in 0..20 {
        most = most.max(at_once(&mut one).await); // from the first word to past the third wait
    }
    assert_eq!(most, 2, "the third never got there");

    // Another tenant has its own, smaller limit.
    let mut other = open(&address, "free", LONG).await;
    assert_eq!(at_once(&mut other).await, 1);
    assert_eq!(open(&address, "free", 1).await.status(), 429);

    // A permit is released at the end of its stream, whether complete or interrupted.
    drop(two);
    two = open(&address, "acme", 3).await;
    assert_eq!(two.status(), 200);
    let mut words = 0;
    while let Some(chunk) = timeout(SOON, two.chunk()).await.unwrap().unwrap() {
        let text = String::from_utf8(chunk.to_vec()).unwrap();
        assert!(text.lines().all(|line| line.ends_with("2 at the upstream")), "{text}");
        words += text.lines().count();
    }
    assert_eq!(words, 3);
    assert_eq!(open(&address, "acme", 1).await.status(), 200);
    let bare = Client::new().get(format!("http://{address}/words?count=1")).send().await.unwrap();
    assert_eq!(bare.status(), 401);
}
