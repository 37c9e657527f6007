//! HTTP clients that send the next request after the last response.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::clock::now;
use crate::program::Program;
use crate::sample::{Sample, percentiles};
use crate::servers::Servers;
use crate::turns::{Turn, Turns};

const RAMP: Duration = Duration::from_millis(100);
/// The distance between the keys of two connections: they use different keys, until they meet after
/// that many requests.
const STRIDE: usize = 8_191;

/// Measures a repetition with this program as server.
pub(crate) fn sample(
    program: &Program,
    connections: usize,
    keys: usize,
    window: Duration,
    servers: &mut Servers,
) -> Result<Sample, String> {
    let from = now() + RAMP.as_nanos() as u64;
    let until = from + window.as_nanos() as u64;
    let before = (program.cpu_us(), servers.redis.cpu_us());
    let clients = all(program.name().to_owned(), connections, keys, until);
    // The driver's own load: a single thread, like a load generator.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let requests = runtime.map_err(|error| error.to_string())?.block_on(clients)?;
    let total = requests.len() as f64;
    let after = (program.cpu_us(), servers.redis.cpu_us());
    let turns = Turns::of(requests, connections, from, until);
    let mut sample = Sample::new();
    let mut value = |name: &str, value: f64| sample.insert(name.to_owned(), value);
    value("requests_s", turns.count() as f64 / turns.seconds());
    value("in_order", turns.in_order());
    value("client_us", (after.0 - before.0) / total);
    value("server_us", (after.1 - before.1) / total);
    percentiles(&mut sample, "request", turns.waits_us());
    Ok(sample)
}

async fn all(
    address: String,
    connections: usize,
    keys: usize,
    until: u64,
) -> Result<Vec<Turn>, String> {
    let mut clients = JoinSet::new();
    for number in 0..connections {
        clients.spawn(client(address.clone(), number, keys, until));
    }
    let mut requests = Vec::new();
    while let Some(client) = clients.join_next().await {
        requests.extend(client.map_err(|error| error.to_string())?.map_err(|e| e.to_string())?);
    }
    Ok(requests)
}

async fn client(
    address: String,
    task: usize,
    keys: usize,
    until: u64,
) -> std::io::Result<Vec<Turn>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut turns = Vec::new();
    let mut buffer = Vec::new();
    while now() < until {
        let key = (task * STRIDE + turns.len()) % keys;
        let request = format!("GET /orders/{key} HTTP/1.1\r\nhost: bench\r\n\r\n");
        let asked = now();
        stream.write_all(request.as_bytes()).await?;
        answer(&mut stream, &mut buffer).await?;
        let answered = now();
        let granted = answered;
        let giving = answered;
        let given = answered;
        turns.push(Turn { task, key, asked, granted, giving, given });
    }
    Ok(turns)
}

/// Reads a whole response; anything but success is an error.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::Error::other("the server closed the connection"));
        }
        let text = String::from_utf8_lossy(buffer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if !head.starts_with("HTTP/1.1 200 ") {
            return Err(std::io::Error::other(format!("refused: {head}")));
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.is_some_and(|length| length.parse() == Ok(body.len())) {
            return Ok(());
        }
    }
}
