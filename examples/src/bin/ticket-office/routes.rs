//! The office's routes.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use lock_axum::{LockScopeLayer, OnLost};
use lock_dashboard::Dashboard;
use lock_idempotency::IdempotencyLayer;
use tokio_util::sync::CancellationToken;

use crate::office::{self, Office};
use crate::order::MAX_BYTES;
use crate::{buying, events, faults, metrics, page, status, waiting};

/// Creates the routes of the office. `once` is the layer that serves each purchase only once. The
/// lock pages are at `/locks`. They show the names of all buyers, so they are served only to
/// visitors on this machine. Their event streams end when `end` is cancelled.
pub(crate) fn routes(office: Office, once: IdempotencyLayer, end: CancellationToken) -> Router {
    let shows_locks = office.shows_locks;
    let locks = Dashboard::new(office.locks.clone()).until(end.cancelled_owned());
    let scope = LockScopeLayer::new(office.locks.clone())
        .class(office::CLASS)
        .options(office.options)
        // A buyer may have paid: the database decides by the token who may still write.
        .on_lost(OnLost::Continue);
    // `once` is outside the seat's lock: a repeat does not queue for the seat.
    let buying = Router::new()
        .route("/seats/{id}/buy", post(buying::buy))
        .route_layer(scope)
        .route_layer(once.clone())
        .route_layer(from_fn_with_state(office.clone(), buying::stir));
    let with_events = Router::new()
        .route("/seats/{id}/buy/events", post(waiting::buy))
        .route_layer(once)
        .route_layer(from_fn(waiting::send_events));
    let buying = buying.merge(with_events).layer(DefaultBodyLimit::max(MAX_BYTES));
    let routes = Router::new()
        .route("/", get(page::html))
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js))
        .route("/faults.js", get(page::faults_js))
        .route("/events", get(events::events))
        .route("/seats", get(status::seats))
        .route("/seats/{id}/line", get(status::line))
        .route("/healthz", get(status::health))
        .route("/metrics", get(metrics::metrics))
        .merge(buying)
        .merge(faults::routes())
        .with_state(office);
    if shows_locks { routes.nest_service("/locks", locks.into_router()) } else { routes }
}
