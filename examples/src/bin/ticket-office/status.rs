//! Requests that do not buy: the seats, a seat's queue, and whether the office can sell at all.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use lockcore::operate::{LockInspection, Participant};
use serde::Serialize;
use serde_json::json;

use crate::office::{self, Office};
use crate::problem::{self, Problem};
use crate::seat::SeatId;
use crate::seats::Seat;

/// The names of the holder of a seat's lock and of the waiters, the next waiter first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Line {
    holder: Option<String>,
    waiters: Vec<String>,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.holder.is_none() && self.waiters.is_empty()
    }

    /// Returns the number of waiters ahead of the last waiter with this name; `None` if there is no
    /// such waiter.
    pub(crate) fn ahead(&self, waiter: &str) -> Option<u64> {
        self.waiters.iter().rposition(|name| name == waiter).map(|place| place as u64)
    }
}

impl From<LockInspection> for Line {
    fn from(inspection: LockInspection) -> Self {
        Self {
            holder: inspection.holders.first().map(name),
            waiters: inspection.waiters.iter().map(name).collect(),
        }
    }
}

/// Returns the name of a holder or waiter, which is the label of the request.
fn name(participant: &Participant) -> String {
    participant.label.as_deref().unwrap_or(&participant.member).to_owned()
}

/// `GET /seats`: returns all seats.
pub(crate) async fn seats(State(office): State<Office>) -> Result<Json<Vec<Seat>>, Problem> {
    Ok(Json(office.seats.all().await?))
}

/// `GET /seats/{id}/line`: returns the holder and the waiters of a seat's lock.
pub(crate) async fn line(seat: SeatId, State(office): State<Office>) -> Response {
    match office::line(&office.locks, seat.0).await {
        Ok(inspection) => Json(Line::from(inspection)).into_response(),
        Err(error) => problem::of_locks(error),
    }
}

/// `GET /healthz`: returns 200 if the lock servers and the database respond, and otherwise the
/// refusal that buyers receive.
pub(crate) async fn health(State(office): State<Office>) -> Response {
    if let Err(error) = office.locks.ping().await {
        return problem::of_locks(error);
    }
    match office.seats.all().await {
        Ok(_) => Json(json!({ "status": "ok" })).into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}
