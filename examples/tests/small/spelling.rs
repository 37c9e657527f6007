//! However a client spells the path, requests for one resource run one at a time, or are refused.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_tests::signal::interrupt;
use lock_tests::{RedisServer, eventually};
use lockcore::Locks;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Error;

use super::{Example, SOON};

/// Other spellings of a number below ten, parsed to the same value by a handler.
fn spellings(number: u32) -> [String; 4] {
    [format!("0{number}"), format!("+{number}"), format!("%2B{number}"), format!("%30%3{number}")]
}

const UUID: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8";

fn uuids() -> [String; 5] {
    let simple = UUID.replace('-', "");
    [
        UUID.to_uppercase(),
        format!("%7B{UUID}%7D"),
        format!("urn:uuid:{UUID}"),
        simple.to_uppercase(),
        simple,
    ]
}

/// Sends both at once; the server reports when each request started.
async fn both(one: RequestBuilder, other: RequestBuilder) -> [(Response, Instant); 2] {
    let send = async |request: RequestBuilder| {
        let answer = request.timeout(SOON).send().await.unwrap();
        (answer, Instant::now())
    };
    let (one, other) = tokio::join!(send(one), send(other));
    [one, other]
}

async fn is_refused_for_its_spelling(answer: Response) {
    assert_eq!(answer.status(), 400);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["code"], "lock-key-spelling", "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("write "), "{problem}");
}

#[tokio::test]
async fn turns_of_one_session_queue_however_it_is_spelled() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_agent_session")).await;
    let say = |session: &str| {
        Client::new().post(format!("http://{address}/sessions/{session}/turns")).body("hello")
    };
    let pairs = (6..=9).flat_map(|session| {
        // Each spelling runs beside the canonical number, in a separate session.
        spellings(session)
            .into_iter()
            .skip(session as usize - 6)
            .take(1)
            .map(move |other| (session, other))
    });
    join_all(pairs.map(async |(session, other)| {
        let answers = both(say(&session.to_string()), say(&other)).await;
        let mut known = Vec::new();
        for (answer, _) in answers {
            assert_eq!(answer.status(), 200, "{other}");
            let text = answer.text().await.unwrap();
            known.push(text.contains("data: 1\n"));
        }
        known.sort_unstable();
        assert_eq!(known, [false, true], "{other}: the second turn knows of the first");
    }))
    .await;
    for other in ["-0", UUID] {
        assert_eq!(say(other).send().await.unwrap().status(), 400, "{other} is no session");
    }
}

/// Checks an example whose key is the unparsed path.
async fn serves_one_path_at_a_time(request: impl Fn(&str) -> RequestBuilder, work: Duration) {
    for other in spellings(7).iter().map(String::as_str).chain(["-0", "00", "-07"]) {
        is_refused_for_its_spelling(request(other).send().await.unwrap()).await;
    }
    assert_eq!(request("0").send().await.unwrap().status(), 200);
    join_all(uuids().iter().enumerate().map(async |(index, other)| {
        // Each pair has its own UUID, so that the pairs do not wait for each other.
        let digit = char::from_digit(index as u32, 10).unwrap().to_string();
        let [one, other] = [UUID, other].map(|uuid| {
            uuid.replace("67e", &format!("{digit}7e")).replace("67E", &format!("{digit}7E"))
        });
        let [one, other] = both(request(&one), request(&other)).await;
        assert_eq!(
            (one.0.status(), other.0.status()),
            (200.try_into().unwrap(), 200.try_into().unwrap())
        );
        let apart = one.1.max(other.1) - one.1.min(other.1);
        assert!(apart > work / 2, "one after the other: {apart:?}");
    }))
    .await;
}

#[tokio::test]
async fn the_axum_layer_takes_one_spelling_of_a_number_and_all_of_a_uuid() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_layer")).await;
    let pay = |order: &str| Client::new().post(format!("http://{address}/orders/{order}/pay"));
    serves_one_path_at_a_time(pay, Duration::from_secs(2)).await;
}

