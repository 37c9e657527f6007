//! `POST /seats/{id}/buy`: checks the order, queues for the seat, and sells it.

use axum::extract::{FromRequest, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use lock_axum::{Keys, Lockable, Locked};

use crate::office::{self, Office};
use crate::order::Order;
use crate::problem;
use crate::progress::Progress;
use crate::sale;
use crate::seat::SeatId;

/// A request to buy a seat: the seat from the path, and the order from the body.
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

/// Requests the seat's lock, with the buyer's name as the label.
impl Lockable for Purchase {
    fn lock_key(&self) -> Keys {
        Keys::one(office::key(self.seat.0)).label(self.order.buyer.as_str())
    }
}

/// Handles `POST /seats/{id}/buy`: waits for the buyer's turn, and sells the seat. A buyer who
/// disconnects before the turn is not served. From the turn on, the sale runs in a separate task,
/// and a disconnect does not stop it.
pub(crate) async fn buy(
    State(office): State<Office>,
    Extension(progress): Extension<Progress>,
    request: Request,
) -> Result<Response, Response> {
    let purchase = tokio::select! {
        biased;
        turn = <Locked<Purchase>>::from_request(request, &office) => {
            turn.map_err(IntoResponse::into_response)?
        }
        gone = progress.gone() => return Err(gone),
    };
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
        Ok(Ok(ticket)) => Ok(Json(ticket).into_response()),
        Ok(Err(problem)) => Err(problem.into_response()),
        Err(lost) => Err(problem::of_locks(lost)),
    }
}

/// A middleware around [`buy`]. Marks the seat for the board when the buyer joins and leaves the
/// queue, and adds a channel to the request by which [`buy`] notices a disconnect.
pub(crate) async fn stir(
    State(office): State<Office>,
    seat: SeatId,
    mut request: Request,
    next: Next,
) -> Response {
    let _stirring = office.board.stirring(seat.0);
    let (progress, _buyer) = Progress::new();
    request.extensions_mut().insert(progress);
    next.run(request).await
}
