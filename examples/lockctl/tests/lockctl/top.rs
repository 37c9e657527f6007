//! `top`, on a terminal and as lines of JSON.

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use lock_tests::{Clustered, RedisOptions, RedisServer, Watched, eventually, queued, signal};
use lockcore::{LockGuard, Locks};
use rustix::io::ioctl_fionread;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::unix::pipe::{Receiver, pipe};
use tokio::process::{Child, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{SOON, lockctl, wait};
use crate::terminal::{Terminal, pair, spawn};

/// A label that would clear the screen and start a new line.
const HOSTILE: &str = "\u{1b}[2J\nroot";

/// Two busy locks: `quiet` with a hostile label, and `hot` with two waiters.
struct Crowd {
    locks: Locks,
    hot: LockGuard,
    _quiet: LockGuard,
    waiters: [JoinHandle<LockGuard>; 2],
}

impl Crowd {
    async fn gather(url: &str) -> Self {
        let locks = Locks::connect(url).await.expect("the server is up");
        let quiet = locks.key("quiet").label(HOSTILE).lock().await.expect("it is free");
        let hot = locks.key("hot").label("web-1").lock().await.expect("it is free");
        let mut waiters = Vec::new();
        for number in 1..=2 {
            let waiter = locks.key("hot").label(format!("job-{number}")).lock();
            waiters.push(tokio::spawn(async { waiter.await.expect("its turn comes") }));
            queued(&locks, "hot", number).await;
        }
        let waiters = waiters.try_into().expect("two");
        Self { locks, hot, _quiet: quiet, waiters }
    }
}

/// Returns the columns of the row that starts with this text.
fn row(terminal: &Terminal, name: &str) -> Vec<String> {
    let lines = terminal.lines();
    let line = lines.iter().find(|line| line.starts_with(name)).expect("it is shown");
    line.split("  ").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_busiest_lock_is_first_and_can_be_looked_into_and_labels_steer_nothing() {
    let server = RedisServer::start();
    let crowd = Crowd::gather(&server.url()).await;
    let mut terminal = Terminal::start(&server.url(), &["top"]);
    let first = "2 busy locks, 2 waiting; longest queue first";
    terminal.until(&[first, "server replies in ", "web-1"]).await;
    let lines = terminal.lines();
    assert!(lines[3].starts_with("hot "), "{lines:?}");
    assert!(lines[4].starts_with("quiet ") && lines[4].contains(r"\u{1b}[2J\nroot"), "{lines:?}");
    assert_eq!(row(&terminal, "hot")[1], "2");

    terminal.type_keys("s");
    terminal.until(&["oldest wait first"]).await;
    terminal.type_keys("s");
    terminal.until(&["oldest holder first"]).await;

    terminal.type_keys("/quiet\r");
    terminal.until(&["quiet: 1 holder, 0 waiting", r"\u{1b}[2J\nroot"]).await;
    terminal.type_keys("\u{1b}");
    terminal.until(&["2 busy locks"]).await;

    terminal.type_keys("s\r"); // the first row
    terminal.until(&["hot: 1 holder, 2 waiting", "web-1", "job-1", "job-2"]).await;
    drop(crowd.hot);
    let [first, second] = crowd.waiters;
    terminal.until(&["hot: 1 holder, 1 waiting", "job-1"]).await;
    drop(first.await.expect("no panic"));
    terminal.until(&["hot: 1 holder, 0 waiting", "job-2"]).await;
    let _hold = second.await.expect("no panic");

    terminal.type_keys("q");
    assert_eq!(terminal.end().await.code(), Some(0));
    drop(crowd.locks);
}

#[tokio::test]
async fn the_turn_of_a_waiter_is_reckoned_from_the_turns_that_were_seen() {
    let server = RedisServer::start();
    let crowd = Crowd::gather(&server.url()).await;
    let terminal = Terminal::start(&server.url(), &["top", "hot"]);
    terminal.until(&["hot: 1 holder, 2 waiting"]).await;
    assert!(!terminal.lines().join("\n").contains('~'), "no turn was seen yet");
    for number in 3..=4 {
        let locks = crowd.locks.clone();
        let waiter = async move { locks.key("hot").label("late").lock().await };
        tokio::spawn(async move { waiter.await.map(std::mem::forget) });
        queued(&crowd.locks, "hot", number).await;
    }
    terminal.until(&["4 waiting"]).await;
    drop(crowd.hot);
    for waiter in crowd.waiters {
        drop(waiter.await.expect("no panic"));
    }
    terminal.until(&["1 waiting", "~ "]).await;
    assert!(row(&terminal, "1 ").last().is_some_and(|turn| turn.starts_with('~')));
}

#[tokio::test]
async fn ctrl_c_and_a_signal_end_it_and_give_the_terminal_back() {
    let server = RedisServer::start();
    let mut terminal = Terminal::start(&server.url(), &["top"]);
    terminal.until(&["0 busy locks"]).await;
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end().await.code(), Some(0));

    let terminal = Terminal::start(&server.url(), &["top"]);
    terminal.until(&["0 busy locks"]).await;
    signal::terminate(terminal.pid());
    assert_eq!(terminal.end().await.code(), Some(128 + 15));
}

#[tokio::test]
async fn a_terminal_that_is_closed_ends_it() {
    let server = RedisServer::start();
    let (mut user, program) = pair();
    let mut process = spawn(&server.url(), &["top"], &program);
    drop(program);
    let shown = tokio::task::spawn_blocking(move || {
        let (mut shown, mut chunk) = (String::new(), [0; 1024]);
        while !shown.contains("busy") {
            let length = user.read(&mut chunk).expect("it can be read");
            shown.push_str(&String::from_utf8_lossy(&chunk[..length]));
        }
    });
    timeout(SOON, shown).await.expect("it shows locks").expect("no panic");
    assert_eq!(wait(&mut process).await.code(), Some(0));
}

#[tokio::test]
async fn while_the_server_is_away_it_says_so_beside_the_locks_of_before_and_then_goes_on() {
    let mut server = RedisServer::start();
    let _crowd = Crowd::gather(&server.url()).await;
    let mut terminal = Terminal::start(&server.url(), &["top"]);
    terminal.until(&["2 busy locks", "web-1"]).await;
    server.kill();
    terminal.until(&["unavailable", "2 busy locks", "web-1"]).await;
    server.restart();
    let locks = Locks::connect(&server.url()).await.expect("the server is up");
    let _hold = locks.key("new").label("web-2").lock().await.expect("it is free");
    terminal.until(&["web-2"]).await;
    assert!(!terminal.lines().join("\n").contains("unavailable"), "{:?}", terminal.lines());
    terminal.type_keys("q");
    assert_eq!(terminal.end().await.code(), Some(0));
}

/// The lines of a `top --json`.
struct Looks {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Looks {
    fn start(url: &str, options: &[&str]) -> Self {
        let arguments = ["top", "--json"].iter().chain(options);
        let mut process = lockctl(url, arguments).spawn().expect("it starts");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Self { process, lines }
    }

    async fn next(&mut self) -> Value {
        let line = timeout(SOON, self.lines.next_line()).await.expect("a line in time");
        let line = line.expect("stdout can be read").expect("it goes on");
        serde_json::from_str(&line).expect("it is JSON")
    }

    async fn until(&mut self, mut condition: impl FnMut(&Value) -> bool) -> Value {
        let found = async {
            loop {
                let line = self.next().await;
                if condition(&line) {
                    return line;
                }
            }
        };
        timeout(3 * SOON, found).await.expect("such a line in time")
    }
}

fn names(line: &Value) -> Vec<&str> {
    let locks = line["locks"].as_array().expect("a list").iter();
    locks.map(|lock| lock["lock"].as_str().expect("a name")).collect()
}

#[tokio::test]
async fn its_json_has_a_line_for_each_look_and_ends_with_its_reader() {
    let server = RedisServer::start();
    let crowd = Crowd::gather(&server.url()).await;
    let mut looks = Looks::start(&server.url(), &[]);
    let line = looks.next().await;
    assert_eq!(names(&line), ["hot", "quiet"]);
    assert_eq!((&line["busy"], &line["waiting"]), (&2.into(), &2.into()));
    assert_eq!((&line["error"], &line["is_cut"]), (&Value::Null, &false.into()));
    assert!(line["ping_ms"].as_f64().is_some_and(|ping| ping > 0.0), "{line}");
    let hot = &line["locks"][0];
    assert_eq!((&hot["waiting"], &hot["holding"]), (&2.into(), &1.into()));
    assert_eq!(
        (&hot["holder"]["label"], &hot["next"]["label"]),
        (&"web-1".into(), &"job-1".into())
    );
    let asked_ms = |lock: &Value| lock["holder"]["age_ms"].as_u64().expect("it is one of ours");
    let before = asked_ms(hot);
    assert_eq!(line["locks"][1]["holder"]["label"], HOSTILE);

    drop(crowd.hot);
    let handed_over = |line: &Value| line["locks"][0]["holder"]["label"] == "job-1";
    let line = looks.until(handed_over).await;
    let later = looks.next().await;
    let [first, then] = [&line, &later].map(|line| asked_ms(&line["locks"][0]));
    assert!(then >= first + 900, "{later}");
    assert!(asked_ms(&later["locks"][1]) >= before + 900, "{later}");
    let [first, _second] = crowd.waiters;
    let _hold = first.await.expect("no panic");

    drop(looks.lines);
    assert_eq!(wait(&mut looks.process).await.code(), Some(0));
}

/// A pipe with room for another 4 kB, and the number of bytes in the pipe once it is full.
async fn almost_full() -> (Stdio, Receiver, u64) {
    let (sender, receiver) = pipe().expect("a pipe");
    sender.writable().await.expect("it is empty");
    while sender.try_write(&[0; 4096]).is_ok() {}
    let full = ioctl_fionread(&receiver).expect("it is a pipe");
    receiver.readable().await.expect("it is full");
    let read = receiver.try_read(&mut [0; 4096]).expect("it is full");
    assert_eq!(read, 4096);
    (sender.into_blocking_fd().expect("it is ours").into(), receiver, full)
}

// As with `| less`: neither TERM nor Ctrl-C ended it.
#[tokio::test]
async fn a_signal_ends_its_json_while_nobody_reads_stdout() {
    let server = RedisServer::start();
    let locks = Locks::connect(&server.url()).await.expect("the server is up");
    let mut holds = Vec::new();
    for number in 0..100 {
        holds.push(locks.lock(format!("busy-{number}")).await.expect("it is free"));
    }
    let (stdout, reader, full) = almost_full().await;
    let mut process =
        lockctl(&server.url(), ["top", "--json"]).stdout(stdout).spawn().expect("it starts");
    eventually("it writes a line that has no room", SOON, async || {
        ioctl_fionread(&reader).expect("it is a pipe") == full
    })
    .await;
    signal::terminate(process.id().expect("it runs"));
    assert_eq!(wait(&mut process).await.signal(), Some(15));
}

#[tokio::test]
async fn it_is_sorted_as_it_was_asked_to() {
    let server = RedisServer::start();
    let locks = Locks::connect(&server.url()).await.expect("the server is up");
    let _first = locks.lock("first").await.expect("it is free");
    // Ages are in milliseconds.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let _second = locks.lock("second").await.expect("it is free");
    let lone = tokio::spawn(locks.lock("first").into_future());
    queued(&locks, "first", 1).await;
    let crowd: Vec<_> = (0..2).map(|_| tokio::spawn(locks.lock("second").into_future())).collect();
    queued(&locks, "second", 2).await;
    for (order, expected) in [
        ("queue", ["second", "first"]),
        ("wait", ["first", "second"]),
        ("holder", ["first", "second"]),
    ] {
        let line = Looks::start(&server.url(), &["--sort", order]).next().await;
        assert_eq!(names(&line), expected, "{order}");
    }
    lone.abort();
    crowd.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn on_a_cluster_a_primary_that_is_down_is_named_and_hides_no_other() {
    let mut clustered = Clustered::steady().await;
    let url = clustered.url();
    let locks = timeout(SOON, Locks::connect(&url)).await.expect("in time").expect("accepted");
    let keys = [0, 1, 2].map(|primary| clustered.key_of(primary, 0));
    let mut holds = Vec::new();
    for key in &keys {
        holds.push(locks.lock(key.as_str()).await.expect("it is free"));
    }
    let mut looks = Looks::start(&url, &[]);
    let line = looks.next().await;
    let mut found = names(&line);
    found.sort_unstable();
    let mut expected: Vec<_> = keys.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    clustered.server(1).kill();
    let line = looks.until(|line| !line["error"].is_null()).await;
    let found = names(&line);
    assert_eq!(found.len(), 2, "{line}");
    assert!(!found.contains(&keys[1].as_str()), "{line}");
}

#[tokio::test]
async fn over_sentinel_it_goes_on_with_the_next_primary() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let url = watched.url();
    let mut looks = Looks::start(&url, &[]);
    assert_eq!(looks.next().await["error"], Value::Null);
    watched.server(0).kill();
    let next = watched.promoted(0).await;
    watched.until_named(next).await;
    let locks = Locks::connect(&url).await.expect("there is a primary");
    let _hold = locks.lock("after").await.expect("it is free");
    // It may have waited for the next primary during a survey, without an error.
    let line = looks.until(|line| line["busy"] == 1).await;
    assert_eq!(names(&line), ["after"]);
}
