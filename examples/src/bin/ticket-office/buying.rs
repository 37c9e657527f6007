//! `POST /seats/{id}/buy`: checked, then in line, then served.

use axum::Json;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use lock_axum::LockedBody;

use crate::office::Office;
use crate::order::Order;
use crate::problem;
use crate::sale;
use crate::seat::SeatId;

/// Runs when the buyer's turn has come. Whoever hangs up before is dropped with this request; from here on the sale
/// is finished in a task of its own.
pub(crate) async fn buy(
    State(office): State<Office>,
    LockedBody { lock, body: order }: LockedBody<SeatId, Order>,
) -> Response {
    let (seat, token, waited) = (lock.source().0, lock.fencing_token(), order.asked.elapsed());
    let stirring = office.board.stirring(seat);
    let sale = async move {
        let _stirring = stirring;
        sale::sell(office, seat, token, order, waited).await
    };
    match lock.detach(sale).await {
        Ok(Ok(ticket)) => Json(ticket).into_response(),
        Ok(Err(problem)) => problem.into_response(),
        Err(lost) => problem::of_locks(lost),
    }
}

/// Shows on the board who gets in line and who leaves it.
pub(crate) async fn stir(
    State(office): State<Office>,
    seat: SeatId,
    request: Request,
    next: Next,
) -> Response {
    let _stirring = office.board.stirring(seat.0);
    next.run(request).await
}
