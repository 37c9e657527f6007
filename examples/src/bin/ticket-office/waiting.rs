//! `POST /seats/{id}/buy/events`: buys, and meanwhile reports the buyer's position, as server-sent
//! events: any number of `place`, at most one `turn`, and finally a `ticket` or a `problem`. A
//! response before the buyer is queued, such as to a bad order or to a repeat, has no events.
//!
//! # Implementation notes
//! - The response owns the inner request: when the client disconnects, the response is dropped, and
//!   the wait ends. When the buyer's turn comes, the sale continues in a separate task, as in
//!   `buying`.
//! - The server reports the position when it queues the buyer. Later departures ahead are derived
//!   from the queue polled by the board. Only polls that began after the report count: earlier
//!   polls may not include this buyer.

use std::future::pending;
use std::pin::Pin;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use futures_util::stream;
use lockcore::{Acquire, LockGuard};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;

use crate::board::{Queue, Stirring};
use crate::buying::Purchase;
use crate::events::ALIVE;
use crate::office::{self, Office};
use crate::order::Order;
use crate::problem::{self, Problem};
use crate::progress::{Place, Progress, Stage};
use crate::sale::{self, Ticket};

/// A buyer who waits for the lock of a seat. Dropping it leaves the queue and updates the board.
struct Waiting {
    acquire: Pin<Box<Acquire>>,
    places: watch::Receiver<Option<u64>>,
    /// The queue as polled by the board; `None` if the board has too many watchers.
    queue: Option<Queue>,
    /// The number of buyers ahead, or more if some have left the queue since the last poll. `None`
    /// until the buyer is queued.
    ahead: Option<u64>,
    /// When the server last reported the position. Only later polls of the queue are used.
    reported_at: Instant,
    seat: u32,
    order: Order,
    office: Office,
    stirring: Stirring,
}

/// A middleware around [`buy`]. Turns the response into a stream of events: the stages of the
/// purchase, and at the end the response itself. A response before the purchase has begun, such as
/// to a bad order, is returned unchanged.
pub(crate) async fn send_events(mut request: Request, next: Next) -> Response {
    let (progress, mut stages) = Progress::new();
    request.extensions_mut().insert(progress);
    let mut answer = Box::pin(next.run(request));
    tokio::select! {
        biased;
        Ok(()) = stages.changed() => {}
        answer = &mut answer => return answer,
    }
    stages.mark_changed(); // a later stage may already be set, which has an event
    let events = stream::unfold(Some((stages, answer)), async |purchase| {
        let (mut stages, mut answer) = purchase?;
        let next_stage = async {
            while let Ok(()) = stages.changed().await {
                if let Some(event) = event(&stages.borrow_and_update()) {
                    return event;
                }
            }
            pending().await
        };
        tokio::select! {
            biased;
            event = next_stage => Some((event, Some((stages, answer)))),
            answer = &mut answer => {
                let event = if answer.status().is_success() { "ticket" } else { "problem" };
                let data = problem::body_of(answer).await;
                Some((Event::default().event(event).json_data(data), None))
            }
        }
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)).into_response()
}

/// Returns the event by which the buyer receives a stage; `None` for [`Stage::Begun`], which has no
/// event.
fn event(stage: &Stage) -> Option<Result<Event, axum::Error>> {
    let event = Event::default();
    match stage {
        Stage::Begun => None,
        Stage::Waiting(place) => Some(event.event("place").json_data(place)),
        Stage::Paying(token) => {
            Some(event.event("turn").json_data(json!({ "token": token.get() })))
        }
    }
}

/// Handles `POST /seats/{id}/buy/events`: waits for the buyer's turn, reports each new position,
/// and sells the seat.
pub(crate) async fn buy(
    State(office): State<Office>,
    Extension(progress): Extension<Progress>,
    purchase: Purchase,
) -> Response {
    progress.report(Stage::Begun);
    yield_now().await; // the events begin, also if the first one is a refusal
    let mut waiting = Waiting::new(office, purchase);
    let guard = loop {
        let step = tokio::select! {
            biased;
            step = waiting.next() => step,
            gone = progress.gone() => return gone,
        };
        match step {
            Ok(Step::Place(place)) => progress.report(Stage::Waiting(place)),
            Ok(Step::Turn(guard)) => break guard,
            Err(refused) => return refused,
        }
    };
    progress.report(Stage::Paying(guard.fencing_token()));
    match waiting.pay(guard).await.expect("a sale does not panic") {
        Ok(ticket) => Json(ticket).into_response(),
        Err(problem) => problem.into_response(),
    }
}

/// An event in the wait of a buyer: a new position, or the turn with the guard of the lock.
enum Step {
    Place(Place),
    Turn(LockGuard),
}

impl Waiting {
    fn new(office: Office, Purchase { seat, order }: Purchase) -> Self {
        let seat = seat.0;
        let stirring = office.board.stirring(seat);
        let request =
            office.locks.key(office::key(seat)).class(office::CLASS).options(office.options);
        let acquire = Box::pin(request.label(&order.buyer).lock());
        Self {
            places: acquire.positions(),
            acquire,
            queue: office.board.queue(seat),
            ahead: None,
            reported_at: Instant::now(),
            seat,
            order,
            office,
            stirring,
        }
    }

    /// Waits until the position has changed or the turn has come. Returns `Err` with the refusal if
    /// the lock is not granted.
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
                    self.reported_at = Instant::now();
                    // This buyer is queued now, so the board must poll again.
                    self.office.board.stir(self.seat);
                }
                () = changed(&mut self.queue) => {
                    let seen = self.queue.as_ref().and_then(|queue| {
                        queue.ahead(&self.order.buyer, self.reported_at)
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

    /// Sells the seat in a separate task, so that a disconnect does not stop the sale.
    fn pay(self, guard: LockGuard) -> JoinHandle<Result<Ticket, Problem>> {
        let Self { seat, order, office, stirring, .. } = self;
        let (token, waited) = (guard.fencing_token(), order.asked.elapsed());
        tokio::spawn(async move {
            let _stirring = stirring;
            let outcome = sale::sell(office, seat, token, order, waited).await;
            // The database has already decided, whether or not the hold was lost.
            let _ = guard.release().await;
            outcome
        })
    }
}

/// Waits for the board's next poll. Never completes if there is no queue to watch, or once the
/// board has closed.
async fn changed(queue: &mut Option<Queue>) {
    if let Some(open) = queue {
        if open.changed().await {
            return;
        }
        *queue = None;
    }
    pending().await
}
