//! `POST /seats/{id}/buy/events`: buys, and tells the buyer's place meanwhile, as server-sent
//! events. They are some of `place`, at most one `turn`, and at the end a `ticket` or a `problem`.
//!
//! # Implementation notes
//! - The response owns the acquisition: where the client hangs up, the response is dropped, and the
//!   wait with it. From its turn on the sale is a task of its own, as in `buying`.
//! - The server tells a place when it queues the buyer. Those ahead that leave since are seen in
//!   the queue that the board reads, of which only a look that has begun afterwards counts: an
//!   earlier one may not have this buyer.

use std::future::pending;
use std::pin::Pin;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use lockcore::{Acquire, LockGuard};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::board::{Queue, Stirring};
use crate::buying::Purchase;
use crate::events::ALIVE;
use crate::office::{self, Office};
use crate::order::Order;
use crate::problem::{self, Problem};
use crate::sale::{self, Ticket};

/// The stages of a purchase.
enum Stage {
    Waiting(Box<Waiting>),
    Paying(JoinHandle<Result<Ticket, Problem>>),
    Over,
}

/// A buyer that waits. Leaves the queue when it is dropped, and then shows it.
struct Waiting {
    acquire: Pin<Box<Acquire>>,
    places: watch::Receiver<Option<u64>>,
    /// The queue as the board sees it; `None` if there are too many watchers.
    queue: Option<Queue>,
    /// The number of buyers ahead, at most.
    ahead: Option<u64>,
    /// The time at which the server told the place.
    told: Instant,
    seat: u32,
    order: Order,
    office: Office,
    stirring: Stirring,
}

/// The place of a buyer who waits.
#[derive(Serialize)]
struct Place {
    ahead: u64,
    waited_ms: u64,
}

pub(crate) async fn buy(State(office): State<Office>, purchase: Purchase) -> Response {
    let stage = Stage::Waiting(Box::new(Waiting::new(office, purchase)));
    let events = stream::unfold(stage, Stage::next);
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

impl Stage {
    /// The next event; `None` after the last one.
    async fn next(self) -> Option<(Result<Event, axum::Error>, Self)> {
        let (event, outcome) = match self {
            Self::Over => return None,
            Self::Waiting(mut waiting) => match waiting.next().await {
                Ok(Step::Place(place)) => {
                    let event = Event::default().event("place").json_data(place);
                    return Some((event, Self::Waiting(waiting)));
                }
                Ok(Step::Turn(guard)) => {
                    let turn = json!({ "token": guard.fencing_token().get() });
                    let event = Event::default().event("turn").json_data(turn);
                    return Some((event, Self::Paying(waiting.pay(guard))));
                }
                Err(refused) => ("problem", refused),
            },
            // A sale that panics has no outcome.
            Self::Paying(sale) => match sale.await.ok()? {
                Ok(ticket) => ("ticket", Json(ticket).into_response()),
                Err(refused) => ("problem", refused.into_response()),
            },
        };
        let data = problem::body_of(outcome).await;
        Some((Event::default().event(event).json_data(data), Self::Over))
    }
}

/// A change for one that waits.
enum Step {
    Place(Place),
    Turn(LockGuard),
}

impl Waiting {
    fn new(office: Office, Purchase { seat, order }: Purchase) -> Self {
        let seat = seat.0;
        let stirring = office.board.stirring(seat);
        let request = office.locks.key(office::key(seat)).class("seats").options(office.options);
        let acquire = Box::pin(request.label(&order.buyer).lock());
        Self {
            places: acquire.positions(),
            acquire,
            queue: office.board.queue(seat),
            ahead: None,
            told: Instant::now(),
            seat,
            order,
            office,
            stirring,
        }
    }

    /// Waits until the place changes, or for the turn.
    async fn next(&mut self) -> Result<Step, Response> {
        loop {
            let shown = self.ahead;
            tokio::select! {
                biased;
                outcome = &mut self.acquire => {
                    return outcome.map(Step::Turn).map_err(problem::of_locks);
                }
                Ok(()) = self.places.changed() => {
                    self.ahead = *self.places.borrow_and_update();
                    self.told = Instant::now();
                    // The board is to look again: this buyer is queued now.
                    self.office.board.stir(self.seat);
                }
                () = changed(&mut self.queue) => {
                    let seen = self.queue.as_ref().and_then(|queue| {
                        queue.ahead(&self.order.buyer, self.told)
                    });
                    self.ahead = self.ahead.map(|ahead| seen.map_or(ahead, |seen| seen.min(ahead)));
                }
            }
            if let Some(ahead) = self.ahead.filter(|_| self.ahead != shown) {
                let waited_ms = sale::milliseconds(self.order.asked.elapsed());
                return Ok(Step::Place(Place { ahead, waited_ms }));
            }
        }
    }

    /// Sells the seat in a task of its own.
    fn pay(self, guard: LockGuard) -> JoinHandle<Result<Ticket, Problem>> {
        let Self { seat, order, office, stirring, .. } = self;
        let (token, waited) = (guard.fencing_token(), order.asked.elapsed());
        tokio::spawn(async move {
            let _stirring = stirring;
            let outcome = sale::sell(office, seat, token, order, waited).await;
            // Whether the hold was lost meanwhile, the database has decided already.
            let _ = guard.release().await;
            outcome
        })
    }
}

/// Waits until the board has looked again.
async fn changed(queue: &mut Option<Queue>) {
    if let Some(open) = queue {
        if open.changed().await {
            return;
        }
        *queue = None;
    }
    pending().await
}
