//! Command line and environment variables.

use std::process::Output;

use tokio::time::timeout;

use crate::office::{Office, SOON, command};

/// The variables of flags that a test may leave out, isolated from this machine.
const ELSEWHERE: [(&str, &str); 2] =
    [("TICKET_OFFICE_LISTEN", "127.0.0.1:0"), ("TICKET_OFFICE_DATABASE", ":memory:")];

async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = command(arguments);
    command.envs(environment.iter().copied());
    timeout(SOON, command.output()).await.expect("it ends").expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn help_lists_every_flag_with_its_variable_and_default() {
    let help = run(&["--help"], &[("REDIS_URL", "redis://:secret@host/")]).await;
    assert_eq!(help.status.code(), Some(0));
    let help = text(&help.stdout);
    assert!(!help.contains("secret"), "{help}");
    let words: Vec<_> = help.split_whitespace().collect();
    let help = words.join(" ");
    for (flag, variable, default) in [
        ("--listen <ADDR>", "TICKET_OFFICE_LISTEN", "[default: 127.0.0.1:8080]"),
        (
            "--database <PATH>",
            "TICKET_OFFICE_DATABASE",
            "[default: ticket-office.sqlite with Redis, otherwise a fresh in-memory database]",
        ),
        ("--seats <N>", "TICKET_OFFICE_SEATS", "[default: 20]"),
        ("--pay-ms <N>", "TICKET_OFFICE_PAY_MS", "[default: 3000]"),
        ("--max-wait <SECS>", "TICKET_OFFICE_MAX_WAIT", "[default: 30]"),
        ("--lease <SECS>", "TICKET_OFFICE_LEASE", "[default: 10]"),
        ("--queue-limit <N>", "TICKET_OFFICE_QUEUE_LIMIT", "[default: 20]"),
        ("--redis <URL>", "REDIS_URL", "[default: in-memory locks, for this process only]"),
    ] {
        let (_, rest) = help.split_once(flag).unwrap_or_else(|| panic!("{flag}: {help}"));
        let entry = rest.split(" --").next().unwrap_or_default();
        assert!(entry.contains(&format!("[env: {variable}")), "{flag}: {entry}");
        assert!(entry.contains(default), "{flag}: {entry}");
    }
}

#[tokio::test]
async fn a_bad_value_is_2_and_a_sentence_that_names_the_flag() {
    let cases: &[&[&str]] = &[
        &["--listen", "nowhere"],
        &["--listen", "127.0.0.1"],
        &["--seats", "0"],
        &["--seats", "1001"],
        &["--seats", "-3"],
        &["--seats", "many"],
        &["--pay-ms", "30001"],
        &["--pay-ms", "-1"],
        &["--max-wait", "3601"],
        &["--max-wait", "-0.5"],
        &["--max-wait", "NaN"],
        &["--max-wait", "inf"],
        &["--lease", "0.05"],
        &["--lease", "86401"],
        &["--lease", "long"],
        &["--queue-limit", "0"],
        &["--queue-limit", "-1"],
        &["--redis", "nonsense"],
        &["--sooner"],
    ];
    for arguments in cases {
        let ended = run(arguments, &ELSEWHERE).await;
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(arguments[0]), "{arguments:?}: {said}");
    }
    let ended = run(&[], &[("TICKET_OFFICE_SEATS", "none")]).await;
    assert_eq!(ended.status.code(), Some(2), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("--seats"), "{}", text(&ended.stderr));
}

#[tokio::test]
async fn what_cannot_be_opened_is_1_and_a_sentence_that_names_the_flag() {
    let office = Office::open(&[]).await;
    let taken = office.url("").replace("http://", "");
    for arguments in [
        ["--listen", &taken],
        ["--database", "/nowhere/at/all/seats.sqlite"],
        ["--database", "/proc/self/status"],
    ] {
        let ended = run(&arguments, &ELSEWHERE[..1]).await;
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with(&format!("ticket-office: {} ", arguments[0])), "{said}");
    }
}

#[tokio::test]
async fn an_empty_redis_url_is_none() {
    let mut command = command(&["--listen", "127.0.0.1:0"]);
    let office = Office::run(command.env("REDIS_URL", "").env("TICKET_OFFICE_SEATS", "2")).await;
    assert_eq!(office.get("/seats").await.body.as_array().map(Vec::len), Some(2));
    assert_eq!(office.buy(2, "Ann", 0).await.status, 200);
}
