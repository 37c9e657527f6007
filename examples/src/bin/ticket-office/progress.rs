//! The channel by which a purchase reports its stages to the buyer, before the response.
//!
//! With an idempotency key, a purchase continues without the client. This channel reports whether
//! the buyer is still there: nobody who has left the queue is served.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lockcore::FencingToken;
use serde::Serialize;
use tokio::sync::watch;

use crate::problem::Problem;

/// A stage of a purchase, which is reported to the buyer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Begun,
    Waiting(Place),
    Paying(FencingToken),
}

/// The position of a waiting buyer: how many buyers are ahead, and the wait so far.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Place {
    pub(crate) ahead: u64,
    pub(crate) waited_ms: u64,
}

/// The sender for the stages of a purchase. A middleware puts it into the request's extensions, and
/// keeps the receiver.
#[derive(Debug, Clone)]
pub(crate) struct Progress(watch::Sender<Stage>);

impl Progress {
    /// Creates the sender and the receiver. The middleware drops the receiver when the buyer
    /// disconnects.
    pub(crate) fn new() -> (Self, watch::Receiver<Stage>) {
        let (sender, stages) = watch::channel(Stage::Begun);
        (Self(sender), stages)
    }

    pub(crate) fn report(&self, stage: Stage) {
        self.0.send_replace(stage);
    }

    /// Waits until the buyer has disconnected, and returns the response that ends the purchase.
    /// Nobody reads it, but the idempotency layer takes the status to mean that nothing was done: a
    /// repeat with the same key queues again.
    pub(crate) async fn gone(&self) -> Response {
        self.0.closed().await;
        let detail = "The buyer has left the queue.";
        Problem::new(StatusCode::CONFLICT, "buyer-gone", detail).into_response()
    }
}
