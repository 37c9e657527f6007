//! The seat in a request's path.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

use crate::office::Office;
use crate::problem::Problem;

/// The number of an existing seat, taken from the path of a request. Other numbers are refused with
/// 404.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeatId(pub(crate) u32);

impl FromRequestParts<Office> for SeatId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, office: &Office) -> Result<Self, Problem> {
        match Path::<u32>::from_request_parts(parts, office).await {
            Ok(Path(seat)) if office.seats.contains(seat) => Ok(Self(seat)),
            _ => Err(Problem::no_such_seat()),
        }
    }
}
