//! Holds lost while CMD runs.

use std::io::{ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use lock_tests::{RedisServer, eventually, signal};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::common::{Running, SOON, is_gone, lockctl, run, server, wait};

#[tokio::test]
async fn a_lost_lock_stops_the_command_and_exec_ends_with_74() {
    let url = server().url();
    let holder = Running::start(&url, &[], "force", "echo; exec cat").await;
    run(&url, ["release", "--force", "force"]).await.is(0);
    holder.end().await.says(74, "lost");
    run(&url, ["release", "--force", "force"]).await.says(1, "not held");
}

#[tokio::test]
async fn a_command_that_does_not_heed_sigterm_is_killed_after_five_seconds() {
    let url = server().url();
    let script = "trap '' TERM; echo; while kill -0 $PPID; do sleep 0.02; done";
    let holder = Running::start(&url, &[], "stubborn", script).await;
    let started = Instant::now();
    run(&url, ["release", "--force", "stubborn"]).await.is(0);
    holder.end().await.says(74, "lost");
    assert!(started.elapsed() >= Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_hold_is_lost_when_redis_stays_away_longer_than_the_lease() {
    let mut server = RedisServer::start();
    let holder = Running::start(&server.url(), &["--lease", "2"], "gone", "echo; exec cat").await;
    server.kill();
    holder.end().await.says(74, "lost");
}

#[tokio::test]
async fn a_loss_found_at_the_release_is_74() {
    let url = server().url();
    let mut holder = Running::start(&url, &[], "late", "echo; echo $$; exec cat").await;
    let command = holder.line().await.parse().expect("a process id");
    // CMD has exited before lockctl can notice the loss.
    signal::stop(holder.pid());
    run(&url, ["release", "--force", "late"]).await.is(0);
    signal::kill(command);
    // It may exit at once: then there is no continued child to wait for, as in `signal::resume`.
    let id = Pid::from_raw(holder.pid().cast_signed()).expect("not zero");
    kill_process(id, Signal::CONT).expect("it is ours");
    holder.end().await.says(74, "lost");
}

// M4: only CMD received the signals.
#[tokio::test]
async fn after_a_loss_nothing_of_what_the_command_has_started_is_at_work() {
    let url = server().url();
    // The script starts a child that ignores SIGTERM, below a shell that waits for it; a child in a
    // separate session; and a child whose parent has exited.
    let script = "export WORK='trap \"\" TERM; echo $$; while :; do sleep 0.05; done'; echo; \
                  sh -c 'sh -c \"$WORK\"; true' & \
                  setsid sh -c 'sh -c \"$WORK\"; true' & \
                  sh -c 'sh -c \"$WORK\" &'; wait";
    let mut holder = Running::start(&url, &[], "family", script).await;
    let all = [holder.line().await, holder.line().await, holder.line().await];
    assert!(all.iter().all(|pid| !is_gone(pid)), "{all:?}");
    run(&url, ["release", "--force", "family"]).await.is(0);
    holder.end().await.says(74, "lost");
    eventually("they are gone", SOON, async || all.iter().all(|pid| is_gone(pid))).await;
}

/// A stderr that takes no more, and the reader that has stopped reading.
fn full() -> (Stdio, UnixStream) {
    let (mut stderr, reader) = UnixStream::pair().expect("a pair");
    stderr.set_nonblocking(true).expect("it is a socket");
    let error = loop {
        if let Err(error) = stderr.write(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    stderr.set_nonblocking(false).expect("it is a socket");
    (OwnedFd::from(stderr).into(), reader)
}

// As with `2>&1 | less`: CMD worked beside the next holder for as long as nobody read.
#[tokio::test]
async fn a_loss_stops_the_command_while_nobody_reads_stderr() {
    let url = server().url();
    let (stderr, _reader) = full();
    let script = "trap '' TERM; echo $$; while kill -0 $PPID; do sleep 0.02; done 2>&-";
    let mut process = lockctl(&url, ["exec", "unread", "--", "sh", "-c", script])
        .stderr(stderr)
        .spawn()
        .expect("it starts");
    let stdout = process.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(stdout).lines();
    let command = timeout(SOON, lines.next_line()).await.expect("CMD writes a line");
    let command = command.expect("stdout can be read").expect("CMD has not ended");
    run(&url, ["release", "--force", "unread"]).await.is(0);
    eventually("CMD is gone", SOON, async || is_gone(&command)).await;
    assert_eq!(wait(&mut process).await.code(), Some(74));
}

// As in the entrypoint `nginx & exec lockctl exec leader -- worker`.
#[tokio::test]
async fn a_loss_leaves_the_processes_alone_that_ran_before_the_command() {
    let url = server().url();
    let exec = lockctl(&url, ["exec", "entry", "--", "sh", "-c", "echo; exec cat"]);
    let exec = exec.as_std();
    let script = "sleep 99 >&- 2>&- & echo $!; exec \"$@\"";
    let mut entry = Command::new("sh");
    entry
        .args(["-c", script, "sh"])
        .arg(exec.get_program())
        .args(exec.get_args())
        .env("REDIS_URL", &url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let mut holder = Running::of(entry);
    let earlier = holder.line().await;
    holder.line().await;
    run(&url, ["release", "--force", "entry"]).await.is(0);
    holder.end().await.says(74, "lost");
    assert!(!is_gone(&earlier), "it was stopped");
    signal::kill(earlier.parse().expect("a process id"));
}
