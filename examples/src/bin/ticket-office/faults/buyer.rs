//! A buyer's process: takes turns at a seat, and reports on stdout.

use std::io::{self, Write as _};
use std::time::Duration;

use lockcore::{LockError, Locks};
use tokio::io::AsyncReadExt as _;
use tokio::time::sleep;

use super::panel::Report;
use crate::flags::Flags;
use crate::office;
use crate::seats::{Begun, Seats};

/// The pause after an error, before the buyer queues again.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the process of a buyer: buys and returns the last seat, again and again, until a visitor
/// has bought it or the office has exited.
pub(crate) async fn run(name: &str, locks: Locks, seats: Seats, flags: &Flags) {
    let turns = async {
        loop {
            report(&Report::Waiting);
            let outcome = match turn(name, &locks, &seats, flags).await {
                Ok(outcome) => outcome,
                Err(detail) => Report::NotServed { detail },
            };
            report(&outcome);
            match outcome {
                Report::Sold => return,
                Report::NotServed { .. } => sleep(PAUSE).await,
                _ => {}
            }
        }
    };
    tokio::select! {
        () = turns => {}
        () = office_has_ended() => {}
    }
}

async fn turn(name: &str, locks: &Locks, seats: &Seats, flags: &Flags) -> Result<Report, String> {
    let seat = seats.count();
    let request = locks.key(office::key(seat)).options(flags.options()).label(name);
    let guard = request.lock().await.map_err(|error: LockError| error.to_string())?;
    let token = guard.fencing_token();
    report(&Report::Paying { token: token.get() });
    let outcome = match seats.begin(seat, token).await.map_err(|error| error.to_string())? {
        Begun::Sold(_) => Report::Sold,
        Begun::Overtaken => Report::Refused { token: token.get() },
        Begun::Free => {
            sleep(flags.pay()).await;
            // As in a sale, does not check for a lost hold: the database decides.
            let sold = seats.sell(seat, token, name.to_owned(), None).await;
            match sold.map_err(|error| error.to_string())? {
                true => {
                    seats.hand_back(seat, token).await.map_err(|error| error.to_string())?;
                    Report::Written { token: token.get() }
                }
                false => Report::Refused { token: token.get() },
            }
        }
    };
    let _ = guard.release().await;
    Ok(outcome)
}

fn report(report: &Report) {
    let line = serde_json::to_string(report).unwrap_or_default();
    let _ = writeln!(io::stdout(), "{line}");
}

/// Waits for the end of stdin. The office keeps stdin open, so the end means that the office has
/// exited.
async fn office_has_ended() {
    let mut stdin = tokio::io::stdin();
    while stdin.read_u8().await.is_ok() {}
}
