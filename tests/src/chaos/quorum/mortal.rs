//! Buyer processes killed (SIGKILL) while they acquire, hold and release.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lockcore::{Locks, Quorum};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::buyer::{Buyer, buy};
use super::ledger::{BuyerReport, Ledger};
use super::{NAMES, QUIET, SOON, builder, quorum};
use crate::Leash;
use crate::chaos::dice::Dice;

/// How long a process lives once connected, ms.
const LIFE_MS: std::ops::RangeInclusive<u64> = 50..=1_500;

/// A sequence of processes: each is killed, and the next starts.
pub(super) struct Mortal {
    pub(super) program: PathBuf,
    /// The command-line arguments for its primaries.
    pub(super) primaries: Vec<String>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) dice: Dice,
}

impl Mortal {
    /// Runs processes until the run is over. `know` receives the node id of each.
    pub(super) async fn run(mut self, know: impl Fn(&str)) {
        while !self.ledger.is_over.load(Ordering::Relaxed) {
            self.live_and_die(&know).await;
            self.ledger.killed.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn live_and_die(&mut self, know: &impl Fn(&str)) {
        let mut child = Command::new(&self.program)
            .args(["buy", &self.dice.next().to_string()])
            .args(&self.primaries)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a buyer starts");
        let leash = Leash::new(child.id().expect("it has just started"), None);
        let output = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines();
        // The buyers use the whole machine, and each request of a connect has its timeout.
        let first = timeout(4 * SOON, lines.next_line()).await.expect("it is connected in time");
        know(&first.expect("it writes text").expect("it says its node"));
        let life = sleep(Duration::from_millis(self.dice.of(LIFE_MS)));
        let read = async {
            while let Some(line) = lines.next_line().await.expect("it writes text") {
                self.ledger.note(line.parse().unwrap_or_else(|()| panic!("it says {line:?}")));
            }
        };
        let killed = async {
            life.await;
            drop(leash);
            assert_eq!(child.try_wait().expect("a child of ours"), None, "a buyer ended by itself");
            child.kill().await.expect("a child of ours");
        };
        tokio::join!(read, killed);
    }
}

/// Runs as such a process: prints the node id, and then all reports of the buyers.
///
/// # Panics
///
/// If a buyer is refused for another reason than too few reachable primaries.
pub async fn buy_from_quorum(seed: u64, spare: usize, primaries: &[&str]) {
    let locks = connected(&quorum(primaries, spare)).await;
    print(locks.node().as_str());
    let never = AtomicBool::new(false);
    let report = |report: BuyerReport| print(&report.to_string());
    let buyer = |name| {
        let dice = Dice::part(seed, name as u64);
        buy(Buyer::Brief, locks.clone(), name, dice, report, &never)
    };
    join_all((QUIET..NAMES).map(buyer)).await;
}

async fn connected(quorum: &Quorum) -> Locks {
    loop {
        match builder().connect(quorum.clone()).await {
            Ok(locks) => return locks,
            Err(error) if error.is_retryable() => sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes a line at once, so that a killed process has reported everything.
fn print(line: &str) {
    let _ = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
}
