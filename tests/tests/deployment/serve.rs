use std::{io, time::Duration};

use axum::Router;
use lock_axum::Locks;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken; // the crate tokio-util

async fn serve(
    listener: TcpListener,
    app: Router,
    locks: Locks,
    leaving: CancellationToken, // cancelled on SIGTERM; the readiness probe below reads it, too
) -> io::Result<()> {
    let end = CancellationToken::new();
    let server = axum::serve(listener, app).with_graceful_shutdown(end.clone().cancelled_owned());
    let server = tokio::spawn(server.into_future());
    leaving.cancelled().await; // the readiness probe fails from now on
    sleep(Duration::from_secs(5)).await; // the balancer notices; requests are still served
    end.cancel(); // nothing new is accepted, and requests in progress continue
    let last = Instant::now() + Duration::from_secs(22); // for requests and detached work
    if timeout_at(last - Duration::from_secs(4), server).await.is_err() {
        eprintln!("some connections are still open, and will be cut off");
    }
    let report = locks.shutdown(last - Instant::now()).await;
    if report.unreleased > 0 {
        eprintln!("{} locks are held until their leases expire", report.unreleased);
    }
    Ok(())
}

/// Call this first. Kubernetes, systemd and Docker send SIGTERM.
fn on_terminate(leaving: CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        leaving.cancel();
    });
    Ok(())
}
