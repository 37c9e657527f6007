//! The output of `inspect`.

use lock_tests::eventually;
use serde_json::Value;

use crate::common::{Running, SOON, inspect, lockctl, run, server, wait, waiting};

#[tokio::test]
async fn inspect_shows_holder_token_lease_and_waiters_in_order() {
    let url = server().url();
    let free = run(&url, ["inspect", "shape", "--json"]).await;
    free.is(0);
    assert_eq!(free.stdout, "{\"holders\":[],\"token\":null,\"waiters\":[]}\n");

    let options = ["--label", "first", "--lease", "60"];
    let mut holder =
        Running::start(&url, &options, "shape", "echo; echo $LOCK_TOKEN; exec cat").await;
    holder.line().await.parse::<u64>().expect("a token is a number");
    let mut waiters = Vec::new();
    for label in ["second", "third"] {
        let arguments = ["exec", "--label", label, "shape", "--", "true"];
        waiters.push(lockctl(&url, arguments).spawn().expect("it starts"));
        waiting(&url, "shape", waiters.len()).await;
    }
    let shape = inspect(&url, "shape").await;
    let object = shape.as_object().expect("an object");
    let mut names: Vec<_> = object.keys().collect();
    names.sort();
    assert_eq!(names, ["holders", "token", "waiters"]);
    let first = &shape["holders"][0];
    assert_eq!((&first["label"], &first["demand"]), (&"first".into(), &"lock".into()));
    assert!((1..=60_000).contains(&first["age_ms"].as_u64().expect("a number")), "{shape}");
    assert_eq!(first["is_claim"], false);
    assert_eq!(shape["token"], Value::Null, "only the holder knows that of a lock");
    assert!((1..=60_000).contains(&first["lease_ms"].as_u64().expect("a number")), "{shape}");
    assert_eq!(shape["waiters"][0]["label"], "second");
    assert_eq!(shape["waiters"][1]["label"], "third");
    let member = |who: &Value| who["member"].as_str().map(str::to_owned).expect("a text");
    assert_ne!(member(first), member(&shape["waiters"][0]));

    let people = run(&url, ["inspect", "shape"]).await;
    people.is(0);
    let parts = ["shape is held by first", ", lease ", "1  second", "2  third", ", requested "];
    for part in parts {
        assert!(people.stdout.contains(part), "{people:?}");
    }
}

#[tokio::test]
async fn json_has_labels_whole_and_nothing_that_steers_the_terminal() {
    let url = server().url();
    let label = "\u{9b}2J\u{7f}\u{202e}";
    let holder = Running::start(&url, &["--label", label], "steered", "echo; exec cat").await;
    for command in ["inspect", "holders"] {
        let shown = run(&url, [command, "--json", "steered"]).await;
        shown.is(0);
        assert!(!shown.stdout.contains(['\u{9b}', '\u{7f}', '\u{202e}']), "{shown:?}");
        let found: Value = serde_json::from_str(&shown.stdout).expect("it is JSON");
        assert_eq!(found["holders"][0]["label"], label);
    }
    holder.finish().await.is(0);
}

// N3: only the label identified the process to restart.
#[tokio::test]
async fn the_process_of_a_holder_and_of_a_waiter_is_shown_beside_its_label() {
    let url = server().url();
    let holder = Running::start(&url, &["--label", "Buyer 3"], "seat", "echo; exec cat").await;
    let arguments = ["exec", "--label", "Buyer 4", "seat", "--", "true"];
    let mut waiter = lockctl(&url, arguments).spawn().expect("it starts");
    let pids = [holder.pid(), waiter.id().expect("it waits")];
    let is_of = |who: &Value, pid: u32| {
        who["process"].as_str().is_some_and(|process| process.ends_with(&format!(":{pid}")))
    };
    eventually("both are told", SOON, async || {
        let seat = inspect(&url, "seat").await;
        is_of(&seat["holders"][0], pids[0]) && is_of(&seat["waiters"][0], pids[1])
    })
    .await;
    let process = inspect(&url, "seat").await["holders"][0]["process"].clone();
    let process = process.as_str().expect("a text");
    for (arguments, shown) in [
        (&["inspect", "seat"] as &[_], format!("seat is held by Buyer 3 ({process}), lease ")),
        (&["holders", "seat"], format!("seat  Buyer 3 ({process}), lease ")),
    ] {
        let people = run(&url, arguments).await;
        people.is(0);
        assert!(people.stdout.starts_with(&shown), "no {shown}: {people:?}");
    }
    holder.finish().await.is(0);
    assert!(wait(&mut waiter).await.success());
}

#[tokio::test]
async fn reads_run_together_and_a_write_waits_for_both() {
    let url = server().url();
    let read = ["--read", "--label", "reader"];
    let one = Running::start(&url, &read, "doc", "echo; exec cat").await;
    let other = Running::start(&url, &read, "doc", "echo; exec cat").await;
    let write = ["exec", "--write", "--label", "writer", "doc", "--", "true"];
    let mut write = lockctl(&url, write).spawn().expect("it starts");
    eventually("it waits", SOON, async || {
        inspect(&url, "doc").await["waiters"].as_array().is_some_and(|all| all.len() == 1)
    })
    .await;
    let found = inspect(&url, "doc").await;
    assert_eq!(
        (&found["holders"][0]["demand"], &found["holders"][1]["label"]),
        (&"read".into(), &"reader".into())
    );
    assert_eq!(
        (&found["waiters"][0]["demand"], &found["waiters"][0]["label"]),
        (&"lock".into(), &"writer".into())
    );
    let people = run(&url, ["inspect", "doc"]).await;
    people.is(0);
    for part in ["doc has 2 holders", "read: reader", "1  writer"] {
        assert!(people.stdout.contains(part), "{people:?}");
    }
    one.finish().await.is(0);
    other.finish().await.is(0);
    assert!(wait(&mut write).await.success());
    assert_eq!(inspect(&url, "doc").await["holders"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn permits_are_out_up_to_their_limit_and_have_no_token() {
    let url = server().url();
    let script = r#"echo; test -z "$LOCK_TOKEN" && exec cat"#;
    let holder = Running::start(&url, &["--permits", "2/3"], "smtp", script).await;
    run(&url, ["exec", "--permits", "3", "smtp", "--", "true"]).await.is(0);
    let full = run(&url, ["exec", "--permits", "2/3", "--wait", "0", "smtp", "--", "true"]).await;
    full.says(75, "smtp");
    assert_eq!(inspect(&url, "smtp").await["holders"][0]["demand"], "2/3");
    run(&url, ["release", "--force", "smtp"]).await.is(0);
    holder.end().await.says(74, "lost");
    run(&url, ["release", "--force", "smtp"]).await.says(1, "not held");
}