#[tokio::test]
async fn the_hyper_server_takes_one_spelling_of_a_number_and_all_of_a_uuid() {
    let server = RedisServer::start();
    let mut example =
        Example::start(env!("CARGO_BIN_EXE_hyper_server"), &[&server.url(), "127.0.0.1:0"]);
    let line = example.line().await.expect("it says where it listens");
    let address = line.strip_prefix("listening on ").expect("it says so").to_owned();
    let change = |order: &str| Client::new().post(format!("{address}/orders/{order}"));
    serves_one_path_at_a_time(change, Duration::from_secs(2)).await;
}

#[tokio::test]
async fn the_hyper_server_ends_with_the_response_of_the_request_in_progress() {
    let server = RedisServer::start();
    let mut example =
        Example::start(env!("CARGO_BIN_EXE_hyper_server"), &[&server.url(), "127.0.0.1:0"]);
    let line = example.line().await.expect("it says where it listens");
    let address = line.strip_prefix("listening on ").expect("it says so").to_owned();
    let locks = Locks::builder().namespace("example").connect(server.url()).await.unwrap();
    let work = tokio::spawn(Client::new().post(format!("{address}/orders/42")).send());
    let holders = || locks.inspect("/orders/42");
    eventually("it is at work", SOON, async || !holders().await.unwrap().holders.is_empty()).await;
    interrupt(example.child.id().expect("it runs"));
    let response = work.await.unwrap().unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.text().await.unwrap().starts_with("changed under token "));
    let output = example.output().await;
    assert!(output[0].contains("holds: 0"), "{output:?}");
    assert!(holders().await.unwrap().holders.is_empty());
}

#[tokio::test]
async fn no_read_sees_half_of_a_document_however_it_is_spelled() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_documents")).await;
    let ask = |method: Method, id: &str| {
        Client::new().request(method, format!("http://{address}/documents/{id}"))
    };
    join_all((6..=9).map(async |id| {
        let number = id.to_string();
        let other = &spellings(id)[id as usize - 6];
        assert_eq!(ask(Method::PUT, &number).body("oldold").send().await.unwrap().status(), 200);
        let [(put, _), (read, _)] =
            both(ask(Method::PUT, &number).body("newnew"), ask(Method::GET, other)).await;
        assert_eq!((put.status().as_u16(), read.status().as_u16()), (200, 200));
        let text = read.text().await.unwrap();
        assert!(["oldold\n", "newnew\n"].contains(&&*text), "{other}: {text}");
    }))
    .await;
}

#[tokio::test]
async fn a_document_has_one_editor_however_it_is_spelled() {
    // The editor reads nothing, and must not count as vanished meanwhile.
    let program = env!("CARGO_BIN_EXE_axum_websocket");
    let (_example, address) = Example::serve_with(program, &["60"]).await;
    let url = |id: &str| format!("ws://{address}/documents/{id}");
    let (_editor, _) = connect_async(url("7")).await.unwrap();
    let _waiting = tokio::spawn({
        let url = url("07");
        async move { connect_async(url).await.map(drop) }
    });
    for other in ["+7", "%2B7", "%30%37"] {
        // One may wait, so all others but one are refused at once.
        let tries =
            join_all([other; 2].map(|other| {
                tokio::time::timeout(Duration::from_secs(3), connect_async(url(other)))
            }));
        for answer in tries.await {
            match answer {
                Err(_) => {}
                Ok(Err(Error::Http(response))) => assert_eq!(response.status(), 429),
                Ok(other) => panic!("connected beside the first: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_balance_waits_for_a_transfer_however_the_account_is_spelled() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_extractor")).await;
    let transfer = json!({ "from": 6, "to": 7, "cents": 100 });
    let transfer = Client::new().post(format!("http://{address}/transfers")).json(&transfer).send();
    let (answer, seen) = tokio::join!(
        transfer,
        join_all(["7", "07", "+7", "%2B7", "%30%37"].map(async |account| {
            let url = format!("http://{address}/accounts/{account}");
            reqwest::get(url).await.unwrap().text().await.unwrap()
        })),
    );
    assert_eq!(answer.unwrap().status(), 200);
    let mut tokens: Vec<_> = seen.iter().map(|text| super::token(text)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 5, "one lock, so each hold has a token of its own: {seen:?}");
}
