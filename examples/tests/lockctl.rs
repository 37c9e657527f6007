//! `lockctl` as its users meet it: the built program against a real `redis-server`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use lock_tests::{Port, RedisOptions, RedisServer, Watched, eventually, signal};
use redis::cmd;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout};

/// For anything that happens at once on an idle machine.
const SOON: Duration = Duration::from_secs(30);

/// One for all tests that leave it as it is; each has a key of its own.
fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

/// `lockctl`, in a process group of its own: a signal to it is one to it alone, and never a Ctrl-C.
/// A shell that runs the tests in the background (`&`, `nohup`) ignores signals, which `lockctl`
/// would inherit.
fn lockctl<A: AsRef<OsStr>>(url: &str, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=INT,TERM,HUP")
        .arg(env!("CARGO_BIN_EXE_lockctl"))
        .args(arguments)
        .env("REDIS_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// That there is exactly one line on stderr, and that it names what it is about.
    fn says(&self, code: i32, named: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("lockctl: ") && self.stderr.contains(named), "{self:?}");
    }

    /// That it went as expected, without a word on stderr.
    fn is(&self, code: i32) {
        assert_eq!((self.code, self.stderr.as_str()), (Some(code), ""), "{self:?}");
    }
}

async fn run<A: AsRef<OsStr>>(url: &str, arguments: impl IntoIterator<Item = A>) -> Ended {
    let output = timeout(SOON, lockctl(url, arguments).output());
    let output = output.await.expect("lockctl ends").expect("lockctl starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("stdout is text"),
        stderr: String::from_utf8(output.stderr).expect("stderr is text"),
    }
}

/// A `lockctl exec` whose CMD has said on stdout that it runs.
struct Running {
    process: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: ChildStderr,
    /// CMD ends with it at the latest, also when a test fails and `lockctl` is killed.
    stdin: Option<ChildStdin>,
}

impl Running {
    /// `script` has to print a line when it is ready.
    async fn start(url: &str, options: &[&str], key: &str, script: &str) -> Self {
        let command = [key, "--", "sh", "-c", script];
        let arguments = ["exec"].iter().chain(options).chain(&command);
        let mut process =
            lockctl(url, arguments).stdin(Stdio::piped()).spawn().expect("lockctl starts");
        let stdin = process.stdin.take().expect("it is piped");
        let stdout = process.stdout.take().expect("it is piped");
        let stderr = process.stderr.take().expect("it is piped");
        let mut running =
            Self { process, stdout: BufReader::new(stdout).lines(), stderr, stdin: Some(stdin) };
        running.line().await;
        running
    }

    fn pid(&self) -> u32 {
        self.process.id().expect("it still runs")
    }

    async fn line(&mut self) -> String {
        let line = timeout(SOON, self.stdout.next_line()).await.expect("CMD writes a line");
        line.expect("stdout can be read").expect("CMD has not ended")
    }

    /// Lets a CMD that reads to the end of its input come to its end.
    async fn finish(mut self) -> Ended {
        self.stdin = None;
        self.end().await
    }

    async fn end(mut self) -> Ended {
        let status = wait(&mut self.process).await;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.into_inner().read_to_string(&mut stdout).await.expect("stdout is text");
        self.stderr.read_to_string(&mut stderr).await.expect("stderr is text");
        Ended { code: status.code(), stdout, stderr }
    }
}

async fn wait(process: &mut Child) -> ExitStatus {
    timeout(SOON, process.wait()).await.expect("lockctl ends").expect("a child can be waited for")
}

