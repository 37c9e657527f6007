//! CMD, while it runs under the lock.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use crate::exit::{self, Failure};
use crate::form::Held;
use crate::signals::{self, Signals};

/// From the SIGTERM after a loss to the SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Child {
    process: tokio::process::Child,
    /// Of the lock, for messages.
    key: String,
}

/// How CMD ended.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// What `lockctl` ends with, if the lock was held throughout.
    pub(crate) code: u8,
    /// The hold ended before CMD did.
    pub(crate) lost: bool,
}

impl Child {
    /// Starts it with `LOCK_KEY` and `LOCK_TOKEN` in its environment, in our process group: the
    /// terminal stays its terminal.
    pub(crate) fn start(command: &[OsString], key: &str, held: &Held) -> Result<Self, Failure> {
        let [program, arguments @ ..] = command else {
            return Err(Failure::new(exit::USAGE, "CMD is missing"));
        };
        let mut process = Command::new(program);
        process.args(arguments).env("LOCK_KEY", key);
        match held.token() {
            Some(token) => process.env("LOCK_TOKEN", token.to_string()),
            // Not that of another hold, further outside.
            None => process.env_remove("LOCK_TOKEN"),
        };
        process.spawn().map(|process| Self { process, key: key.to_owned() }).map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => exit::NOT_FOUND,
                _ => exit::NOT_EXECUTABLE,
            };
            Failure::new(code, format!("CMD {}: {error}", program.to_string_lossy()))
        })
    }

    /// Waits for its end; passes signals on, and stops it when the hold is lost.
    pub(crate) async fn end(mut self, held: &Held, signals: &mut Signals) -> io::Result<End> {
        let mut lost_at = None;
        let mut killed = false;
        loop {
            let kill_at = lost_at.map(|lost_at: Instant| lost_at + PATIENCE);
            tokio::select! {
                biased;
                status = self.process.wait() => {
                    return Ok(End { code: code(status?), lost: lost_at.is_some() });
                }
                () = held.lost(), if lost_at.is_none() => {
                    lost_at = Some(Instant::now());
                    exit::warn(&format!("{}: the hold was lost while CMD ran: stopping CMD", self.key));
                    self.send(Signal::TERM);
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() && !killed => {
                    killed = true;
                    self.send(Signal::KILL);
                }
                signal = signals.next() => {
                    if !signals::came_from_terminal(signal) {
                        self.send(signal);
                    }
                }
            }
        }
    }

    /// The id is CMD's own until the process has been waited for, which only `end` does.
    fn send(&self, signal: Signal) {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have changed its user; then it is not ours to stop.
            let _ = kill_process(pid, signal);
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::FAILED,
    }
}
