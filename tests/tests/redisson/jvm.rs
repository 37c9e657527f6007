//! `Jvm`: a process with one Redisson, which obeys lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use lock_tests::Leash;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::bench::KEY;
use crate::program;

/// The time for an answer: a machine that compiles next to the tests is slow to start a JVM.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The wait of Redisson's own defaults.
const WAIT_MS: u64 = 300_000;
const WATCHDOG_MS: u64 = 30_000;

/// A running JVM, killed on drop and also if the test process dies.
pub(crate) struct Jvm {
    child: Child,
    input: ChildStdin,
    output: mpsc::UnboundedReceiver<String>,
    /// The lines that were not asked for yet.
    unclaimed: Vec<String>,
    /// The leash, which is `None` only while the JVM is being killed.
    leash: Option<Leash>,
}

impl Jvm {
    pub(crate) async fn start(url: &str) -> Self {
        Self::start_with(url, WAIT_MS, WATCHDOG_MS).await
    }

    /// Starts a JVM with another `fairLockWaitTimeout` and another `lockWatchdogTimeout`.
    pub(crate) async fn start_with(url: &str, wait_ms: u64, watchdog_ms: u64) -> Self {
        Self::run_peer(url, &[wait_ms, watchdog_ms]).await
    }

    /// Starts a JVM that can subscribe to no more channels at a time.
    pub(crate) async fn start_with_subscriptions(url: &str, count: u64) -> Self {
        Self::run_peer(url, &[WAIT_MS, WATCHDOG_MS, count]).await
    }

    async fn run_peer(url: &str, numbers: &[u64]) -> Self {
        let class_path = program::class_path();
        let mut child = Command::new("java")
            .args(["-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", class_path, "Peer", url])
            .args(numbers.iter().map(u64::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Java (java) starts");
        let leash = Some(Leash::new(child.id(), None));
        let input = child.stdin.take().expect("its input is a pipe");
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (lines, said) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let mut jvm = Self { child, input, output: said, unclaimed: Vec::new(), leash };
        jvm.answer("ready").await;
        jvm
    }

    /// Sends it a line.
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the JVM reads");
    }

    /// Tells `thread` to do something with the lock, and returns at once.
    pub(crate) fn begin(&mut self, what: &str, thread: &str, more: &str) {
        self.send(&format!("{what} {thread} {KEY} {more}"));
    }

    /// Waits for the end of a begun action; returns its outcome.
    pub(crate) async fn end(&mut self, what: &str, thread: &str) -> String {
        self.answer(&format!("{what} {thread}")).await
    }

    /// Tells `thread` to do something with the lock, and waits for its end.
    pub(crate) async fn run(&mut self, what: &str, thread: &str, more: &str) -> String {
        self.begin(what, thread, more);
        self.end(what, thread).await
    }

    /// The member of `thread` in the queue.
    pub(crate) async fn member(&mut self, thread: &str) -> String {
        self.run("member", thread, "").await
    }

    /// Whether the begun action has ended by now.
    pub(crate) fn has_ended(&mut self, what: &str, thread: &str) -> bool {
        while let Ok(line) = self.output.try_recv() {
            self.unclaimed.push(line);
        }
        self.unclaimed.iter().any(|line| line.starts_with(&format!("{what} {thread} ")))
    }

    /// The lines that begin with this word and have come by now.
    pub(crate) fn said(&mut self, word: &str) -> Vec<String> {
        while let Ok(line) = self.output.try_recv() {
            self.unclaimed.push(line);
        }
        let start = format!("{word} ");
        let (said, unclaimed) = std::mem::take(&mut self.unclaimed)
            .into_iter()
            .partition(|line| line.starts_with(&start));
        self.unclaimed = unclaimed;
        said
    }

    async fn answer(&mut self, start: &str) -> String {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let start = format!("{start} ");
        loop {
            let at = self.unclaimed.iter().position(|line| line.starts_with(&start));
            if let Some(at) = at {
                return self.unclaimed.remove(at)[start.len()..].to_owned();
            }
            match timeout_at(deadline, self.output.recv()).await {
                Ok(Some(line)) => self.unclaimed.push(line),
                Ok(None) => panic!("the JVM ended, not saying {start:?}: {:?}", self.unclaimed),
                Err(_) => {
                    let stacks = self.stacks().await;
                    panic!("the JVM did not say {start:?}: {:?}\n{stacks}", self.unclaimed)
                }
            }
        }
    }

    /// The stacks of its threads: a JVM prints them when it gets a SIGQUIT.
    async fn stacks(&mut self) -> String {
        let _ = Command::new("kill").args(["-QUIT", &self.child.id().to_string()]).status();
        let mut lines = Vec::new();
        let last = Instant::now() + Duration::from_secs(5);
        while let Ok(Some(line)) = timeout_at(last, self.output.recv()).await {
            lines.push(line);
        }
        lines.join("\n")
    }

    /// Kills it (SIGKILL); it is gone when this returns.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill(); // a zombie until waited for: its id is not recycled before
        self.leash = None;
        let _ = self.child.wait();
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        self.kill();
    }
}
