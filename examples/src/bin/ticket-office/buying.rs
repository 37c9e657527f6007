//! `POST /seats/{id}/buy`: checked, then queued, then served.

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use lock_axum::{Keys, Lockable, Locked};

use crate::office::{self, Office};
use crate::order::Order;
use crate::problem;
use crate::sale;
use crate::seat::SeatId;

/// The seat of the path, and the order of the body.
pub(crate) struct Purchase {
    pub(crate) seat: SeatId,
    pub(crate) order: Order,
}

impl FromRequest<Office> for Purchase {
    type Rejection = Response;

    async fn from_request(request: Request, office: &Office) -> Result<Self, Response> {
        let (seat, order) = <(SeatId, Order)>::from_request(request, office).await?;
        Ok(Self { seat, order })
    }
}

/// Locks the seat, with the buyer as the label.
impl Lockable for Purchase {
    fn lock_key(&self) -> Keys {
        Keys::one(office::key(self.seat.0)).label(self.order.buyer.as_str())
    }
}

/// Runs when the buyer's turn has come. A buyer who hangs up before is dropped with this request;
/// from here on the sale is finished in a task of its own.
pub(crate) async fn buy(State(office): State<Office>, purchase: Locked<Purchase>) -> Response {
    let seat = purchase.seat.0;
    let order = purchase.order.clone();
    let token = purchase.fencing_token();
    let waited = order.asked.elapsed();
    let stirring = office.board.stirring(seat);
    let sale = async move {
        let _stirring = stirring;
        sale::sell(office, seat, token, order, waited).await
    };
    match purchase.detach(sale).await {
        Ok(Ok(ticket)) => Json(ticket).into_response(),
        Ok(Err(problem)) => problem.into_response(),
        Err(lost) => problem::of_locks(lost),
    }
}

/// Shows on the board which buyers join the queue and leave it.
pub(crate) async fn stir(
    State(office): State<Office>,
    seat: SeatId,
    request: Request,
    next: Next,
) -> Response {
    let _stirring = office.board.stirring(seat.0);
    next.run(request).await
}
