//! Waiting for a lock, and how the wait ends.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::Duration;

use lock_tests::{RedisServer, signal};
use rustix::termios::{Action, tcflow};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::{Instant, timeout};

use crate::common::{Running, SOON, lockctl, run, server, wait, waiting};
use crate::terminal::pair;

#[tokio::test]
async fn a_lock_that_is_held_is_75_after_the_wait() {
    let url = server().url();
    let holder = Running::start(&url, &[], "taken", "echo; exec cat").await;
    let started = Instant::now();
    run(&url, ["exec", "--wait", "0", "taken", "--", "true"]).await.says(75, "--wait 0");
    assert!(started.elapsed() < Duration::from_secs(20));
    let started = Instant::now();
    run(&url, ["exec", "--wait", "0.7", "taken", "--", "true"]).await.says(75, "--wait 0.7");
    assert!(started.elapsed() >= Duration::from_millis(700), "{:?}", started.elapsed());
    waiting(&url, "taken", 0).await;
    signal::terminate(holder.pid());
    holder.end().await.is(128 + 15);
}

#[tokio::test]
async fn a_full_queue_is_75_at_once() {
    let url = server().url();
    let holder = Running::start(&url, &[], "full", "echo; exec cat").await;
    let _waiter = lockctl(&url, ["exec", "full", "--", "true"]).spawn().expect("it starts");
    waiting(&url, "full", 1).await;
    let ended = run(&url, ["exec", "--queue-limit", "1", "full", "--", "true"]).await;
    ended.says(75, "--queue-limit 1");
    drop(holder);
}

#[tokio::test]
async fn redis_away_when_the_time_runs_out_is_69_and_not_75() {
    let server = RedisServer::start();
    let url = server.url();
    let _holder = Running::start(&url, &[], "away", "echo; exec cat").await;
    let arguments = ["exec", "--wait", "6", "away", "--", "true"];
    let late = lockctl(&url, arguments).spawn().expect("it starts");
    waiting(&url, "away", 1).await;
    server.freeze();
    let output = timeout(SOON, late.wait_with_output()).await.expect("it ends").expect("it runs");
    server.thaw();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[tokio::test]
async fn those_who_wait_run_one_at_a_time_in_the_order_of_their_arrival() {
    let url = server().url();
    let log =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("order-{}", std::process::id()));
    File::create(&log).expect("the target directory can be written");
    let holder = Running::start(&url, &[], "order", "echo; exec cat").await;
    let script = r#"echo "in $1" >>"$2"; sleep 0.05; echo "out $1" >>"$2""#;
    let mut waiters = Vec::new();
    for number in 0..4 {
        let name = number.to_string();
        let arguments = ["exec", "order", "--", "sh", "-c", script, "sh", &name];
        let arguments = arguments.iter().map(OsStr::new).chain([log.as_os_str()]);
        waiters.push(lockctl(&url, arguments).spawn().expect("it starts"));
        waiting(&url, "order", waiters.len()).await;
    }
    signal::terminate(holder.pid());
    holder.end().await.is(128 + 15);
    for mut waiter in waiters {
        assert!(wait(&mut waiter).await.success());
    }
    let seen = std::fs::read_to_string(&log).expect("it is there");
    let expected: String = (0..4).map(|number| format!("in {number}\nout {number}\n")).collect();
    assert_eq!(seen, expected);
    std::fs::remove_file(log).expect("it is ours");
}

#[tokio::test]
async fn on_a_terminal_the_position_and_the_holder_are_shown_and_cleared() {
    let url = server().url();
    let holder =
        Running::start(&url, &["--label", "web-1:812"], "order:42", "echo; exec cat").await;

    let (mut terminal, other_end) = pair();
    let mut process = lockctl(&url, ["exec", "order:42", "--", "true"])
        .env("TERM", "xterm")
        .stderr(other_end)
        .spawn()
        .expect("it starts");

    let holder_id = holder.pid();
    // Ends when no process has the other end open.
    let shown = tokio::task::spawn_blocking(move || {
        let mut shown = Vec::new();
        let mut chunk = [0; 1024];
        let mut is_shown = false;
        while let Ok(length @ 1..) = terminal.read(&mut chunk) {
            shown.extend_from_slice(&chunk[..length]);
            let text = String::from_utf8_lossy(&shown);
            if !is_shown && text.contains("position 1 of 1, held by web-1:812, lease ") {
                is_shown = true;
                signal::terminate(holder_id);
            }
        }
        String::from_utf8_lossy(&shown).into_owned()
    });
    let shown = timeout(SOON, shown).await.expect("the line appears").expect("it does not panic");
    assert!(wait(&mut process).await.success());
    assert!(shown.starts_with("\r\x1b[Kwaiting for order:42"), "{shown:?}");
    assert!(shown.ends_with("\r\x1b[K"), "{shown:?}");
    assert!(!shown.contains('\n'), "{shown:?}");
    holder.end().await.is(128 + 15);
}

// A terminal is stopped by Ctrl-S, and by a session that hangs.
#[tokio::test]
async fn on_a_stopped_terminal_the_command_runs_once_the_lock_is_granted() {
    let url = server().url();
    let holder = Running::start(&url, &[], "stopped:1", "echo; exec cat").await;
    let (mut terminal, other_end) = pair();
    let mut process = lockctl(&url, ["exec", "stopped:1", "--", "echo", "granted"])
        .env("TERM", "xterm")
        .stderr(other_end.try_clone().expect("it can be cloned"))
        .spawn()
        .expect("it starts");
    let shown = tokio::task::spawn_blocking(move || {
        assert!(matches!(terminal.read(&mut [0; 1024]), Ok(1..)), "it is shown that it waits");
        terminal
    });
    let _terminal = timeout(SOON, shown).await.expect("a line appears").expect("no panic");
    tcflow(&other_end, Action::OOff).expect("it is a terminal");
    signal::terminate(holder.pid());
    holder.end().await.is(128 + 15);
    let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
    let line = timeout(SOON, lines.next_line()).await.expect("CMD runs");
    assert_eq!(line.expect("it can be read").as_deref(), Some("granted"));
    assert_eq!(wait(&mut process).await.code(), Some(0));
}
