//! `GET /events`: the board as server-sent events, first everything and then the changes; with
//! `--faults` also the panel.

use std::future::pending;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::StatusCode;

use crate::board::Watcher;
use crate::faults::{Crew, Panel, PanelWatcher};
use crate::office::Office;
use crate::problem::Problem;

/// The delay before a browser reconnects to an event stream that has ended.
const RETRY: Duration = Duration::from_secs(1);

/// The interval of keep-alive events: they detect closed pages, and prevent proxies from closing
/// open connections.
pub(crate) const ALIVE: Duration = Duration::from_secs(10);

pub(crate) async fn events(State(office): State<Office>) -> Response {
    let Some(board) = office.board.watch() else {
        let detail = "Too many pages are open already. Try again later.";
        let code = "watchers-full";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, detail).into_response();
    };
    let changes = Changes { board, faults: office.faults.as_ref().map(Crew::watch) };
    let events = stream::unfold(changes, Changes::next);
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

/// The sources of a page's events: the board and, with `--faults`, the fault panel.
struct Changes {
    board: Watcher,
    faults: Option<PanelWatcher>,
}

impl Changes {
    /// Waits for the next event, and returns it with the state for the next call. Returns `None`
    /// when the board has closed.
    async fn next(mut self) -> Option<(Result<Event, axum::Error>, Self)> {
        let event = tokio::select! {
            change = self.board.next() => Event::default().event("hall").json_data(change?),
            panel = panel(&mut self.faults) => Event::default().event("faults").json_data(panel),
        };
        Some((event.map(|event| event.retry(RETRY)), self))
    }
}

async fn panel(faults: &mut Option<PanelWatcher>) -> Panel {
    if let Some(watcher) = faults
        && let Some(panel) = watcher.next().await
    {
        return panel;
    }
    pending().await
}
