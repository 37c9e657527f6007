//! The seat in a request's path, and the lock that a purchase of it needs.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use lock_axum::{BodyKeySource, KeyError, Keys};

use crate::office::{self, Office};
use crate::order::Order;
use crate::problem::Problem;

/// A seat that exists.
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

/// The seat is in the path, but who waits for it is in the body.
impl BodyKeySource<Order> for SeatId {
    fn lock_key(&self, order: &Order) -> Result<Keys, KeyError> {
        Ok(Keys::one(office::key(self.0)).label(order.buyer.as_str()))
    }
}
