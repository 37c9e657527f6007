//! The command line, and missing servers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use lock_tests::{Port, RedisServer};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::common::{SOON, run, server};

#[tokio::test]
async fn bad_usage_ends_with_64_and_one_line_that_names_the_option() {
    let cases: &[(&[&str], &str)] = &[
        (&["exec", "--wait", "soon", "k", "--", "true"], "--wait"),
        (&["exec", "--wait", "-1", "k", "--", "true"], "--wait"),
        (&["exec", "--wait", "inf", "k", "--", "true"], "--wait"),
        (
            &["exec", "--lease", "0.05", "k", "--", "true"],
            "--lease: 0.05 is out of range: must be 0.1 to 86400 seconds",
        ),
        (&["exec", "--lease", "90000", "k", "--", "true"], "--lease"),
        (&["exec", "--queue-limit", "0", "k", "--", "true"], "--queue-limit"),
        (&["exec", "--never", "k", "--", "true"], "--never"),
        (&["exec", "k"], "CMD"),
        (&["exec", "k", "true"], "write lockctl exec [OPTIONS] KEY -- CMD ARGS"),
        (&["exec", "--namspace", "shop", "k", "--", "true"], "; tip: "),
        (&["inspct", "k"], "'inspect'"),
        (&["quorum"], "quorum init"),
        (&["exec", "", "--", "true"], "KEY"),
        (&["exec", "two\nlines", "--", "true"], "KEY"),
        (&["release", "k"], "--force"),
        (&["--redis", "nonsense", "inspect", "k"], "--redis"),
        (&["--redis", "redis+sentinel://a,b", "inspect", "k"], "--redis"),
        (&["--redis", "redis+cluster://a/3", "inspect", "k"], "--redis"),
        (&[], "exec, holders, inspect, quorum, release, status or top"),
        (&["holders"], "KEY"),
        (&["top"], "terminal"),
        (&["top", "--sort", "name"], "--sort"),
        (&["top", "--json", "k"], "--json"),
    ];
    // No server is contacted, so none has to exist.
    let port = Port::free();
    for (arguments, named) in cases {
        run(&format!("redis://{}/", port.address()), *arguments).await.says(64, named);
    }
    let long = "x".repeat(513);
    run("redis://127.0.0.1:1/", ["inspect", &long]).await.says(64, "KEY");
    let latin1 = OsStr::from_bytes(b"caf\xe9");
    run("redis://127.0.0.1:1/", [OsStr::new("inspect"), latin1]).await.says(64, "KEY");
}

#[tokio::test]
async fn the_error_of_an_unknown_url_option_does_not_show_its_value() {
    for option in ["password=secret", "pwd=secret", "auth=secret", "p%61ss=x&secret"] {
        let url = format!("redis://127.0.0.1:1/?user=app&{option}");
        let ended = run(&url, ["status"]).await;
        ended.says(64, "--redis");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
}

#[tokio::test]
async fn help_and_version_are_no_errors() {
    let help = run("redis://127.0.0.1:1/", ["--help"]).await;
    for form in ["redis+sentinel", "redis+cluster"] {
        assert!(help.stdout.contains(&format!("{form}://[user[:password]@]host")), "{help:?}");
    }
    for arguments in [&["--help"][..], &["exec", "--help"], &["--version"]] {
        let ended = run("redis://:secret@127.0.0.1:1/", arguments).await;
        ended.is(0);
        assert!(ended.stdout.contains("lockctl") && !ended.stdout.contains("secret"), "{ended:?}");
    }
}

#[tokio::test]
async fn without_redis_it_ends_with_69_at_once_and_with_a_wait_when_that_is_over() {
    let port = Port::free();
    let url = format!("redis://:secret@{}/", port.address());
    for arguments in [
        &["exec", "k", "--", "true"][..],
        &["exec", "--wait", "0", "k", "--", "true"],
        &["inspect", "k"],
        &["release", "--force", "k"],
        &["status"],
    ] {
        let ended = run(&url, arguments).await;
        ended.says(69, "--redis");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
    // As in a `.env` that leaves out the scheme.
    let ended = run(&format!("user:secret@{}", port.address()), ["status"]).await;
    ended.says(64, "--redis user:***@");
    assert!(!ended.stderr.contains("secret"), "{ended:?}");
    let started = Instant::now();
    run(&url, ["exec", "--wait", "1.2", "k", "--", "true"]).await.says(69, "--redis");
    assert!(started.elapsed() >= Duration::from_secs(1), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_server_that_comes_up_within_the_wait_is_found() {
    let port = Port::free();
    let url = format!("redis://{}/", port.address());
    let listener = TcpListener::bind(port.address()).await.expect("the port is free");
    let late =
        tokio::spawn(async move { run(&url, ["exec", "--wait", "25", "k", "--", "true"]).await });
    // The first attempt meets a server that closes the connection.
    timeout(SOON, listener.accept()).await.expect("lockctl connects").expect("it can be accepted");
    drop(listener);
    let _server = RedisServer::options().start_on_port(port);
    late.await.expect("it does not panic").is(0);
}

#[tokio::test]
async fn a_wrong_password_is_69_and_says_so() {
    let server = RedisServer::options().arg("requirepass", "right").start();
    let url = format!("redis://:wrong@{}/", server.address());
    let ended = run(&url, ["exec", "--wait", "20", "k", "--", "true"]).await;
    ended.says(69, "credentials");
    assert!(!ended.stderr.contains("wrong@"), "{ended:?}");
    run(&server.url(), ["exec", "k", "--", "true"]).await.is(0);
}

#[tokio::test]
async fn the_option_redis_stands_before_or_behind_the_command_and_wins_over_the_environment() {
    let url = server().url();
    let closed = "redis://127.0.0.1:1/";
    run(closed, ["--redis", &url, "exec", "k", "--", "true"]).await.is(0);
    run(closed, ["exec", "--redis", &url, "k", "--", "true"]).await.is(0);
}
