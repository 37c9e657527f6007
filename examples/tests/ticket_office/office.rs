//! A running `ticket-office`, and its clients' requests.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use lock_tests::{Leash, RedisServer, eventually};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::scratch::Scratch;

/// A time limit for events that are immediate on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Creates the command without the tests' environment variables, and with default signal handling:
/// a shell that runs the tests in the background (`&`, `nohup`) ignores some signals, and the
/// command would inherit this.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_ticket-office")])
        .args(arguments)
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    for name in ["LISTEN", "DATABASE", "SEATS", "PAY_MS", "MAX_WAIT", "LEASE", "QUEUE_LIMIT"] {
        command.env_remove(format!("TICKET_OFFICE_{name}"));
    }
    command.env_remove("REDIS_URL");
    command
}

/// A process, killed on drop and if the tests are killed.
pub(crate) struct Office {
    process: Child,
    leash: Option<Leash>,
    stdout: Lines<BufReader<ChildStdout>>,
    url: String,
    client: Client,
}

impl Office {
    /// Opens an office on a free port; returns once it is open.
    pub(crate) async fn open(arguments: &[&str]) -> Self {
        Self::run(command(arguments).env("TICKET_OFFICE_LISTEN", "127.0.0.1:0")).await
    }

    /// Opens two offices for the same seats, with these options.
    pub(crate) async fn two(
        server: &RedisServer,
        scratch: &Scratch,
        options: &[&str],
    ) -> (Self, Self) {
        let (url, database) = (server.url(), scratch.database());
        let arguments = [&["--redis", &url, "--database", &database], options].concat();
        tokio::join!(Self::open(&arguments), Self::open(&arguments))
    }

    pub(crate) async fn run(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the office starts");
        let leash = Some(Leash::new(process.id().expect("it runs"), None));
        let mut stdout = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let url = loop {
            let line = timeout(SOON, stdout.next_line()).await.expect("it says where it is");
            let line = line.expect("stdout can be read").expect("it has not ended");
            if let Some((_, url)) = line.split_once("open ") {
                break url.trim_end_matches('/').to_owned();
            }
        };
        // The connection is on loopback, without a proxy.
        let client = Client::builder().no_proxy().build().expect("a client");
        Self { process, leash, stdout, url, client }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("it has not ended")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) fn ask(&self, path: &str) -> RequestBuilder {
        self.client.get(self.url(path))
    }

    pub(crate) fn get(&self, path: &str) -> impl Future<Output = Answer> + use<> {
        answer(self.ask(path))
    }

    pub(crate) fn post(&self, path: &str, kind: &'static str, body: &str) -> RequestBuilder {
        self.client.post(self.url(path)).header("content-type", kind).body(body.to_owned())
    }

    /// Buys a seat. The order is sent at the first poll; dropping the future disconnects.
    pub(crate) fn buy(
        &self,
        seat: u32,
        buyer: &str,
        pay_ms: u64,
    ) -> impl Future<Output = Answer> + use<> {
        answer(self.order(seat, buyer, pay_ms))
    }

    pub(crate) fn order(&self, seat: u32, buyer: &str, pay_ms: u64) -> RequestBuilder {
        let order = json!({ "buyer": buyer, "pay_ms": pay_ms }).to_string();
        self.post(&format!("/seats/{seat}/buy"), "application/json", &order)
    }

    /// Returns an order with an idempotency key, for this path.
    pub(crate) fn keyed(&self, path: &str, buyer: &str, pay_ms: u64, key: &str) -> RequestBuilder {
        let order = json!({ "buyer": buyer, "pay_ms": pay_ms }).to_string();
        self.post(path, "application/json", &order).header("idempotency-key", key)
    }

    /// Waits until `/metrics` has this line.
    pub(crate) async fn until_counted(&self, line: &str) {
        eventually(&format!("it counts {line}"), SOON, async || {
            self.get("/metrics").await.text.lines().any(|other| other == line)
        })
        .await;
    }

    /// Requests the seat's buyer.
    pub(crate) async fn buyer(&self, seat: u32) -> Value {
        let seats = self.get("/seats").await;
        assert_eq!(seats.status, 200, "{seats:?}");
        seats.body[seat as usize - 1]["buyer"].clone()
    }

    /// Waits until the queue of a seat has this holder and these waiters.
    pub(crate) async fn until_line(&self, seat: u32, holder: Option<&str>, waiters: &[&str]) {
        let what = format!("seat {seat} is held by {holder:?}, and {waiters:?} wait");
        eventually(&what, SOON, async || {
            let line = self.get(&format!("/seats/{seat}/line")).await;
            line.body["holder"] == json!(holder) && line.body["waiters"] == json!(waiters)
        })
        .await;
    }

    /// Waits until the office has exited.
    pub(crate) async fn end(mut self) -> ExitStatus {
        self.leash = None; // before it is reaped
        timeout(SOON, self.process.wait()).await.expect("it ends").expect("it can be waited for")
    }

    /// Waits until the office prints this text on stdout.
    pub(crate) async fn until_said(&mut self, text: &str) {
        let said = async {
            while let Some(line) = self.stdout.next_line().await.expect("stdout can be read") {
                if line.contains(text) {
                    return;
                }
            }
            panic!("it has ended without saying {text:?}");
        };
        timeout(SOON, said).await.expect("it says so in time");
    }
}

/// A response received by a client.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) retry_after: Option<u64>,
    /// Whether this is the stored response to an earlier request with the same key.
    pub(crate) is_replayed: bool,
    /// The body; `null` if it is not JSON.
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Answer {
    /// Asserts that the response is a refusal, in the common format.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, code: &str) {
        assert_eq!((self.status, &self.body["code"]), (status, &json!(code)), "{self:?}");
        assert_eq!(self.kind, "application/problem+json", "{self:?}");
        assert_eq!(self.body["status"], status, "{self:?}");
        assert!(self.body["detail"].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
    }
}

pub(crate) async fn answer(request: RequestBuilder) -> Answer {
    try_answer(request).await.expect("it answers")
}

/// Sends a request; an error if the process exits before responding.
pub(crate) async fn try_answer(request: RequestBuilder) -> reqwest::Result<Answer> {
    let response: Response = request.send().await?;
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let kind = header("content-type").unwrap_or_default().to_owned();
    let retry_after = header("retry-after").and_then(|seconds| seconds.parse().ok());
    let is_replayed = header("idempotency-replayed") == Some("true");
    let status = response.status().as_u16();
    let text = response.text().await?;
    let body = serde_json::from_str(&text).unwrap_or_default();
    Ok(Answer { status, kind, retry_after, is_replayed, body, text })
}
