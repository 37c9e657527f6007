//! Each small example does what its first lines promise, run as the program built by its command.
#![allow(clippy::unwrap_used, reason = "the harness of tests is a test")]

mod forms;
mod recipes;
mod spelling;

use std::process::Stdio;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use lock_tests::{Leash, RedisServer};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async, connect_async};

/// A time limit for events that are immediate on an idle machine.
const SOON: Duration = Duration::from_secs(30);

struct Example {
    lines: Lines<BufReader<ChildStdout>>,
    _leash: Leash,
    child: Child,
}

impl Example {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let leash = Leash::new(child.id().unwrap(), None);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { lines, _leash: leash, child }
    }

    /// Starts an example on a free port; also returns the printed address.
    async fn serve(program: &str) -> (Self, String) {
        Self::serve_with(program, &[]).await
    }

    /// Starts an example with additional arguments, like `serve`.
    async fn serve_with(program: &str, arguments: &[&str]) -> (Self, String) {
        let arguments: Vec<_> = [&"127.0.0.1:0"].into_iter().chain(arguments).copied().collect();
        let mut example = Self::start(program, &arguments);
        let line = example.line().await.expect("it says where it listens");
        let address = line.strip_prefix("listening on http://").expect("it says so").to_owned();
        (example, address)
    }

    async fn line(&mut self) -> Option<String> {
        timeout(SOON, self.lines.next_line()).await.expect("a line in time").unwrap()
    }

    /// Returns the whole output, after a successful exit.
    async fn output(mut self) -> Vec<String> {
        let mut output = Vec::new();
        while let Some(line) = self.line().await {
            output.push(line);
        }
        assert!(timeout(SOON, self.child.wait()).await.unwrap().unwrap().success(), "{output:?}");
        output
    }
}

/// Returns the token at the end of a line.
fn token(line: &str) -> u64 {
    line.trim_end().rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"))
}

#[test]
fn every_small_example_is_short_and_begins_with_its_command() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if !entry.is_file() {
            continue;
        }
        let name = entry.file_stem().unwrap();
        let text = std::fs::read_to_string(&entry).unwrap();
        let command = format!("//! `cargo run -p lock-examples --bin {}", name.display());
        assert!(text.starts_with(&command), "{name:?} begins with its command");
        let program = text.split("#[cfg(test)]").next().unwrap();
        assert!(program.lines().count() < 120, "{name:?} is short");
        seen += 1;
    }
    assert_eq!(seen, 13);
}

#[tokio::test]
async fn the_axum_layer_serves_one_order_at_a_time_and_others_beside_it() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_layer")).await;
    let client = reqwest::Client::new();
    let pay = |order: u32| client.post(format!("http://{address}/orders/{order}/pay")).send();
    let began = Instant::now();
    let (one, two, other) = tokio::join!(pay(1), pay(1), pay(2));
    assert!(began.elapsed() >= Duration::from_secs(4), "two payments of 2 s, one after the other");
    let one = one.unwrap().text().await.unwrap();
    let two = two.unwrap().text().await.unwrap();
    assert_ne!(token(&one), token(&two));
    assert!(other.unwrap().text().await.unwrap().starts_with("paid under token"));
}

#[tokio::test]
async fn the_axum_extractor_loses_no_money_in_transfers_that_cross() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_extractor")).await;
    let client = reqwest::Client::new();
    let transfer = |from: u32, to: u32| {
        let order = json!({ "from": from, "to": to, "cents": 100 });
        client.post(format!("http://{address}/transfers")).json(&order).send()
    };
    let answers = tokio::join!(transfer(1, 2), transfer(2, 1), transfer(1, 2), transfer(1, 2));
    for answer in [answers.0, answers.1, answers.2, answers.3] {
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    }
    balances(&address, ["9800", "10200"]).await;
}

async fn balances(address: &str, expected: [&str; 2]) {
    for (account, cents) in [1, 2].into_iter().zip(expected) {
        let answer = reqwest::get(format!("http://{address}/accounts/{account}")).await.unwrap();
        let text = answer.text().await.unwrap();
        assert!(text.starts_with(&format!("{cents} cents")), "{text}");
    }
}

// Once, a negative amount took money from the account that was to receive it.
#[tokio::test]
async fn the_axum_extractor_refuses_a_transfer_that_takes_or_makes_money() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_extractor")).await;
    let all = [(1, 2, -500), (1, 2, i64::MIN), (1, 2, 10_001), (1, 1, 100)];
    for (from, to, cents) in all {
        let order = json!({ "from": from, "to": to, "cents": cents });
        let transfer = reqwest::Client::new().post(format!("http://{address}/transfers"));
        let answer = transfer.json(&order).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{order}");
    }
    balances(&address, ["10000", "10000"]).await;
}

