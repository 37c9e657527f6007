//! A sale: read, wait for the payment, write. It runs under the seat's lock, but the database
//! decides by the fencing token which writes count.

use std::time::Duration;

use http::StatusCode;
use lockcore::FencingToken;
use serde::Serialize;
use tokio::time::sleep;

use crate::office::Office;
use crate::order::Order;
use crate::problem::Problem;
use crate::seats::{Begun, Sale};

/// The response to a buyer who has bought a seat.
#[derive(Debug, Serialize)]
pub(crate) struct Ticket {
    seat: u32,
    buyer: String,
    token: i64,
    waited_ms: u64,
}

/// Sells `seat` to a buyer whose hold has the fencing token `token`: begins the purchase, waits for
/// the payment, and writes the sale. `waited` is shown on the ticket. Returns the ticket again if
/// an earlier attempt of this purchase has bought the seat, and a refusal if another purchase has,
/// or if a later holder has begun.
pub(crate) async fn sell(
    office: Office,
    seat: u32,
    token: FencingToken,
    order: Order,
    waited: Duration,
) -> Result<Ticket, Problem> {
    match office.seats.begin(seat, token).await? {
        Begun::Free => {}
        // An earlier attempt of this purchase was completed, and its response was lost.
        Begun::Sold(Sale { buyer, token, purchase })
            if purchase.is_some() && purchase == order.purchase =>
        {
            return Ok(Ticket { seat, buyer, token, waited_ms: milliseconds(waited) });
        }
        Begun::Sold(Sale { buyer, .. }) => {
            let detail = format!("Seat {seat} was sold to {buyer}.");
            return Err(Problem::new(StatusCode::CONFLICT, "seat-sold", detail));
        }
        Begun::Overtaken => return Err(overtaken(&office, seat)),
    }
    sleep(order.pay).await;
    // Does not check for a lost hold: the result could be outdated by the time of the write.
    if !office.seats.sell(seat, token, order.buyer.clone(), order.purchase).await? {
        return Err(overtaken(&office, seat));
    }
    office.metrics.sold();
    let waited_ms = milliseconds(waited);
    Ok(Ticket { seat, buyer: order.buyer, token: token.into(), waited_ms })
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn overtaken(office: &Office, seat: u32) -> Problem {
    office.metrics.fenced();
    let detail = format!(
        "The payment for seat {seat} took too long: the next buyer was served. Nothing was bought."
    );
    Problem::new(StatusCode::CONFLICT, "seat-overtaken", detail)
}
