//! `scripts/demo-failover` completes, finds every seat sold once, and leaves nothing behind.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_tests::eventually;

/// The time limit of a demo, which takes half a minute on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/demo-failover");

/// Returns the ports in the output.
fn ports(said: &str) -> Vec<u16> {
    let after = said.split("127.0.0.1:").skip(1);
    let mut ports: Vec<u16> = after
        .map(|text| text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default())
        .map(|digits| digits.parse().expect("a port"))
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[tokio::test]
async fn a_demo_of_one_failover_sells_every_seat_once_and_leaves_nothing_behind() {
    let scratch =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{}", std::process::id()));
    fs::create_dir_all(&scratch).expect("the target directory can be written");
    let mut demo = Command::new(SCRIPT)
        .args(["--once", "--office", env!("CARGO_BIN_EXE_ticket-office")])
        .env("TMPDIR", &scratch)
        .stdin(Stdio::null())
        .stdout(fs::File::create(scratch.join("stdout")).expect("it can be written"))
        .stderr(fs::File::create(scratch.join("stderr")).expect("it can be written"))
        .spawn()
        .expect("bash is there");
    let read = |name| fs::read_to_string(scratch.join(name)).unwrap_or_default();
    let ended = async || demo.try_wait().expect("a child can be asked").is_some();
    eventually("the demo ends", LIMIT, ended).await;
    let said = read("stdout");
    let wrong = read("stderr");
    assert!(demo.wait().is_ok_and(|status| status.success()), "{said}{wrong}");
    assert!(said.contains("sold: 6 of 6 seats; sold twice: 0; free: 0"), "{said}{wrong}");

    let ports = ports(&said);
    assert_eq!(ports.len(), 9, "three servers, three sentinels, three offices: {said}");
    for port in ports {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} still listens: {said}");
    }
    for name in ["stdout", "stderr"] {
        fs::remove_file(scratch.join(name)).expect("it is ours");
    }
    fs::remove_dir(&scratch).expect("nothing else is in it");
}