// Once, a failed accept ended the server: its connections were cut, and its locks stayed held.
#[tokio::test]
async fn the_hyper_server_goes_on_after_a_connection_that_it_could_not_accept() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_hyper_server");
    let mut example = Example::start(program, &[&server.url(), "127.0.0.1:0"]);
    let line = example.line().await.expect("it says where it listens");
    let url = format!("{}/orders/42", line.strip_prefix("listening on ").expect("it says so"));
    let pid = example.child.id().expect("it runs");
    let child = Pid::from_raw(pid.cast_signed());
    let is_free = |fd: &u64| !std::fs::exists(format!("/proc/{pid}/fd/{fd}")).unwrap();
    let usual = getrlimit(Resource::Nofile);
    let full = Rlimit { current: (0..).find(is_free), ..usual };
    prlimit(child, Resource::Nofile, full).unwrap();
    let waiting = tokio::spawn(reqwest::get(url));
    let line = example.line().await.expect("it goes on");
    assert!(line.starts_with("cannot accept a connection: "), "{line}");
    prlimit(child, Resource::Nofile, usual).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn the_streaming_example_holds_to_the_last_line() {
    let (_example, address) = Example::serve(env!("CARGO_BIN_EXE_axum_streaming")).await;
    let export = async || {
        let answer = reqwest::get(format!("http://{address}/exports/march")).await.unwrap();
        let begun = Instant::now();
        let text = answer.text().await.unwrap();
        assert_eq!(text.lines().count(), 5, "{text}");
        (begun, Instant::now())
    };
    let (mut one, mut two) = tokio::join!(export(), export());
    if two.0 < one.0 {
        std::mem::swap(&mut one, &mut two);
    }
    // The head of the second arrives with the lock, after the first has its last line.
    assert!(two.0 + Duration::from_millis(500) > one.1, "they follow each other");
    assert!(two.1 - one.0 >= Duration::from_secs(4), "five lines each, half a second a line");
}

#[tokio::test]
async fn a_document_has_one_editor_while_the_socket_is_open() {
    let program = env!("CARGO_BIN_EXE_axum_websocket");
    let (_example, address) = Example::serve_with(program, &["60"]).await;
    let url = format!("ws://{address}/documents/7");
    let (mut first, _) = connect_async(&url).await.unwrap();
    let hello = first.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(hello.starts_with("document 7 is yours"), "{hello}");
    first.send(Message::text("words")).await.unwrap();
    assert_eq!(first.next().await.unwrap().unwrap().into_text().unwrap(), "saved 5 bytes");

    // One waits; the other is refused at once, by an ordinary response.
    let mut one = Box::pin(connect_async(&url));
    let mut other = Box::pin(connect_async(&url));
    let (refused, waiting) = tokio::select! {
        refused = &mut one => (refused, other),
        refused = &mut other => (refused, one),
    };
    match refused {
        Err(Error::Http(response)) => assert_eq!(response.status(), 429),
        other => panic!("connected beside the first: {other:?}"),
    }
    drop(first); // disconnects without a close frame
    let (mut second, _) = timeout(SOON, waiting).await.unwrap().unwrap();
    let hello = second.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(hello.starts_with("document 7 is yours"), "{hello}");
}

/// Connects as an editor of document 7.
async fn editor(address: &str) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
    let url = format!("ws://{address}/documents/7");
    let (mut socket, _) = timeout(SOON, connect_async(url)).await.expect("its turn").unwrap();
    let hello = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(hello.starts_with("document 7 is yours"), "{hello}");
    socket
}

#[tokio::test]
async fn a_silent_editor_that_answers_pings_stays_and_gets_one_ping_a_period() {
    let program = env!("CARGO_BIN_EXE_axum_websocket");
    let (_example, address) = Example::serve_with(program, &["1"]).await;
    let mut silent = editor(&address).await;
    let mut ping = async || {
        // Reading the ping also sends the pong.
        let ping = timeout(SOON, silent.next()).await.unwrap().unwrap().unwrap();
        assert!(ping.is_ping(), "{ping}");
        Instant::now()
    };
    // Two periods, less the delay of the first ping.
    let [first, _, third] = [ping().await, ping().await, ping().await];
    assert!(third - first >= Duration::from_secs(1), "the pongs brought more pings");
}

#[tokio::test]
async fn an_editor_that_answers_no_ping_gives_the_document_up() {
    let program = env!("CARGO_BIN_EXE_axum_websocket");
    let (_example, address) = Example::serve_with(program, &["1"]).await;
    let _frozen = editor(&address).await; // reads nothing, so it sends no pong
    editor(&address).await;
}

#[tokio::test]
async fn an_editor_that_reads_no_response_gives_the_document_up() {
    let program = env!("CARGO_BIN_EXE_axum_websocket");
    let (_example, address) = Example::serve_with(program, &["1"]).await;
    // Small buffers, which the responses soon fill.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let url = format!("ws://{address}/documents/7");
    let (mut deaf, _) = client_async(url, stream).await.unwrap();
    let writer =
        tokio::spawn(async move { while deaf.send(Message::text("words")).await.is_ok() {} });
    editor(&address).await;
    writer.abort();
}

#[tokio::test]
async fn two_nodes_stand_in_one_queue() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_two_nodes");
    let (one, two) = tokio::join!(
        Example::start(program, &[&server.url()]).output(),
        Example::start(program, &[&server.url()]).output(),
    );
    let mut tokens: Vec<_> = one.iter().chain(&two).map(|line| token(line)).collect();
    assert_eq!(tokens.len(), 20, "four nodes, five turns each");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 20, "each hold has a token of its own");
}

#[tokio::test]
async fn the_tower_service_works_without_http() {
    let output = Example::start(env!("CARGO_BIN_EXE_tower_service"), &[]).output().await;
    assert_eq!(output.len(), 4, "{output:?}");
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn the_grpc_server_refuses_and_then_serves() {
    let output = Example::start(env!("CARGO_BIN_EXE_tonic_health"), &[]).output().await;
    assert_eq!(output[0], "while it is held: Unavailable, lock-busy");
    assert!(output[1].starts_with("the stream: Aborted, The lock was lost"), "{output:?}");
    assert_eq!(output[2], "after that: status Serving");
}
