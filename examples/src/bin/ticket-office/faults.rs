//! The fault panel, behind `--faults`: buyers in separate processes, which a visitor kills, freezes
//! and disconnects from Redis. They take turns at the last seat: each buys it, returns it and
//! queues again, until a visitor buys it for good.

mod buyer;
mod crew;
mod origin;
mod panel;
mod relay;

use axum::extract::{Path, State};
use axum::middleware::from_fn;
use axum::routing::{get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde::Deserialize;

pub(crate) use buyer::run as run_buyer;
pub(crate) use crew::Crew;
pub(crate) use panel::{Panel, PanelWatcher};
pub(crate) use relay::split as split_url;

use crate::office::Office;
use crate::problem::Problem;

/// The environment variable that makes a process of this program a buyer of the fault panel. The
/// value is the buyer's name.
pub(crate) const NAME: &str = "TICKET_OFFICE_FAULTS_BUYER";
/// The environment variable with a buyer's Redis URL, which leads to the buyer's relay.
pub(crate) const REDIS: &str = "TICKET_OFFICE_FAULTS_REDIS";

/// A fault of a buyer's process, or the end of a fault, chosen by a visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    Kill,
    Freeze,
    Thaw,
    CutOff,
    Reconnect,
}

pub(crate) fn routes() -> Router<Office> {
    Router::new()
        .route("/faults/buyers", post(start))
        .route("/faults/buyers/{number}/{fault}", post(fault))
        .layer(from_fn(origin::check))
        .route("/faults", get(panel))
}

fn crew(office: &Office) -> Result<&Crew, Problem> {
    let off = "The fault panel is off: see --faults.";
    office.faults.as_ref().ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "faults-off", off))
}

/// `GET /faults`: returns the state of the panel.
async fn panel(State(office): State<Office>) -> Result<Json<Panel>, Problem> {
    Ok(Json(crew(&office)?.panel()))
}

/// `POST /faults/buyers`: starts another buyer, and returns the state of the panel.
async fn start(State(office): State<Office>) -> Result<(StatusCode, Json<Panel>), Problem> {
    let crew = crew(&office)?;
    crew.start().await?;
    Ok((StatusCode::CREATED, Json(crew.panel())))
}

/// `POST /faults/buyers/{number}/{fault}`: applies the fault to a buyer and then, once it is in
/// effect, returns the state of the panel.
async fn fault(
    State(office): State<Office>,
    Path((number, fault)): Path<(u32, Fault)>,
) -> Result<Json<Panel>, Problem> {
    let crew = crew(&office)?;
    crew.fault(number, fault, office.seats.database()).await?;
    Ok(Json(crew.panel()))
}
