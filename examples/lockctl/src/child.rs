//! CMD, the user's command that runs under the lock.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use lockcore::LockGuard;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpid, kill_process, kill_process_group, waitid,
};
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::become_command;
use crate::exit::{self, Failure};
use crate::process_tree::{self, Process};
use crate::signals::{self, Signals};

/// The time from SIGTERM to SIGKILL after the hold was lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause between two checks whether CMD and all descendants have ended, after the hold was
/// lost.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) struct Child {
    process: tokio::process::Child,
    /// The lock name, for messages.
    key: String,
    /// True if SIGTSTP has arrived, and `lockctl` has to stop as soon as CMD has stopped.
    is_to_stop: bool,
    /// The descendants of this process that CMD has not started: those of a shell that became
    /// `lockctl` by `exec`.
    earlier: Vec<Process>,
}

/// How the start of CMD ended.
pub(crate) enum Start {
    Running(Box<Child>),
    /// The start was ended by the signal with this number, and CMD does not run.
    Stopped(i32),
}

/// How CMD ended.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// The exit code of `lockctl` for the exit status of CMD, unless the hold was lost.
    pub(crate) code: u8,
    /// True if the hold ended before CMD did.
    pub(crate) lost: bool,
}

impl Child {
    /// Starts CMD with the lock name in the environment variable `LOCK_KEY`, and the fencing token,
    /// except of permits, in `LOCK_TOKEN`. CMD runs in our process group, so that it keeps the
    /// terminal. Does not start CMD if a terminating signal has arrived.
    pub(crate) fn start(
        command: &[OsString],
        key: &str,
        held: &LockGuard,
        signals: &mut Signals,
    ) -> Result<Start, Failure> {
        let [program, arguments @ ..] = command else {
            return Err(Failure::new(exit::USAGE, "CMD is missing"));
        };
        // Before CMD runs: a TSTP that stopped only `lockctl` would leave CMD without renewals.
        signals.listen_for_command().map_err(|error| {
            Failure::new(
                exit::FAILED,
                format!(
                    "signals cannot be caught: \
                {error}"
                ),
            )
        })?;
        process_tree::adopt();
        let earlier = process_tree::descendants(&[]);
        // As late as possible: a Ctrl-C from now on reaches CMD itself, and is not forwarded.
        if let Some(number) = signals.pending() {
            return Ok(Start::Stopped(number));
        }
        let mut process = Command::from(become_command::command(program, arguments));
        process.env("LOCK_KEY", key);
        match held.demand().is_permits() {
            false => process.env("LOCK_TOKEN", held.fencing_token().to_string()),
            // Removes the token of an enclosing hold.
            true => process.env_remove("LOCK_TOKEN"),
        };
        process
            .spawn()
            .map(|process| Self { process, key: key.to_owned(), is_to_stop: false, earlier })
            .map(|child| Start::Running(Box::new(child)))
            .map_err(|error| become_command::not_started(program, &error))
    }

    /// Waits for the end of CMD. Meanwhile forwards signals to CMD, and stops CMD if the hold is
    /// lost.
    pub(crate) async fn end(mut self, held: &LockGuard, signals: &mut Signals) -> io::Result<End> {
        let mut child_ended = signal(SignalKind::child())?;
        loop {
            tokio::select! {
                biased;
                status = self.process.wait() => {
                    return Ok(End { code: code(status?), lost: false });
                }
                () = held.lost() => break,
                number = signals.next() => self.pass_on(number),
                _ = child_ended.recv() => {
                    process_tree::reap(self.id());
                    self.stop_beside_command();
                }
            }
        }
        let message = format!("{}: the hold was lost while CMD ran: stopping CMD", self.key);
        // In another thread, because nobody may read stderr, and CMD must stop anyway.
        let warned = spawn_blocking(move || exit::warn(&message));
        let status = self.stop(signals).await?;
        let _ = timeout(exit::UNREAD, warned).await;
        Ok(End { code: code(status), lost: true })
    }

