//! A refusal as the answer of an axum handler.

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};

use crate::refusal::LockError;

impl IntoResponse for LockError {
    /// Makes the response of [`to_response`](Self::to_response), and logs it as axum logs its own
    /// rejections, so that one filter shows all.
    fn into_response(self) -> Response {
        let response = self.to_response();
        tracing::event!(
            target: "axum::rejection",
            tracing::Level::TRACE,
            status = response.status().as_u16(),
            body = %String::from_utf8_lossy(response.body()),
            rejection_type = std::any::type_name::<Self>(),
            "rejecting request",
        );
        response.map(Body::from)
    }
}
