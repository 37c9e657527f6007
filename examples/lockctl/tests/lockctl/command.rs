//! CMD's environment and arguments, and how its end is reported.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;

use lock_tests::{RedisOptions, Watched, eventually};
use redis::cmd;
use tokio::time::timeout;

use crate::common::{Running, SOON, assert_free, inspect, lockctl, run, server, waiting};

#[tokio::test]
async fn exec_ends_with_the_status_of_its_command() {
    let url = server().url();
    run(&url, ["exec", "status", "--", "true"]).await.is(0);
    run(&url, ["exec", "status", "--", "sh", "-c", "exit 42"]).await.is(42);
    run(&url, ["exec", "status", "--", "sh", "-c", "kill -9 $$"]).await.is(128 + 9);
    assert_free(&url, "status").await;
}

#[tokio::test]
async fn a_command_that_does_not_start_releases_the_lock() {
    let url = server().url();
    run(&url, ["exec", "start", "--", "no-such-command-here"]).await.says(127, "no-such-command");
    assert_free(&url, "start").await;
    run(&url, ["exec", "start", "--", "/dev/null"]).await.says(126, "/dev/null");
    assert_free(&url, "start").await;
}

#[tokio::test]
async fn the_command_finds_key_and_token_in_its_environment() {
    let url = server().url();
    let script = r#"echo "$LOCK_KEY $LOCK_TOKEN""#;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let ended = run(&url, ["exec", "50% {off}", "--", "sh", "-c", script]).await;
        ended.is(0);
        let token = ended.stdout.trim_end().strip_prefix("50% {off} ").expect("the key as given");
        tokens.push(token.parse::<u64>().expect("a token is a number"));
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

#[tokio::test]
async fn arguments_of_the_command_need_not_be_utf8() {
    let bytes = OsString::from_vec(vec![b'a', 0xff, b'b']);
    let arguments = ["exec", "bytes", "--", "sh", "-c", r#"printf %s "$1" | wc -c"#, "sh"];
    let arguments = arguments.iter().map(OsStr::new).chain([bytes.as_os_str()]);
    let ended = run(&server().url(), arguments).await;
    ended.is(0);
    assert_eq!(ended.stdout.trim(), "3");
}

#[tokio::test]
async fn a_command_keeps_its_lock_and_a_waiter_its_position_when_sentinels_replace_the_primary() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let url = watched.url();
    let holder = Running::start(&url, &[], "k", "echo; exec cat").await;
    let member = inspect(&url, "k").await["holders"][0]["member"].clone();
    let waiter = lockctl(&url, ["exec", "k", "--", "true"]).output();
    let waiter = tokio::spawn(waiter);
    waiting(&url, "k", 1).await;
    // Replication is asynchronous: the hold and the queue entry must be replicated first to
    // survive.
    watched.in_step().await;
    watched.server(0).kill();
    watched.promoted(0).await;
    let mut primary = watched.raw(watched.settled().await).await;
    eventually("both listen to the new primary", SOON, async || {
        let channels: Vec<String> =
            primary.ask(cmd("PUBSUB").arg("CHANNELS").arg("lockcore:grants:*")).await;
        channels.len() == 2
    })
    .await;
    let seen = inspect(&url, "k").await;
    assert_eq!(seen["holders"][0]["member"], member);
    assert_eq!(seen["waiters"].as_array().map(Vec::len), Some(1), "{seen}");
    holder.finish().await.is(0);
    let waiter = timeout(SOON, waiter).await.expect("lockctl ends").expect("no panic");
    let waiter = waiter.expect("lockctl starts");
    assert_eq!((waiter.status.code(), &*waiter.stderr), (Some(0), &b""[..]), "{waiter:?}");
    assert_free(&url, "k").await;
}

#[tokio::test]
async fn a_lease_is_renewed_as_long_as_the_command_runs() {
    let url = server().url();
    // The command runs for four leases.
    run(&url, ["exec", "--lease", "1.5", "renewed", "--", "sleep", "6"]).await.is(0);
}
