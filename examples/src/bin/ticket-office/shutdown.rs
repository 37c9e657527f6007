//! Shutdown: new and waiting buyers are refused, and paying buyers are served. Then the process
//! exits.

use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::flags::MAX_PAY;
use crate::office::Office;
use crate::say;

/// The time for a purchase in addition to the longest payment, and then again the time for
/// responses that are still being sent.
const LAST: Duration = Duration::from_secs(5);

/// The signals that close the office: SIGTERM and Ctrl-C. A signal that arrives while no task waits
/// for it is kept.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal, and returns the number.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    }
}

/// Serves requests until a signal arrives. Then cancels `end`, refuses new and waiting buyers, and
/// serves the purchases that have begun. A second signal ends the process at once.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    office: Office,
    (mut signals, end): (Signals, CancellationToken),
) {
    let server =
        axum::serve(listener, routes).with_graceful_shutdown(end.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    signals.next().await;
    say::news("closing; a second signal exits at once");
    let finish = async {
        end.cancel();
        office.board.close();
        if let Some(faults) = &office.faults {
            faults.end();
        }
        office.locks.shutdown(MAX_PAY + LAST).await;
        // Does not wait for a client that does not read the response, or sends half a request.
        let _ = timeout(LAST, server).await;
    };
    tokio::select! {
        () = finish => {}
        number = signals.next() => std::process::exit(128 + number),
    }
}
