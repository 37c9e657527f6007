use std::time::Duration;

use lockcore::{LockErrorKind, Locks};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken; // the crate tokio-util

/// Leads whenever no other process does, until `stop` is cancelled.
async fn lead(locks: Locks, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let led = locks.key("leader").class("leader").with(async |hold| {
            tokio::select! {
                () = act(hold.fencing_token().into()) => {}
                () = stop.cancelled() => {} // the next process leads
            }
        });
        let pause = match led.await {
            Ok(()) => Duration::from_secs(1), // a role that ends at once must not spin
            Err(error) if error.kind() == LockErrorKind::Closed => return, // after `shutdown`
            Err(error) => {
                eprintln!("this process does not lead: {error}");
                error.retry_after().unwrap_or(Duration::from_secs(2))
            }
        };
        let _ = timeout(pause, stop.cancelled()).await;
    }
}
