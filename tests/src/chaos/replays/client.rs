//! The clients of one key: they send the same request at about the same time, hang up, and send it
//! again until they have a response.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::fault::ReplayFault;
use super::keeper::Keeper;
use super::process::{FAULT, SIZE};
use crate::chaos::dice::Dice;
use crate::http::Answer;

/// When a client without a response gives up, which is a violation.
const LIMIT: Duration = Duration::from_secs(120);
/// The pause between two attempts of a client.
const AGAIN: Duration = Duration::from_millis(20);

/// The responses received by the clients of a key.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) key: String,
    /// The responses of the work.
    pub(super) answers: Vec<Answer>,
    /// The responses sent although they could not be stored.
    pub(super) not_stored: Vec<Answer>,
    pub(super) overtaken: u64,
    pub(super) hung_up: u64,
    pub(super) cut_off: u64,
    pub(super) violations: Vec<String>,
}

/// Sends the request of key `number` from several clients.
pub(super) async fn send(keeper: &Keeper, number: u64, dice: &mut Dice) -> Said {
    let fault = ReplayFault::of(number);
    let key = format!("k{number}");
    let size = dice.of(0..=8_192);
    let count = dice.of(2..=5);
    let clients = (0..count).map(|client| {
        let mut dice = Dice::part(dice.next(), client);
        let key = &key;
        // Two clients carry the fault, in case another request arrives first.
        let fault = fault.filter(|_| client < 2);
        async move { one(keeper, key, size, fault, &mut dice).await }
    });
    let mut all = Said { key: key.clone(), ..Said::default() };
    for said in join_all(clients).await {
        all.answers.extend(said.answers);
        all.not_stored.extend(said.not_stored);
        all.overtaken += said.overtaken;
        all.hung_up += said.hung_up;
        all.cut_off += said.cut_off;
        all.violations.extend(said.violations);
    }
    all
}

/// Sends the request until it has a response. The fault applies to the first attempt.
async fn one(
    keeper: &Keeper,
    key: &str,
    size: u64,
    mut fault: Option<ReplayFault>,
    dice: &mut Dice,
) -> Said {
    let mut said = Said::default();
    let hangs_up = fault.is_none() && dice.percent(60);
    let mut patience = hangs_up.then(|| Duration::from_millis(dice.of(0..=40)));
    if fault.is_none() {
        sleep(Duration::from_millis(dice.of(0..=30))).await;
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        let fault = fault.take().map_or(String::new(), |fault| format!("{FAULT}: {fault}\r\n"));
        let request = format!(
            "POST /work HTTP/1.1\r\nhost: x\r\nconnection: close\r\nidempotency-key: {key}\r\n\
             {SIZE}: {size}\r\n{fault}content-length: 4\r\n\r\nwork"
        );
        let asked = ask(keeper.any(dice), &request);
        let answer = match patience.take() {
            Some(patience) => match timeout(patience, asked).await {
                Ok(answer) => answer,
                Err(_) => {
                    said.hung_up += 1;
                    continue;
                }
            },
            None => match timeout_at(deadline, asked).await {
                Ok(answer) => answer,
                Err(_) => {
                    said.violations.push(format!("{key}: no answer within {LIMIT:?}"));
                    return said;
                }
            },
        };
        match answer {
            Ok(answer) if answer.status == 200 && answer.header("idempotency-stored").is_some() => {
                said.not_stored.push(answer);
            }
            Ok(answer) if answer.status == 200 => {
                said.answers.push(answer);
                return said;
            }
            Ok(answer) if answer.body.contains("\"lock-lost\"") => said.overtaken += 1,
            // A process was paused: the wait was over, or the server's reply came too late.
            Ok(answer) if [423, 503].contains(&answer.status) => {}
            Ok(answer) => said.violations.push(format!("{key}: {} {}", answer.head, answer.body)),
            Err(_) => said.cut_off += 1,
        }
        sleep(AGAIN).await;
    }
}

/// Sends a request on a dedicated connection; an error unless the whole response arrives.
async fn ask(address: SocketAddr, request: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    let answer = Answer::parse(&bytes);
    let length = answer.header("content-length").and_then(|length| length.parse().ok());
    match answer.status != 0 && length == Some(answer.bytes.len()) {
        true => Ok(answer),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
