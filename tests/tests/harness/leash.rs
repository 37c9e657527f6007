//! Facts about `Leash`: no server outlives the tests.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_tests::{RedisServer, eventually, signal};

/// The variable that is set in the copy of this test binary that is to be killed.
const VICTIM: &str = "LOCK_TESTS_LEASH_VICTIM";

/// Plays the copy: starts a server, prints its process, and waits for its end.
fn be_killed() -> ! {
    let server = RedisServer::start();
    let directory = format!("lock-tests-{}-{}", std::process::id(), server.address().port());
    let line = format!("{} {}", server.address(), std::env::temp_dir().join(directory).display());
    // The line goes past the test runner, which captures printed text.
    std::fs::write("/dev/stderr", format!("\nvictim {line}\n")).expect("stderr takes a line");
    server.freeze(); // the worst case: it would not notice a closed connection or a gentle signal
    loop {
        std::thread::park();
    }
}

#[tokio::test]
async fn a_server_dies_with_a_test_process_that_is_killed_and_leaves_no_files() {
    if std::env::var_os(VICTIM).is_some() {
        be_killed();
    }
    let itself = "leash::a_server_dies_with_a_test_process_that_is_killed_and_leaves_no_files";
    let mut victim = Command::new(std::env::current_exe().expect("tests have a path"))
        .args(["--exact", itself, "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this binary starts again");
    let stderr = BufReader::new(victim.stderr.take().expect("piped"));
    let line = stderr
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("victim ").map(str::to_owned))
        .expect("the victim says where its server is");
    let (address, directory) = line.split_once(' ').expect("address and directory");
    TcpStream::connect(address).expect("its server is up");
    assert!(Path::new(directory).is_dir());

    signal::kill(victim.id());
    victim.wait().expect("a child can be waited for");
    eventually("the server is gone", Duration::from_secs(10), async || {
        TcpStream::connect(address).is_err() && !Path::new(directory).exists()
    })
    .await;
}
