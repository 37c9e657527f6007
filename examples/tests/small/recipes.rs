//! The recipes in `docs/recipes` keep their promises, with real clients.

use std::collections::BTreeSet;

use lock_tests::{Raw, RedisServer};
use lockcore::Locks;
use redis::cmd;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Example, SOON, token};

async fn say(address: &str, session: u32) -> Response {
    let url = format!("http://{address}/sessions/{session}/turns");
    Client::new().post(url).body("hello").send().await.unwrap()
}

/// Returns the number of turns known to the model, after a complete stream.
async fn earlier(turn: Response) -> u32 {
    assert_eq!(turn.status(), 200);
    let text = turn.text().await.unwrap();
    assert!(text.contains("event: saved"), "{text}");
    let words: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(words[..3], ["hello", "came", "after"], "{text}");
    words[3].parse().unwrap()
}

#[tokio::test]
async fn a_turn_begins_when_the_stream_of_the_one_before_has_ended() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_agent_session")).await;
    let turn = async |session| earlier(say(&address, session).await).await;
    let (one, two, three, other) = tokio::join!(turn(7), turn(7), turn(7), turn(8));
    let mut known = [one, two, three];
    known.sort_unstable();
    assert_eq!(known, [0, 1, 2], "each turn knows of all before it");
    assert_eq!(other, 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_turn_and_the_next_begins() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_agent_session")).await;
    let mut given_up = say(&address, 7).await;
    given_up.chunk().await.unwrap().expect("the first word");
    drop(given_up);
    let next = timeout(SOON, say(&address, 7)).await.expect("the session is free again");
    assert_eq!(earlier(next).await, 0, "an answer that was not heard to its end is not saved");
}

#[tokio::test]
async fn more_turns_than_may_wait_are_refused_at_once() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_agent_session")).await;
    let holder = say(&address, 7).await;
    let turns = tokio::join!(say(&address, 7), say(&address, 7), say(&address, 7), earlier(holder));
    let mut statuses = [turns.0, turns.1, turns.2].map(|turn| turn.status().as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 429]);
}

async fn deliver(address: &str, id: &str, order: u32, version: u32) -> Response {
    let event = json!({ "id": id, "order": order, "version": version });
    Client::new().post(format!("http://{address}/webhooks")).json(&event).send().await.unwrap()
}

#[tokio::test]
async fn a_webhook_sent_twice_at_once_is_handled_once_and_the_sender_comes_again_after_a_409() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_webhook_orders")).await;
    // Three seconds of work, and no delivery waits longer than one second.
    let (one, two, other) = tokio::join!(
        deliver(&address, "e1", 42, 1),
        deliver(&address, "e1", 42, 1),
        deliver(&address, "e2", 43, 1),
    );
    assert_eq!(other.status(), 200, "another order does not wait");
    let (handled, refused) = if one.status() == 200 { (one, two) } else { (two, one) };
    assert_eq!((handled.status().as_u16(), refused.status().as_u16()), (200, 409));
    let text = handled.text().await.unwrap();
    assert!(text.starts_with("version 1 under token "), "{text}");
    let seconds = refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().unwrap();
    assert!((1..=2).contains(&seconds), "{seconds}");
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["code"], "lock-busy");

    let again = deliver(&address, "e1", 42, 1).await.text().await.unwrap();
    assert_eq!(again, "handled before\n");
    let late = deliver(&address, "e0", 42, 0).await.text().await.unwrap();
    assert_eq!(late, "older than the known version\n", "the sender's order is in its versions");
}

/// Runs the command of a process not yet migrated.
async fn set_nx(redis: &mut Raw, name: &str) -> bool {
    let set: Option<String> =
        redis.ask(cmd("SET").arg(name).arg("old").arg("NX").arg("PX").arg(30_000)).await;
    set.is_some()
}

#[tokio::test]
async fn an_old_set_nx_and_a_new_lock_of_one_name_never_meet() {
    let server = RedisServer::start();
    let mut redis = Raw::connect(&server.url()).await;
    let locks = Locks::connect(server.url()).await.unwrap();

    let guard = locks.lock("order:42").await.unwrap();
    assert!(set_nx(&mut redis, "order:42").await, "the new lock is another key");
    guard.release().await.unwrap();
    let again = locks.try_lock("order:42").await.unwrap();
    assert!(again.is_some(), "the old lock is another key");
    // This is why new processes acquire both.
    assert!(!set_nx(&mut redis, "order:42").await, "its holder still has the old lock");
}

#[tokio::test]
async fn processes_of_the_old_lock_and_of_both_take_turns_and_lose_no_payment() {
    let server = RedisServer::start();
    let url = server.url();
    let start = |kind| Example::start(env!("CARGO_BIN_EXE_moving"), &[&url, kind]).output();
    let turns = tokio::join!(start("old"), start("new"), start("old"), start("new"));
    for (turns, kind) in
        [(&turns.0, "old"), (&turns.1, "new"), (&turns.2, "old"), (&turns.3, "new")]
    {
        assert_eq!(turns.len(), 5, "{turns:?}");
        assert!(turns.iter().all(|turn| turn.starts_with(kind)), "{turns:?}");
    }
    let tokens = turns.1.iter().chain(&turns.3).map(|turn| token(turn)).collect::<BTreeSet<_>>();
    assert_eq!(tokens.len(), 10, "each hold of the new lock has a token of its own");
    let paid: u32 = Raw::connect(&url).await.ask(cmd("GET").arg("paid:42")).await;
    assert_eq!(paid, 20, "no two payments overlap");
}
