//! `GET /events`: the board as server-sent events, everything first and then the changes.

use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::StatusCode;

use crate::board::Watcher;
use crate::office::Office;
use crate::problem::Problem;

/// The time after which a browser comes back.
const RETRY: Duration = Duration::from_secs(1);

/// The time between two empty events: they find closed pages, and keep proxies from closing open
/// ones.
pub(crate) const ALIVE: Duration = Duration::from_secs(10);

pub(crate) async fn events(State(office): State<Office>) -> Response {
    match office.board.watch() {
        Some(watcher) => {
            let alive = KeepAlive::new().interval(ALIVE);
            Sse::new(changes(watcher)).keep_alive(alive).into_response()
        }
        None => {
            let detail = "Too many watch already. Try again later.";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "watchers-full", detail).into_response()
        }
    }
}

fn changes(watcher: Watcher) -> impl Stream<Item = Result<Event, axum::Error>> {
    stream::unfold(watcher, async |mut watcher| {
        let change = watcher.next().await?;
        let event = Event::default().event("hall").retry(RETRY).json_data(change);
        Some((event, watcher))
    })
}
