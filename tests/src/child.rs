//! `LockChild`: a separate process that waits for locks and holds them, to be killed or stopped.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::Leash;

/// The response timeout: a machine that compiles next to the tests is slow to start processes.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A running `lock-child`, killed on drop and also if the test process dies.
#[derive(Debug)]
pub struct LockChild {
    child: Child,
    input: ChildStdin,
    output: mpsc::UnboundedReceiver<String>,
    /// The lines not yet returned by `answer`.
    unclaimed: Vec<String>,
    /// The leash; `None` only while the child is being killed.
    leash: Option<Leash>,
    node: String,
}

impl LockChild {
    /// Starts `program`, which a test obtains by `env!("CARGO_BIN_EXE_lock-child")`, and returns
    /// once the child is connected to the server at `url`.
    ///
    /// # Panics
    ///
    /// If the child does not start or connect.
    pub async fn start(program: &str, url: &str) -> Self {
        Self::start_with(program, &[url]).await
    }

    /// Starts `program` as in [`start`](Self::start), for locks shared with JVMs.
    ///
    /// # Panics
    ///
    /// If the child does not start or connect.
    pub async fn start_with_peers(program: &str, url: &str) -> Self {
        Self::start_with(program, &[url, "peers"]).await
    }

    async fn start_with(program: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        let leash = Some(Leash::new(child.id(), None));
        let input = child.stdin.take().expect("its input is a pipe");
        let output = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (lines, said) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let node = String::new();
        let mut child = Self { child, input, output: said, unclaimed: Vec::new(), leash, node };
        child.node = child.answer("connected").await;
        child
    }

    /// Returns the node id, as contained in its members and its channel.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the process id, for signals.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the child a line; a stopped child obeys when resumed.
    ///
    /// # Panics
    ///
    /// If the child is gone.
    pub fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the child reads");
    }

    /// Makes the child lock `key` as `name`, and returns once it has begun.
    pub async fn lock(&mut self, name: &str, key: &str, lease: Duration) {
        self.send(&format!("lock {name} {key} {}", lease.as_millis()));
        self.answer(&format!("asked {name}")).await;
    }

    /// Waits until the lock called `name` is granted; returns the token.
    pub async fn granted(&mut self, name: &str) -> u64 {
        let token = self.answer(&format!("granted {name}")).await;
        token.parse().expect("a token is a number")
    }

    /// Waits for a line that begins with `start`, and returns the rest of the line.
    ///
    /// # Panics
    ///
    /// If the line does not arrive within 30 s, or the child ends.
    pub async fn answer(&mut self, start: &str) -> String {
        let deadline = Instant::now() + ANSWER_LIMIT;
        loop {
            if let Some(rest) = self.claim(start) {
                return rest;
            }
            match timeout_at(deadline, self.output.recv()).await {
                Ok(Some(line)) => self.unclaimed.push(line),
                Ok(None) => panic!("the child ended, not saying {start:?}: {:?}", self.unclaimed),
                Err(_) => panic!("the child did not say {start:?}: {:?}", self.unclaimed),
            }
        }
    }

    /// Kills the child (SIGKILL); it is gone when this returns.
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // a zombie until waited for: its id is not recycled before
        self.leash = None;
        let _ = self.child.wait();
    }

    fn claim(&mut self, start: &str) -> Option<String> {
        let rest = |line: &String| {
            let rest = line.strip_prefix(start)?;
            (rest.is_empty() || rest.starts_with(' ')).then(|| rest.trim_start().to_owned())
        };
        let (index, rest) =
            self.unclaimed.iter().enumerate().find_map(|(i, line)| Some((i, rest(line)?)))?;
        self.unclaimed.remove(index);
        Some(rest)
    }
}

impl Drop for LockChild {
    fn drop(&mut self) {
        self.kill();
    }
}
