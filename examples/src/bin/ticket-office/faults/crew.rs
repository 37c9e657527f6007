//! The buyers' processes.
//!
//! # Implementation notes
//! - A process is reaped only after its removal from `running`. So a signal to a process found
//!   there, under the mutex, cannot reach a later process with the same id.
//! - A buyer is frozen while this process holds the database write lock: a process frozen during a
//!   write would block all other writers.
//! - A buyer ends with the office, however the office ends: stdin is closed, and a frozen process
//!   is alone in an orphaned process group, which the kernel continues.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use deadpool_sqlite::rusqlite::TransactionBehavior;
use http::StatusCode;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use super::Fault;
use super::panel::{Panel, PanelWatcher, Report};
use super::relay::{Relay, split};
use crate::database::Database;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::say;

/// The maximum number of buyers whose processes run at the same time.
const MOST_RUNNING: usize = 8;

/// The maximum time until the kernel has stopped a process after SIGSTOP.
const STOP: Duration = Duration::from_secs(1);

/// The buyers of the fault panel, with their processes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Crew {
    shared: Arc<Shared>,
}

struct Shared {
    /// The Redis URL of the office. The relays of the buyers lead to the same server.
    url: String,
    metrics: Arc<Metrics>,
    running: Mutex<Running>,
    panel: watch::Sender<Panel>,
}

#[derive(Default)]
struct Running {
    buyers: BTreeMap<u32, Process>,
    last: u32,
}

struct Process {
    child: Child,
    relay: Relay,
}

impl Crew {
    pub(crate) fn new(url: String, metrics: Arc<Metrics>, seat: u32, lease: Duration) -> Self {
        let panel = watch::Sender::new(Panel::new(seat, lease));
        Self { shared: Arc::new(Shared { url, metrics, running: Mutex::default(), panel }) }
    }

    pub(crate) fn panel(&self) -> Panel {
        self.shared.panel.borrow().clone()
    }

    pub(crate) fn watch(&self) -> PanelWatcher {
        let mut panel = self.shared.panel.subscribe();
        panel.mark_changed();
        PanelWatcher(panel)
    }

    /// Starts another buyer: a process with the command line of this process, and a relay to Redis.
    /// Returns a refusal if [`MOST_RUNNING`] buyers run already, or if the process cannot be
    /// started.
    pub(crate) async fn start(&self) -> Result<(), Problem> {
        let (before, server, rest) = split(&self.shared.url).ok_or_else(|| {
            failed(
                "the URL has no \
            server",
            )
        })?;
        let relay = Relay::start(server).await.map_err(failed)?;
        let url = format!("{before}{}{rest}", relay.address());
        let mut running = self.shared.running();
        if running.buyers.len() >= MOST_RUNNING {
            let detail = format!("{MOST_RUNNING} buyers are running already: kill a buyer first.");
            return Err(Problem::new(StatusCode::CONFLICT, "buyers-full", detail));
        }
        let number = running.last + 1;
        let name = format!("Buyer {number}");
        let mut child = spawn(&name, &url).map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed("the buyer has no stdout"))?;
        self.shared.panel.send_modify(|panel| panel.add(number, name, child.id()));
        running.buyers.insert(number, Process { child, relay });
        running.last = number;
        tokio::spawn(Arc::clone(&self.shared).follow(number, stdout));
        Ok(())
    }

    /// Applies a fault to the buyer with this number. Returns a refusal if the buyer does not run.
    pub(crate) async fn fault(
        &self,
        number: u32,
        fault: Fault,
        database: &Database,
    ) -> Result<(), Problem> {
        let shared = Arc::clone(&self.shared);
        let done = match fault {
            Fault::Freeze => {
                database
                    .run(move |connection| {
                        let write = TransactionBehavior::Immediate;
                        let _alone = connection.transaction_with_behavior(write)?;
                        Ok(shared.fault(number, fault))
                    })
                    .await?
            }
            _ => shared.fault(number, fault),
        };
        match done {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(failed(error)),
            None => {
                let detail = "The buyer does not exist, or has ended.";
                Err(Problem::new(StatusCode::NOT_FOUND, "buyer-unknown", detail))
            }
        }
    }

    /// Kills the processes of all buyers, when the office closes.
    pub(crate) fn end(&self) {
        for process in self.shared.running().buyers.values_mut() {
            let _ = process.child.start_kill();
        }
    }
}

impl Shared {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a fault to the process of a buyer. Returns `None` if the buyer does not run.
    fn fault(&self, number: u32, fault: Fault) -> Option<io::Result<()>> {
        let mut running = self.running();
        let process = running.buyers.get_mut(&number)?;
        let done = match fault {
            Fault::Kill => process.child.start_kill(),
            Fault::Freeze => process.freeze(),
            Fault::Thaw => process.signal(Signal::CONT),
            Fault::CutOff | Fault::Reconnect => {
                process.relay.cut(fault == Fault::CutOff);
                Ok(())
            }
        };
        if done.is_ok() {
            self.panel.send_modify(|panel| panel.fault(number, fault));
        }
        Some(done)
    }

    /// Shows the reports of a buyer in the panel until the process has ended, then reaps the
    /// process.
    async fn follow(self: Arc<Self>, number: u32, stdout: ChildStdout) {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if let Ok(report) = serde_json::from_str::<Report>(&line) {
                if matches!(report, Report::Refused { .. }) {
                    self.metrics.fenced();
                }
                self.panel.send_modify(|panel| panel.take(number, report));
            }
        }
        let process = self.running().buyers.remove(&number);
        if let Some(mut process) = process {
            let _ = process.child.kill().await; // and reaps it
        }
        self.panel.send_modify(|panel| panel.end(number));
    }
}

impl Process {
    fn pid(&self) -> io::Result<Pid> {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::other("the buyer has ended"))
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid()?, signal)?)
    }

    /// Sends SIGSTOP to the process, and waits until it has stopped, because the kernel stops a
    /// process only some time after the signal.
    fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + STOP;
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(self.pid()?), stopped)?.is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::other("the buyer has not stopped"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn spawn(name: &str, redis: &str) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(super::NAME, name)
        .env(super::REDIS, redis)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

fn failed(error: impl std::fmt::Display) -> Problem {
    say::trouble(format_args!("a buyer's process failed: {error}"));
    let detail = "The buyer's process failed: see the office's log.";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "buyer-failed", detail)
}