async fn inspect(url: &str, key: &str) -> Value {
    let ended = run(url, ["inspect", "--json", key]).await;
    ended.is(0);
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

async fn waiting(url: &str, key: &str, number: usize) {
    eventually(&format!("{number} wait for {key}"), SOON, async || {
        inspect(url, key).await["waiters"].as_array().is_some_and(|all| all.len() == number)
    })
    .await;
}

async fn assert_free(url: &str, key: &str) {
    assert_eq!(inspect(url, key).await["holder"], Value::Null);
}

#[tokio::test]
async fn exec_ends_with_the_status_of_its_command() {
    let url = server().url();
    run(&url, ["exec", "status", "--", "true"]).await.is(0);
    run(&url, ["exec", "status", "--", "sh", "-c", "exit 42"]).await.is(42);
    run(&url, ["exec", "status", "--", "sh", "-c", "kill -9 $$"]).await.is(128 + 9);
    assert_free(&url, "status").await;
}

#[tokio::test]
async fn a_command_that_does_not_start_gives_the_lock_back() {
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
    assert_eq!(inspect(&url, "50% {off}").await["token"], tokens[1]);
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
async fn a_command_keeps_its_lock_and_a_waiter_its_place_when_sentinels_replace_the_primary() {
    let mut watched = Watched::start(RedisOptions::default()).await;
    let url = watched.url();
    let holder = Running::start(&url, &[], "k", "echo; exec cat").await;
    let token = inspect(&url, "k").await["token"].clone();
    let waiter = lockctl(&url, ["exec", "k", "--", "true"]).output();
    let waiter = tokio::spawn(waiter);
    waiting(&url, "k", 1).await;
    // Replication is asynchronous: what is to survive has to be there first.
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
    assert_eq!(seen["token"], token);
    assert_eq!(seen["waiters"].as_array().map(Vec::len), Some(1), "{seen}");
    holder.finish().await.is(0);
    let waiter = timeout(SOON, waiter).await.expect("lockctl ends").expect("no panic");
    let waiter = waiter.expect("lockctl starts");
    assert_eq!((waiter.status.code(), &*waiter.stderr), (Some(0), &b""[..]), "{waiter:?}");
    assert_free(&url, "k").await;
}

#[tokio::test]
async fn bad_usage_ends_with_64_and_one_line_that_names_the_option() {
    let cases: &[(&[&str], &str)] = &[
        (&["exec", "--wait", "soon", "k", "--", "true"], "--wait"),
        (&["exec", "--wait", "-1", "k", "--", "true"], "--wait"),
        (&["exec", "--wait", "inf", "k", "--", "true"], "--wait"),
        (
            &["exec", "--lease", "0.05", "k", "--", "true"],
            "--lease: 0.05 is out of its range: it must be 0.1 to 86400 seconds",
        ),
        (&["exec", "--lease", "90000", "k", "--", "true"], "--lease"),
        (&["exec", "--queue-limit", "0", "k", "--", "true"], "--queue-limit"),
        (&["exec", "--never", "k", "--", "true"], "--never"),
        (&["exec", "k"], "CMD"),
        (&["exec", "", "--", "true"], "KEY"),
        (&["exec", "two\nlines", "--", "true"], "KEY"),
        (&["release", "k"], "--force"),
        (&["--redis", "nonsense", "inspect", "k"], "--redis"),
        (&["--redis", "redis+sentinel://a,b", "inspect", "k"], "--redis"),
        (&[], "exec, inspect or release"),
    ];
    // No server is asked, so none has to be there.
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
async fn help_and_version_are_no_errors() {
    let help = run("redis://127.0.0.1:1/", ["--help"]).await;
    assert!(help.stdout.contains("redis+sentinel://[user[:password]@]host"), "{help:?}");
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
    ] {
        let ended = run(&url, arguments).await;
        ended.says(69, "--redis");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
    }
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
    // The first attempt meets somebody who hangs up.
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
    let (url, closed) = (server().url(), "redis://127.0.0.1:1/");
    run(closed, ["--redis", &url, "exec", "k", "--", "true"]).await.is(0);
    run(closed, ["exec", "--redis", &url, "k", "--", "true"]).await.is(0);
}

#[tokio::test]
async fn a_lock_that_is_taken_is_75_after_the_wait() {
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
async fn a_signal_is_passed_on_and_the_lock_given_back() {
    let url = server().url();
    let script = "trap 'echo term; exit 7' TERM; trap 'echo int; exit 8' INT; \
                  trap 'echo hup; exit 9' HUP; echo; while kill -0 $PPID; do sleep 0.02; done";
    let term = Running::start(&url, &[], "signal", script).await;
    signal::terminate(term.pid());
    let ended = term.end().await;
    ended.is(7);
    assert_eq!(ended.stdout, "term\n");
    assert_free(&url, "signal").await;

    let int = Running::start(&url, &[], "signal", script).await;
    signal::interrupt(int.pid());
    int.end().await.is(8);
    assert_free(&url, "signal").await;

    // Untrapped, it kills CMD.
    let plain = Running::start(&url, &[], "signal", "echo; exec cat").await;
    signal::interrupt(plain.pid());
    plain.end().await.is(128 + 2);
    assert_free(&url, "signal").await;
}

#[tokio::test]
async fn a_signal_ends_the_wait_and_the_place_is_given_up() {
    let url = server().url();
    let _holder = Running::start(&url, &[], "leave", "echo; exec cat").await;
    let mut waiter = lockctl(&url, ["exec", "leave", "--", "true"]).spawn().expect("it starts");
    waiting(&url, "leave", 1).await;
    signal::terminate(waiter.id().expect("it waits"));
    assert_eq!(wait(&mut waiter).await.code(), Some(128 + 15));
    let waiters = &inspect(&url, "leave").await["waiters"];
    assert_eq!(waiters.as_array().map(Vec::len), Some(0));
}

#[tokio::test]
async fn inspect_shows_holder_token_lease_and_waiters_in_order() {
    let url = server().url();
    let free = run(&url, ["inspect", "shape", "--json"]).await;
    free.is(0);
    assert_eq!(free.stdout, "{\"holder\":null,\"token\":null,\"lease_ms\":0,\"waiters\":[]}\n");

    let options = ["--label", "first", "--lease", "60"];
    let mut holder =
        Running::start(&url, &options, "shape", "echo; echo $LOCK_TOKEN; exec cat").await;
    let token: u64 = holder.line().await.parse().expect("a token is a number");
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
    assert_eq!(names, ["holder", "lease_ms", "token", "waiters"]);
    assert_eq!((&shape["token"], &shape["holder"]["label"]), (&token.into(), &"first".into()));
    assert!((1..=60_000).contains(&shape["lease_ms"].as_u64().expect("a number")), "{shape}");
    assert_eq!(shape["waiters"][0]["label"], "second");
    assert_eq!(shape["waiters"][1]["label"], "third");
    let member = |who: &Value| who["member"].as_str().map(str::to_owned).expect("a text");
    assert_ne!(member(&shape["holder"]), member(&shape["waiters"][0]));

    let people = run(&url, ["inspect", "shape"]).await;
    people.is(0);
    for part in ["shape is held by first", &token.to_string(), "1  second", "2  third"] {
        assert!(people.stdout.contains(part), "{people:?}");
    }
}

async fn inspect_shared(url: &str, key: &str) -> Value {
    let ended = run(url, ["inspect", "--shared", "--json", key]).await;
    ended.is(0);
    serde_json::from_str(&ended.stdout).expect("it is JSON")
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
        inspect_shared(&url, "doc").await["waiters"].as_array().is_some_and(|all| all.len() == 1)
    })
    .await;
    let found = inspect_shared(&url, "doc").await;
    assert_eq!(
        (&found["holders"][0]["part"], &found["holders"][1]["label"]),
        (&"read".into(), &"reader".into())
    );
    assert_eq!(
        (&found["waiters"][0]["part"], &found["waiters"][0]["label"]),
        (&"write".into(), &"writer".into())
    );
    let people = run(&url, ["inspect", "--shared", "doc"]).await;
    people.is(0);
    for part in ["doc has 2 holders", "read: reader", "1  write: writer"] {
        assert!(people.stdout.contains(part), "{people:?}");
    }
    one.finish().await.is(0);
    other.finish().await.is(0);
    assert!(wait(&mut write).await.success());
    assert_eq!(inspect_shared(&url, "doc").await["holders"], Value::Array(Vec::new()));
}

#[tokio::test]
async fn permits_are_out_up_to_their_limit_and_have_no_token() {
    let url = server().url();
    let script = r#"echo; test -z "$LOCK_TOKEN" && exec cat"#;
    let holder = Running::start(&url, &["--permits", "2/3"], "smtp", script).await;
    run(&url, ["exec", "--permits", "3", "smtp", "--", "true"]).await.is(0);
    let full = run(&url, ["exec", "--permits", "2/3", "--wait", "0", "smtp", "--", "true"]).await;
    full.says(75, "smtp");
    assert_eq!(inspect_shared(&url, "smtp").await["holders"][0]["part"], "2/3");
    run(&url, ["release", "--force", "--shared", "smtp"]).await.is(0);
    holder.end().await.says(74, "lost");
    run(&url, ["release", "--force", "--shared", "smtp"]).await.says(1, "not held");
}

#[tokio::test]
async fn a_lock_taken_away_stops_the_command_and_exec_ends_with_74() {
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
    // CMD has ended by the time lockctl can hear of the loss.
    signal::stop(holder.pid());
    run(&url, ["release", "--force", "late"]).await.is(0);
    signal::kill(command);
    // It may end at once: then there is no continued child to wait for, as `signal::resume` does.
    let id = Pid::from_raw(holder.pid().cast_signed()).expect("not zero");
    kill_process(id, Signal::CONT).expect("it is ours");
    holder.end().await.says(74, "lost");
}

#[tokio::test]
async fn a_lease_is_renewed_as_long_as_the_command_runs() {
    let url = server().url();
    // Four leases long.
    run(&url, ["exec", "--lease", "1.5", "renewed", "--", "sleep", "6"]).await.is(0);
}

#[tokio::test]
async fn on_a_terminal_the_place_and_the_holder_are_shown_and_cleared() {
    let url = server().url();
    let holder =
        Running::start(&url, &["--label", "web-1:812"], "order:42", "echo; exec cat").await;

    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are some");
    grantpt(&terminal).expect("it is ours");
    unlockpt(&terminal).expect("it is ours");
    let name = ptsname(&terminal, Vec::new()).expect("it has a name");
    let other_end = File::options()
        .read(true)
        .write(true)
        .custom_flags(OpenptFlags::NOCTTY.bits().cast_signed())
        .open(name.to_str().expect("its name is ASCII"))
        .expect("it can be opened");
    let mut process = lockctl(&url, ["exec", "order:42", "--", "true"])
        .env("TERM", "xterm")
        .stderr(other_end)
        .spawn()
        .expect("it starts");

    let holder_id = holder.pid();
    // Ends when no process has the other end open any more.
    let shown = tokio::task::spawn_blocking(move || {
        let (mut terminal, mut shown) = (File::from(terminal), Vec::new());
        let mut chunk = [0; 1024];
        let mut told = false;
        while let Ok(length @ 1..) = terminal.read(&mut chunk) {
            shown.extend_from_slice(&chunk[..length]);
            let text = String::from_utf8_lossy(&shown);
            if !told && text.contains("place 1 of 1, held by web-1:812 for ") {
                told = true;
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