    /// Stops CMD and all descendants after the hold was lost: sends SIGTERM, and after [`PATIENCE`]
    /// SIGKILL. Returns the exit status of CMD once no process is left.
    async fn stop(&mut self, signals: &mut Signals) -> io::Result<ExitStatus> {
        let kill_at = Instant::now() + PATIENCE;
        process_tree::send(&self.running(), Signal::TERM);
        loop {
            let ended = self.process.try_wait()?;
            let running = self.running();
            if let (Some(status), true) = (ended, running.is_empty()) {
                return Ok(status);
            }
            if Instant::now() >= kill_at {
                process_tree::send(&running, Signal::KILL);
            }
            tokio::select! {
                () = sleep(LOOK) => self.stop_beside_command(),
                number = signals.next() => self.pass_on(number),
            }
        }
    }

    /// Returns the ids of CMD and all descendants, or of CMD alone if they cannot be listed.
    fn running(&self) -> Vec<Pid> {
        let mut running = process_tree::running(&process_tree::descendants(&self.earlier));
        running.extend(self.id().filter(|_| running.is_empty()));
        running
    }

    fn pass_on(&mut self, number: i32) {
        if let Some(command) = self.id()
            && !signals::came_from_terminal(number, command)
        {
            send(command, number);
        }
        self.is_to_stop |= number == Signal::TSTP.as_raw();
        self.is_to_stop &= number != Signal::CONT.as_raw();
        self.stop_beside_command();
    }

    /// Stops `lockctl` itself after SIGTSTP has stopped CMD, because a shell waits until both have
    /// stopped. Does nothing while CMD runs: CMD may catch SIGTSTP, and the kernel ignores it if no
    /// shell could continue the process group. The lease is then still renewed.
    fn stop_beside_command(&mut self) {
        let Some(id) = self.id().filter(|_| self.is_to_stop) else { return };
        let stopped = waitid(WaitId::Pid(id), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
        if matches!(stopped, Ok(Some(_))) {
            self.is_to_stop = false;
            let _ = kill_process(getpid(), Signal::STOP);
        }
    }

    /// Returns the process id of CMD; `None` once CMD was reaped. Until then no other process has
    /// the id, because only [`end`](Self::end) reaps CMD.
    fn id(&self) -> Option<Pid> {
        self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }
}

/// Sends a signal to CMD.
fn send(command: Pid, number: i32) {
    match Signal::from_named_raw(number) {
        // `lockctl` stops beside CMD and renews nothing then, so nothing of CMD may stay at work.
        Some(signal @ (Signal::TSTP | Signal::CONT)) if getpgid(Some(command)) == Ok(command) => {
            let _ = kill_process_group(command, signal);
        }
        // A process that has changed its user is not ours to stop.
        Some(signal) => drop(kill_process(command, signal)),
        // rustix can send real-time signals only in unsafe code.
        None => {
            let id = command.as_raw_nonzero().to_string();
            let number = format!("-{number}");
            let mut kill = Command::new("sh");
            kill.args(["-c", "kill \"$@\"", "sh", &number, &id]);
            tokio::spawn(async move { kill.status().await });
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockcore::Locks;
    use rustix::process::{getpid, kill_process};
    use tokio::signal::unix::signal;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_signal_that_arrives_before_the_command_starts_ends_lockctl_without_the_command() {
        let held = Locks::in_memory().lock("a").await.expect("it is free");
        // Only signals that no other test of this process needs.
        let [ending, harmless] = [Signal::USR1, Signal::URG].map(Signal::as_raw);
        let mut signals = Signals::of(&[harmless, ending]).expect("they can be caught");
        for number in [harmless, ending] {
            let mut arrived = signal(SignalKind::from_raw(number)).expect("it can be caught");
            let number = Signal::from_named_raw(number).expect("it has a name");
            kill_process(getpid(), number).expect("it is ours");
            timeout(Duration::from_secs(60), arrived.recv()).await.expect("it arrives");
        }
        let command = ["no-such-command-here".into()];
        let started = Child::start(&command, "a", &held, &mut signals);
        assert!(matches!(started, Ok(Start::Stopped(number)) if number == ending));
        assert_eq!(signals.next().await, harmless, "it is kept for CMD");
    }
}
