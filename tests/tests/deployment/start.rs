use axum::{Router, extract::State, http::StatusCode, routing::get};
use lock_axum::{Locks, lockcore::LockError};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Serves liveness, and then connects by `connect`: a loop. Returns `None` on SIGTERM.
async fn start(
    probes: TcpListener,
    connect: impl Future<Output = Result<Locks, LockError>>,
    leaving: CancellationToken,
) -> Result<Option<Locks>, LockError> {
    // That it responds is the check.
    let alive = Router::new().route("/alive", get(async || ()));
    tokio::spawn(axum::serve(probes, alive).into_future());
    leaving.run_until_cancelled(connect).await.transpose()
}

/// Readiness: to merge into the router after its layers, so that it waits for no lock.
fn readiness(leaving: CancellationToken) -> Router {
    Router::new().route("/ready", get(ready)).with_state(leaving)
}

/// Fails once SIGTERM has arrived.
async fn ready(State(leaving): State<CancellationToken>) -> StatusCode {
    if leaving.is_cancelled() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}
