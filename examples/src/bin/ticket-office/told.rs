//! What a buyer receives before the response: the stages of a purchase.
//!
//! With an idempotency key, a purchase continues without the client. This channel reports whether
//! the buyer is still there: nobody who has left the queue is served.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lockcore::FencingToken;
use serde::Serialize;
use tokio::sync::watch;

use crate::problem::Problem;

/// A stage of a purchase, as the buyer is informed of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Begun,
    Waiting(Place),
    Paying(FencingToken),
}

/// A waiting buyer's position.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Place {
    pub(crate) ahead: u64,
    pub(crate) waited_ms: u64,
}

/// The purchase's end of the channel, in the request extensions.
#[derive(Debug, Clone)]
pub(crate) struct Told(watch::Sender<Stage>);

impl Told {
    /// Returns both ends. The buyer's end is dropped when the buyer disconnects.
    pub(crate) fn new() -> (Self, watch::Receiver<Stage>) {
        let (told, stages) = watch::channel(Stage::Begun);
        (Self(told), stages)
    }

    pub(crate) fn tell(&self, stage: Stage) {
        self.0.send_replace(stage);
    }

    /// Waits until the buyer has disconnected, and returns a response that nobody reads. The status
    /// shows that nothing was done: a repeat with the same key queues again.
    pub(crate) async fn gone(&self) -> Response {
        self.0.closed().await;
        let detail = "The buyer has left the queue.";
        Problem::new(StatusCode::CONFLICT, "buyer-gone", detail).into_response()
    }
}
