//! The processes of a run: each is restarted when it dies, and resumed after a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::fault::ReplayFault;
use super::process::LEASE;
use crate::chaos::dice::Dice;
use crate::{Leash, signal};

const PROCESSES: usize = 4;

/// The faults of a run: how many of each kind, and the affected processes.
#[derive(Debug, Default)]
pub(super) struct Struck {
    pub(super) faults: BTreeMap<ReplayFault, u64>,
    pub(super) processes: BTreeSet<String>,
}

pub(super) struct Keeper {
    addresses: Vec<Arc<Mutex<SocketAddr>>>,
    slots: Mutex<Vec<JoinHandle<Struck>>>,
    end: CancellationToken,
}

/// A running process.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
    _leash: Leash,
}

impl Keeper {
    pub(super) async fn start(program: &Path, url: &str) -> Self {
        let (mut addresses, mut slots) = (Vec::new(), Vec::new());
        let end = CancellationToken::new();
        for slot in 0..PROCESSES {
            let first = Process::start(program, url, &format!("{slot}.0")).await;
            let address = Arc::new(Mutex::new(first.address));
            addresses.push(Arc::clone(&address));
            let (program, url) = (program.to_owned(), url.to_owned());
            slots.push(tokio::spawn(keep((program, url), slot, first, address, end.clone())));
        }
        Self { addresses, slots: Mutex::new(slots), end }
    }

    /// Returns the address of a random process.
    pub(super) fn any(&self, dice: &mut Dice) -> SocketAddr {
        let address = &self.addresses[dice.below(PROCESSES)];
        *address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all processes; returns all faults.
    pub(super) async fn end(&self) -> Struck {
        self.end.cancel();
        let slots = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = Struck::default();
        for slot in slots {
            let struck = slot.await.expect("processes start");
            all.processes.extend(struck.processes);
            for (fault, count) in struck.faults {
                *all.faults.entry(fault).or_default() += count;
            }
        }
        all
    }
}

/// Keeps a process running until the end, under another name each time.
async fn keep(
    (program, url): (PathBuf, String),
    slot: usize,
    mut process: Process,
    address: Arc<Mutex<SocketAddr>>,
    end: CancellationToken,
) -> Struck {
    let mut struck = Struck::default();
    let mut run = 0;
    loop {
        let line = tokio::select! {
            line = process.lines.next_line() => line.ok().flatten(),
            () = end.cancelled() => return struck,
            // The process may have stopped after that.
            () = tokio::time::sleep(4 * LEASE) => {
                process.go_on();
                continue;
            }
        };
        if let Some(fault) = line.as_deref().and_then(|line| line.strip_prefix("fault ")) {
            let fault: ReplayFault = fault.parse().expect("a fault");
            *struck.faults.entry(fault).or_default() += 1;
            struck.processes.insert(format!("{slot}.{run}"));
            if matches!(fault, ReplayFault::PausesInHandler | ReplayFault::PausesCommitted) {
                // The length of the pause: the holds are lost in any case.
                tokio::time::sleep(2 * LEASE).await;
                process.go_on();
            }
        } else if line.is_none() {
            process.child.wait().await.expect("a child of ours");
            run += 1;
            process = Process::start(&program, &url, &format!("{slot}.{run}")).await;
            *address.lock().unwrap_or_else(PoisonError::into_inner) = process.address;
        }
    }
}

impl Process {
    async fn start(program: &Path, url: &str, name: &str) -> Self {
        let mut child = Command::new(program)
            .args(["serve-replays", url, name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a process starts");
        let leash = Leash::new(child.id().expect("it has just started"), None);
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = lines.next_line().await.expect("it writes text").expect("it serves");
        let address = line.strip_prefix("serves ").expect("it says so").parse();
        Self { child, lines, address: address.expect("an address"), _leash: leash }
    }

    fn go_on(&self) {
        // Until the child is waited for, its process id is not reused.
        if let Some(pid) = self.child.id() {
            signal::go_on(pid);
        }
    }
}
