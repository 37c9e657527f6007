//! `lockctl` from the outside: the built program against a real `redis-server`.

use std::ffi::OsStr;
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use lock_tests::{RedisServer, eventually};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// A time limit for events that are immediate on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Returns the server shared by tests that do not change it; each test has its own key.
pub(crate) fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

/// Starts `lockctl` in its own process group: a signal reaches `lockctl` alone, unlike Ctrl-C. A
/// shell that runs the tests in the background (`&`, `nohup`) ignores signals, and `lockctl` would
/// inherit this.
pub(crate) fn lockctl<A: AsRef<OsStr>>(
    url: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal")
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
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Asserts that stderr is a single line, with this text.
    pub(crate) fn says(&self, code: i32, named: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("lockctl: ") && self.stderr.contains(named), "{self:?}");
    }

    /// Asserts that the run exited with this code and an empty stderr.
    pub(crate) fn is(&self, code: i32) {
        assert_eq!((self.code, self.stderr.as_str()), (Some(code), ""), "{self:?}");
    }
}

pub(crate) async fn run<A: AsRef<OsStr>>(
    url: &str,
    arguments: impl IntoIterator<Item = A>,
) -> Ended {
    let output = timeout(SOON, lockctl(url, arguments).output());
    let output = output.await.expect("lockctl ends").expect("lockctl starts");
    Ended {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("stdout is text"),
        stderr: String::from_utf8(output.stderr).expect("stderr is text"),
    }
}

/// A `lockctl exec` whose CMD has reported on stdout that it runs.
pub(crate) struct Running {
    pub(crate) process: Child,
    pub(crate) stdout: Lines<BufReader<ChildStdout>>,
    pub(crate) stderr: ChildStderr,
    /// CMD's input: closing it ends CMD, also when a test fails and `lockctl` is killed.
    pub(crate) stdin: Option<ChildStdin>,
}

impl Running {
    /// Starts `script`, which must print a line when ready.
    pub(crate) async fn start(url: &str, options: &[&str], key: &str, script: &str) -> Self {
        let command = [key, "--", "sh", "-c", script];
        let arguments = ["exec"].iter().chain(options).chain(&command);
        let mut running = Self::of(lockctl(url, arguments));
        running.line().await;
        running
    }

    /// Starts a command that becomes `lockctl exec`, with piped output.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).spawn().expect("lockctl starts");
        let stdin = process.stdin.take().expect("it is piped");
        let stdout = process.stdout.take().expect("it is piped");
        let stderr = process.stderr.take().expect("it is piped");
        Self { process, stdout: BufReader::new(stdout).lines(), stderr, stdin: Some(stdin) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("it still runs")
    }

    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(SOON, self.stdout.next_line()).await.expect("CMD writes a line");
        line.expect("stdout can be read").expect("CMD has not ended")
    }

    /// Ends a CMD that reads to the end of its input.
    pub(crate) async fn finish(mut self) -> Ended {
        self.stdin = None;
        self.end().await
    }

    pub(crate) async fn end(mut self) -> Ended {
        let status = wait(&mut self.process).await;
        let mut stdout = String::new();
        let mut stderr = String::new();
        self.stdout.into_inner().read_to_string(&mut stdout).await.expect("stdout is text");
        self.stderr.read_to_string(&mut stderr).await.expect("stderr is text");
        Ended { code: status.code(), stdout, stderr }
    }
}

pub(crate) async fn wait(process: &mut Child) -> ExitStatus {
    timeout(SOON, process.wait()).await.expect("lockctl ends").expect("a child can be waited for")
}

pub(crate) async fn inspect(url: &str, key: &str) -> Value {
    let ended = run(url, ["inspect", "--json", key]).await;
    ended.is(0);
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

pub(crate) async fn waiting(url: &str, key: &str, number: usize) {
    eventually(&format!("{number} wait for {key}"), SOON, async || {
        inspect(url, key).await["waiters"].as_array().is_some_and(|all| all.len() == number)
    })
    .await;
}

pub(crate) async fn assert_free(url: &str, key: &str) {
    assert_eq!(inspect(url, key).await["holders"], Value::Array(Vec::new()));
}

/// Whether no process with this id is running; a zombie does not count.
pub(crate) fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, fields)| fields.starts_with('Z'))
}
