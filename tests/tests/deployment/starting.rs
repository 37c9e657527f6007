//! A process that starts while Redis is away.

include!("start.rs");

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Connects to a server that is not there, until it is.
async fn connect() -> Result<Locks, LockError> {
    loop {
        match Locks::connect("redis://127.0.0.1:1/").await {
            Err(error) if error.is_retryable() => sleep(Duration::from_secs(1)).await,
            connected => return connected,
        }
    }
}

#[tokio::test]
async fn a_process_that_waits_for_redis_is_alive_and_ends_on_sigterm() {
    let probes = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = probes.local_addr().expect("it is bound");
    let leaving = CancellationToken::new();
    let starting = tokio::spawn(start(probes, connect(), leaving.clone()));

    let mut kubelet = TcpStream::connect(address).await.expect("it listens");
    let probe = b"GET /alive HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    kubelet.write_all(probe).await.expect("it reads");
    let mut response = String::new();
    let reading = timeout(Duration::from_secs(30), kubelet.read_to_string(&mut response));
    reading.await.expect("a response").expect("to its end");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(!starting.is_finished());

    leaving.cancel();
    let started = timeout(Duration::from_secs(30), starting).await.expect("it ends");
    assert!(started.expect("no panic").expect("no error").is_none());
}

#[tokio::test]
async fn readiness_fails_once_the_process_is_leaving() {
    let leaving = CancellationToken::new();
    let _router: Router = readiness(leaving.clone());
    assert_eq!(ready(State(leaving.clone())).await, StatusCode::OK);
    leaving.cancel();
    assert_eq!(ready(State(leaving)).await, StatusCode::SERVICE_UNAVAILABLE);
}
