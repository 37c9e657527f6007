//! `Worker`: a child process of a run, behind a dedicated proxy.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use super::checker::Fate;
use super::clock::now_us;
use crate::{Leash, signal};

/// A running child, killed on drop.
pub(super) struct Worker {
    pub(super) number: u32,
    pub(super) fate: Fate,
    pub(super) file: PathBuf,
    process: Child,
    pid: u32,
    /// The child's standard input, closed to end the child.
    input: Option<ChildStdin>,
    leash: Option<Leash>,
}

impl Worker {
    /// Starts `program` as a child: it connects, and runs until told to stop.
    pub(super) fn start(program: &Path, number: u32, directory: &Path, args: &[String]) -> Self {
        let file = directory.join(format!("child-{number}"));
        let mut process = Command::new(program)
            .arg("child")
            .arg(number.to_string())
            .arg(&file)
            .args(args)
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        let pid = process.id().expect("it has just started");
        let leash = Some(Leash::new(pid, None));
        let input = process.stdin.take();
        Self { number, fate: Fate::default(), file, process, pid, input, leash }
    }

    /// Kills the child (SIGKILL); it is gone when this returns.
    pub(super) async fn kill(&mut self) {
        self.fate.killed = Some(now_us());
        self.leash = None;
        let _ = self.process.kill().await; // waits for it as well
    }

    /// Stops the child for `pause`.
    pub(super) async fn stop_for(&mut self, pause: Duration) {
        let from = now_us();
        signal::stop(self.pid);
        tokio::time::sleep(pause).await;
        signal::resume(self.pid);
        self.fate.stopped.push((from, now_us()));
    }

    /// Requests the child to stop.
    pub(super) fn request_stop(&mut self) {
        self.input = None;
    }

    /// Waits for the child's end; returns the reason of a failure.
    pub(super) async fn ended(&mut self, limit: Duration) -> Result<(), String> {
        let ended = timeout(limit, self.process.wait()).await;
        let result = match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(status) => Err(format!("child {} ended with {status:?}", self.number)),
            Err(_) => Err(format!("child {} does not end", self.number)),
        };
        if result.is_err() {
            let _ = self.process.start_kill();
        }
        self.leash = None;
        result
    }

    /// Whether the child has ended although it was not requested to.
    pub(super) fn is_gone(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }
}
