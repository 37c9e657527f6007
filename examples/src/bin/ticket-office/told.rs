//! What a buyer is told before the answer: the stages of a purchase.
//!
//! With an idempotency key a purchase runs on without its client. By this it learns whether the
//! buyer is still there: nobody is served who has left the queue.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use lockcore::FencingToken;
use serde::Serialize;
use tokio::sync::watch;

use crate::problem::Problem;

/// The stage of a purchase.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Begun,
    Waiting(Place),
    Paying(FencingToken),
}

/// The place of a buyer who waits.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Place {
    pub(crate) ahead: u64,
    pub(crate) waited_ms: u64,
}

/// The end of a purchase that tells, in the extensions of the request.
#[derive(Debug, Clone)]
pub(crate) struct Told(watch::Sender<Stage>);

impl Told {
    /// Returns both ends. The buyer's is dropped when the buyer hangs up.
    pub(crate) fn new() -> (Self, watch::Receiver<Stage>) {
        let (told, stages) = watch::channel(Stage::Begun);
        (Self(told), stages)
    }

    pub(crate) fn tell(&self, stage: Stage) {
        self.0.send_replace(stage);
    }

    /// Waits until the buyer has hung up; returns the answer, which nobody reads. It says that
    /// nothing was done: a repeat with the same key queues anew.
    pub(crate) async fn gone(&self) -> Response {
        self.0.closed().await;
        let detail = "The buyer has left the queue.";
        Problem::new(StatusCode::CONFLICT, "buyer-gone", detail).into_response()
    }
}
