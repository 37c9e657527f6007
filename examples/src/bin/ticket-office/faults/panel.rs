//! The panel, as a page shows it.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::Fault;
use crate::sale;

/// The maximum number of reports that the panel shows.
const MOST_REPORTS: usize = 12;

/// The maximum number of buyers that the panel shows. The oldest ended buyer is removed first.
const MOST_SHOWN: usize = 12;

/// The stage that a buyer's process has reached. The process prints it as a line of JSON on stdout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "kebab-case")]
pub(super) enum Report {
    /// The buyer's process is starting, and has printed nothing yet.
    Starting,
    /// The buyer waits for the lock of the last seat.
    Waiting,
    /// The buyer holds the seat's lock, and pays.
    Paying { token: u64 },
    /// The buyer has written the sale, and returned the seat.
    Written { token: u64 },
    /// The database refused the write, because a later holder has begun.
    Refused { token: u64 },
    /// The buyer was not served, because of an error.
    NotServed { detail: String },
    /// A visitor has bought the seat for good, so the buyer ends.
    Sold,
}

/// A buyer, and the state of the buyer's process.
#[derive(Debug, Clone, Serialize)]
struct Buyer {
    number: u32,
    name: String,
    pid: Option<u32>,
    is_frozen: bool,
    is_cut_off: bool,
    is_killed: bool,
    has_ended: bool,
    last: Report,
}

/// A report with the name of the buyer, for the list of reports.
#[derive(Debug, Clone, Serialize)]
struct Entry {
    name: String,
    #[serde(flatten)]
    report: Report,
}

/// The state of the fault panel, as pages receive it: the buyers, and the outcomes of their writes.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Panel {
    seat: u32,
    lease_ms: u64,
    /// The number of writes accepted by the database.
    written: u64,
    /// The number of stale writes refused by the database.
    refused: u64,
    buyers: Vec<Buyer>,
    /// The latest reports of outcomes, newest first: all except `Waiting` and `Paying`.
    reports: VecDeque<Entry>,
}

impl Panel {
    pub(super) fn new(seat: u32, lease: Duration) -> Self {
        Self {
            seat,
            lease_ms: sale::milliseconds(lease),
            written: 0,
            refused: 0,
            buyers: Vec::new(),
            reports: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, number: u32, name: String, pid: Option<u32>) {
        if self.buyers.len() >= MOST_SHOWN
            && let Some(ended) = self.buyers.iter().position(|buyer| buyer.has_ended)
        {
            self.buyers.remove(ended);
        }
        self.buyers.push(Buyer {
            number,
            name,
            pid,
            is_frozen: false,
            is_cut_off: false,
            is_killed: false,
            has_ended: false,
            last: Report::Starting,
        });
    }

    pub(super) fn fault(&mut self, number: u32, fault: Fault) {
        let Some(buyer) = self.buyer(number) else { return };
        match fault {
            Fault::Kill => buyer.is_killed = true,
            Fault::Freeze => buyer.is_frozen = true,
            Fault::Thaw => buyer.is_frozen = false,
            Fault::CutOff => buyer.is_cut_off = true,
            Fault::Reconnect => buyer.is_cut_off = false,
        }
    }

    pub(super) fn end(&mut self, number: u32) {
        if let Some(buyer) = self.buyer(number) {
            buyer.has_ended = true;
        }
    }

    fn buyer(&mut self, number: u32) -> Option<&mut Buyer> {
        self.buyers.iter_mut().find(|buyer| buyer.number == number)
    }

    pub(super) fn take(&mut self, number: u32, report: Report) {
        match report {
            Report::Written { .. } => self.written += 1,
            Report::Refused { .. } => self.refused += 1,
            _ => {}
        }
        let Some(buyer) = self.buyer(number) else { return };
        let name = buyer.name.clone();
        buyer.last = report.clone();
        if !matches!(report, Report::Waiting | Report::Paying { .. }) {
            self.reports.push_front(Entry { name, report });
            self.reports.truncate(MOST_REPORTS);
        }
    }
}

/// A watcher of the fault panel, for the event stream of an open page.
pub(crate) struct PanelWatcher(pub(super) watch::Receiver<Panel>);

impl PanelWatcher {
    /// Returns the state of the panel, at once on the first call and then after each change.
    /// Returns `None` when all handles to the crew are dropped.
    pub(crate) async fn next(&mut self) -> Option<Panel> {
        self.0.changed().await.ok()?;
        Some(self.0.borrow_and_update().clone())
    }
}
